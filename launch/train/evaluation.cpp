#include "launch/train/evaluation.h"

#include <chrono>

#include "launch/train/session.h"
#include "runtime/data/loader.h"

namespace shoal {
namespace {

/// Over ranks, of the sums and of the agreement of routers.
struct Total {
  double loss = 0.0;
  int64_t top1 = 0, top5 = 0, samples = 0;
  RouterAgreement::Counts agreement;
};

Total sum_over_ranks(const EvalSums& own, const RouterAgreement::Counts& agreement,
                     Communicator& world) {
  torch::Tensor loss = torch::tensor({own.loss}, torch::kFloat64);
  torch::Tensor counts = torch::tensor(
      {own.top1, own.top5, own.samples, agreement.same, agreement.compared}, torch::kInt64);
  all_reduce(world, loss);
  all_reduce(world, counts);
  const auto* count = counts.data_ptr<int64_t>();
  return {loss.item<double>(), count[0], count[1], count[2], {count[3], count[4]}};
}

}  // namespace

Evaluation evaluate(const EvaluationParts& parts, int64_t step, RouterAgreement* agreement) {
  const auto start = std::chrono::steady_clock::now();
  const torch::NoGradGuard no_grad;
  const Recipe& recipe = parts.recipe;
  Communicator& world = *parts.grid.world;
  EvalLoader loader(parts.data, image_shape_of(recipe), loader_settings(recipe, parts.grid));
  EvalSums own;
  if (agreement != nullptr) agreement->begin_evaluation();
  while (std::optional<Batch> batch = loader.next()) {
    batch->context.step = step;
    const EvalSums sums = parts.task.evaluate({batch->image_bCHW, batch->label_b}, batch->context);
    own.loss += sums.loss;
    own.top1 += sums.top1;
    own.top5 += sums.top5;
    own.samples += sums.samples;
    if (agreement != nullptr) agreement->add(sums.moe);
  }
  parts.grid.throw_if_failed();
  const Total all = sum_over_ranks(
      own, agreement != nullptr ? agreement->counts() : RouterAgreement::Counts{}, world);
  const auto samples = static_cast<double>(all.samples);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  Evaluation result{all.loss / samples, static_cast<double>(all.top1) / samples,
                    static_cast<double>(all.top5) / samples, all.samples};
  if (all.agreement.compared > 0) {
    result.router_agreement =
        static_cast<double>(all.agreement.same) / static_cast<double>(all.agreement.compared);
  }
  result.seconds = elapsed.count();
  return result;
}

}  // namespace shoal
