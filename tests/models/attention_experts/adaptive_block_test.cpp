#include "models/attention_experts/adaptive_block.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/models/attention_experts/attention_case.h"
#include "tests/support/build_model.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/ranks.h"

// B images  N tokens  D width
namespace shoal {
namespace {

using testing::apart;
using testing::attention_options;
using testing::attention_step;
using testing::kAttentionSizes;
using testing::some_numbers;

/// Values in the parameters of a block of the published size, by their names' first parts, of
/// `attention` by their first two.
std::map<std::string, int64_t> counts_of(const std::optional<AttentionExpertsOptions>& experts) {
  const AdaptiveBlock block(AdaptiveBlockImpl::Sizes{{128, 4, {8, 8}}, 256}, experts,
                            testing::meta_context());
  std::map<std::string, int64_t> counts;
  for (const Parameter& parameter : parameters_of(*block)) {
    const std::string& name = parameter.name;
    const bool is_attention = name.starts_with("attention.");
    counts[name.substr(0, name.find('.', is_attention               ? 10
                                         : name.starts_with("mlp.") ? 4
                                                                    : 0))] +=
        parameter.tensor.numel();
    counts["all"] += parameter.tensor.numel();
  }
  return counts;
}

TEST(AdaptiveBlock, HasThePublishedParametersExactly) {
  const auto published = counts_of(AttentionExpertsOptions{});
  EXPECT_EQ(published.at("all"), 289539);
  EXPECT_EQ(published.at("attention_norm") + published.at("mlp_norm"), 512);
  EXPECT_EQ(published.at("attention.router"), 8451);
  EXPECT_EQ(published.at("attention.experts"), 198144);
  EXPECT_EQ(published.at("merge"), 16512);
  EXPECT_EQ(published.at("mlp.fc1") + published.at("mlp.fc2"), 65920);
  // One pair of keys and values in place of three.
  AttentionExpertsOptions shared;
  shared.mixing = Mixing::kHardSharedKv;
  EXPECT_EQ(counts_of(shared).at("all"), 289539 - 2 * 2 * (128 * 128 + 128));
  EXPECT_EQ(counts_of(shared).at("attention.key_value"), 2 * (128 * 128 + 128));
  // Four linear layers of standard attention in place of router, experts and merge.
  EXPECT_EQ(counts_of(std::nullopt).at("all"), 512 + 4 * (128 * 128 + 128) + 65920);
}

// y = x + merge(experts(norm(x))), y + fc2(gelu(fc1(norm(y)))).
TEST(AdaptiveBlock, AddsMergedExpertsAndThenAnMlp) {
  for (const Mixing mixing : {Mixing::kSoft, Mixing::kHard, Mixing::kHardSharedKv}) {
    RankGrid grid = testing::self_grid();
    const BuildContext build{.grid = &grid, .tensor_options = torch::kFloat64};
    AdaptiveBlock block(AdaptiveBlockImpl::Sizes{kAttentionSizes, 8, "block"},
                        attention_options(mixing), build);
    testing::fill_parameters(*block);
    AttentionExperts experts(attention_options(mixing), kAttentionSizes, "block.attention", build);
    std::map<std::string, torch::Tensor> weight;
    for (const Parameter& parameter : parameters_of(*block)) {
      weight[parameter.name] = parameter.tensor.detach();
    }
    const torch::NoGradGuard no_grad;
    for (const Parameter& parameter : parameters_of(experts)) {
      parameter.tensor.copy_(weight.at("attention." + parameter.name));
    }
    const auto norm = [&](const torch::Tensor& x, const std::string& name) {
      return at::layer_norm(x, {4}, weight.at(name + ".weight"), weight.at(name + ".bias"), 1e-5);
    };
    const auto linear = [&](const torch::Tensor& x, const std::string& name) {
      return at::linear(x, weight.at(name + ".weight"), weight.at(name + ".bias"));
    };
    const StepContext step = attention_step(0, 5, 5);
    const torch::Tensor x = some_numbers({5, 6, 4}, 3);
    const torch::Tensor y =
        x + linear(experts.forward(norm(x, "attention_norm"), step).y_BRD, "merge");
    const torch::Tensor expected =
        y + linear(at::gelu(linear(norm(y, "mlp_norm"), "mlp.fc1")), "mlp.fc2");
    const BlockOutput output = block->forward(x, step);
    EXPECT_LT(apart(output.y, expected), 1e-13);
    EXPECT_GT(apart(y, x), 0.01);
    EXPECT_EQ(output.moe.size(), 1u);
  }
}

}  // namespace
}  // namespace shoal
