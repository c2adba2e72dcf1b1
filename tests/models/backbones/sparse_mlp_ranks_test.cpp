#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/build_model.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/some_batch.h"
#include "tests/support/thread_communicator.h"

// Parallel equals serial for a whole model: loss, every gradient, and evaluation sums.
namespace shoal {
namespace {

using testing::image_batch;
using testing::in_step;
using testing::some_numbers;

constexpr int64_t kImages = 10;
constexpr int64_t kGroup = 2;

std::string recipe(const std::string& scope) {
  const std::string losses = "losses: [{name: importance, weight: 0.1, scope: " + scope +
                             "}, {name: load, weight: 0.1, scope: " + scope + "}]";
  return "model: {backbone: sparse_mlp, patch: 2, width: 4, dense_blocks: 1, token_hidden: 5, "
         "channel_hidden: 7, sparse_blocks: 2, sparse: {token_moe: {router: {name: "
         "importance_score, k: 1}, experts: {count: 3, hidden: 5}, capacity: {mode: capped, min: "
         "1}, " +
         losses + "}, channel_moe: {router: {k: 2}, experts: {count: 3, hidden: 5}, " + losses +
         "}}}";
}

struct Result {
  double loss = 0;
  std::map<std::string, double> eval;         ///< sums, and samples
  std::map<std::string, torch::Tensor> grad;  ///< by logical name, experts by their own id
};

/// Groups of the batch on a rank: whole, evenly spread, the first ranks one more.
std::pair<int64_t, int64_t> share(int64_t rank, int64_t ranks) {
  const int64_t groups = kImages / kGroup;
  const int64_t first = groups * rank / ranks, last = groups * (rank + 1) / ranks;
  return {first * kGroup, (last - first) * kGroup};
}

Batch batch_of(int64_t first, int64_t count) {
  const torch::Tensor image = some_numbers({kImages, 1, 4, 6}, 1).narrow(0, first, count);
  return image_batch(image, torch::arange(first, first + count, torch::kInt64) % 3);
}

StepContext step_of(int64_t first, int64_t count, bool training) {
  StepContext step;
  step.seed = 5;
  step.training = training;
  step.sample_b = torch::arange(first, first + count, torch::kInt64);
  step.samples_per_group = kGroup;
  step.samples_in_step = step.samples_in_micro = kImages;
  return step;
}

/// Adds what a rank found to `result`; gradients are sums over the ranks that have the parameter.
void add_rank(const Task& task, double loss, const EvalOutput& eval, Result& result) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  result.loss += loss;
  for (const NamedSum& sum : eval.sums) {
    result.eval[sum.name] += sum.sum;
    result.eval[sum.name + " samples"] += sum.weight;
  }
  for (const Parameter& parameter : parameters_of(task)) {
    const int64_t units = parameter.is_stacked() ? parameter.tensor.size(0) : 1;
    for (int64_t i = 0; i < units; ++i) {
      const std::string name =
          parameter.is_stacked()
              ? name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(i)])
              : parameter.name;
      const torch::Tensor grad =
          parameter.is_stacked() ? parameter.tensor.grad()[i] : parameter.tensor.grad();
      torch::Tensor& sum = result.grad[name];
      sum = sum.defined() ? sum + grad : grad.clone();
    }
  }
}

Result run_model(int64_t expert_ranks, int64_t replicas, const std::string& scope) {
  Result result;
  testing::run_owning_ranks(expert_ranks * replicas, [&](std::unique_ptr<Communicator> world) {
    const auto [first, count] = share(world->rank(), world->size());
    RankGrid grid = make_rank_grid(std::move(world), expert_ranks);
    const auto task = testing::build_model(
        recipe(scope), {1, 4, 6}, 3, {{&grid, torch::TensorOptions().dtype(torch::kFloat64)}});
    testing::fill_parameters(*task);
    const torch::Tensor loss =
        task->train(in_step(batch_of(first, count), step_of(first, count, true))).loss;
    loss.backward();
    const EvalOutput eval =
        task->evaluate(in_step(batch_of(first, count), step_of(first, count, false)));
    add_rank(*task, loss.item<double>(), eval, result);
  });
  return result;
}

void expect_equal(const Result& found, const Result& serial) {
  EXPECT_NEAR(found.loss, serial.loss, 1e-12 * std::abs(serial.loss));
  EXPECT_NEAR(found.eval.at("loss"), serial.eval.at("loss"), 1e-12 * serial.eval.at("loss"));
  EXPECT_EQ(found.eval.at("top1"), serial.eval.at("top1"));
  EXPECT_EQ(found.eval.at("top1 samples"), kImages);
  double largest = 0;
  for (const auto& [name, grad] : serial.grad) {
    largest = std::max(largest, grad.abs().max().item<double>());
  }
  ASSERT_EQ(found.grad.size(), serial.grad.size());
  for (const auto& [name, grad] : serial.grad) {
    ASSERT_TRUE(found.grad.count(name)) << name;
    EXPECT_LT((found.grad.at(name) - grad).abs().max().item<double>(), 1e-12 * largest) << name;
  }
}

TEST(SparseMlpRanks, ParallelEqualsSerial) {
  for (const std::string scope : {"group", "sequence", "global"}) {
    const Result serial = run_model(1, 1, scope);
    EXPECT_GT(serial.loss, 0.5);
    for (const auto& [expert_ranks, replicas] :
         {std::pair{2, 1}, std::pair{1, 2}, std::pair{3, 1}, std::pair{2, 2}, std::pair{4, 1}}) {
      SCOPED_TRACE(scope + ", " + std::to_string(expert_ranks) + " x " + std::to_string(replicas));
      expect_equal(run_model(expert_ranks, replicas, scope), serial);
    }
  }
}

}  // namespace
}  // namespace shoal
