#include "launch/evaluate.h"

#include <chrono>

#include "launch/session.h"
#include "runtime/loader.h"

namespace shoal {
namespace {

EvalSums sum_over_ranks(const EvalSums& own, Communicator& world) {
  torch::Tensor loss = torch::tensor({own.loss}, torch::kFloat64);
  torch::Tensor counts = torch::tensor({own.top1, own.top5, own.samples}, torch::kInt64);
  all_reduce(world, loss);
  all_reduce(world, counts);
  const auto* count = counts.data_ptr<int64_t>();
  return {loss.item<double>(), count[0], count[1], count[2]};
}

}  // namespace

Evaluation evaluate(Task& task, const Recipe& recipe, const SampleSet& data, RankGrid& grid,
                    int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const torch::NoGradGuard no_grad;
  EvalLoader loader(data, image_shape_of(recipe), loader_settings(recipe, *grid.world));
  EvalSums own;
  while (std::optional<Batch> batch = loader.next()) {
    batch->context.step = step;
    const EvalSums sums = task.evaluate({batch->image_bCHW, batch->label_b}, batch->context);
    own.loss += sums.loss;
    own.top1 += sums.top1;
    own.top5 += sums.top5;
    own.samples += sums.samples;
  }
  const EvalSums all = sum_over_ranks(own, *grid.world);
  const auto samples = static_cast<double>(all.samples);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return {all.loss / samples, static_cast<double>(all.top1) / samples,
          static_cast<double>(all.top5) / samples, all.samples, elapsed.count()};
}

}  // namespace shoal
