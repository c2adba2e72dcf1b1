#include "launch/weights/open_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/checkpoint_outputs.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/gradient_check.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using testing::checkpoint_outputs;
using ::testing::HasSubstr;
using testing::relative_error;

struct ModelCase {
  std::string name;
  std::vector<std::string> recipe;
  std::vector<std::string> same;   ///< overrides with which weights compute the same
  std::vector<std::string> other;  ///< overrides with which they fit and compute something else
  friend std::ostream& operator<<(std::ostream& out, const ModelCase& test) {
    return out << test.name;
  }
};

class ModelOfACheckpoint : public ::testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    run_ = testing::run_of_steps(testing::equality_recipe(GetParam().recipe), scratch_, 3);
    trained_ = checkpoint_outputs({run_}).outputs;
  }

  testing::ScratchFolder scratch_;
  std::string run_;
  torch::Tensor trained_;
};

// Parts of an exchange are summed one after the other, in float64.
constexpr double kRounding = 1e-13;

TEST_P(ModelOfACheckpoint, MayDifferWhereAnEvaluationStaysTheSame) {
  for (const std::string& key : GetParam().same) {
    EXPECT_LE(relative_error(checkpoint_outputs({run_, false, {key}}).outputs, trained_), kRounding)
        << key;
  }
}

TEST_P(ModelOfACheckpoint, ComputesSomethingElseOnlyWhereItIsAllowed) {
  for (const std::string& key : GetParam().other) {
    try {
      checkpoint_outputs({run_, false, {key}});
      ADD_FAILURE() << key << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch) << key;
      EXPECT_THAT(error.what(), HasSubstr("\n  " + key.substr(0, key.find('=')))) << key;
      EXPECT_THAT(error.hint(), HasSubstr("--override")) << key;
    }
    CheckpointChoice choice{run_, false, {key}};
    choice.override_model = true;
    EXPECT_FALSE(checkpoint_outputs(choice).outputs.equal(trained_)) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, ModelOfACheckpoint,
    ::testing::Values(
        ModelCase{
            "Decoder",
            testing::gpt2("moe: {router: {name: top_k, k: 1}, experts: {count: 3, hidden: 8}},"
                          "sparse_blocks: {from: 1}"),
            {"model.dropout=0.5", "model.init_std=1", "model.kv_heads=2", "model.hidden=32",
             "model.gelu=tanh", "model.moe.losses=[]", "model.moe.router.noise=gaussian",
             "model.moe.capacity={mode: capped, factor: 0.1, min: 0}",
             "model.moe.exchange.chunks=2"},
            {"model.heads=1", "model.norm=rms", "model.position=rope", "model.gelu=erf",
             "model.bias=false", "model.scale_attn_by_inverse_layer_idx=true",
             "model.moe.router.k=2", "model.moe.router.weights.scale=2"}},
        ModelCase{"Rope",
                  testing::gpt2(testing::kModernDecoder),
                  {"model.rope_base=10000"},
                  {"model.rope_base=100"}},
        ModelCase{
            "Gates",
            testing::with_hspmn(testing::text_data()),
            {"model.gate.first_rate=0.9", "model.gate.anneal_steps=9", "model.gate.noise=none",
             "model.gate.rate_weight=3", "model.gate.entropy_weight=1",
             "model.gate.explore_fraction=0", "model.gate.threshold_decay=0.5"},
            {"model.gate.anchor_every=2"}},
        ModelCase{"Images",
                  testing::noisy(),
                  {"model.sparse.token_moe.router.drop=0.5"},
                  {"model.sparse.token_moe.router.eval_drop=0.5", "model.gelu=tanh"}}),
    [](const auto& test) { return test.param.name; });

TEST(UnusedWeights, AreNamedBesideTheKeys) {
  const testing::ScratchFolder scratch;
  const std::string run =
      testing::run_of_steps(testing::equality_recipe(testing::gpt2()), scratch, /*steps=*/1);
  try {
    checkpoint_outputs({run, false, {"model.position=rope"}});
    ADD_FAILURE() << "positions were left out";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\n  model.position  checkpoint: learned   recipe: rope\n  "
                                        "1 tensor of the checkpoint without a place in the model: "
                                        "backbone.positions"));
  }
}

}  // namespace
}  // namespace shoal
