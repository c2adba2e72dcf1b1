#include "launch/weights/taken_sparse_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::loading_error;
using testing::save;
using testing::SessionInTraining;

const std::string kSmallVit = testing::vit();
const std::string kAdamW = "optimizer={name: adamw, lr: 1e-2}";

/// model.init_from of a checkpoint, whole or by names.
std::vector<std::string> starts(const std::string& path, bool in_part) {
  return {"run.seed=7", in_part ? "model.init_from={from: " + path + ", take: ['*']}"
                                : "model.init_from=" + path};
}

class TakenMasksTest : public ::testing::TestWithParam<bool> {
 protected:
  /// A checkpoint of a ViT trained for so many steps.
  std::string trained(const std::string& sparsity, int steps = 3) {
    SessionInTraining run({kSmallVit, sparsity, kAdamW});
    for (int step = 0; step < steps; ++step) EXPECT_TRUE(run.session.step({}).applied);
    return save(run, scratch_.path());
  }
  std::string error_of(const std::string& path, const std::vector<std::string>& overrides) {
    SessionInTraining run(
        testing::joined(testing::joined({kSmallVit, kAdamW}, overrides), starts(path, GetParam())));
    return loading_error(run);
  }

  testing::ScratchFolder scratch_;
};

INSTANTIATE_TEST_SUITE_P(WholeAndInPart, TakenMasksTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InPart" : "Whole"; });

TEST_P(TakenMasksTest, MayHaveMoreWeightsThanAskedForWhileTheRuleLetsThem) {
  const std::string soft =
      "sparsity={density: 0.5, rule: {name: mest, mode: em_s, every: 2step, extra: 0.1, until: "
      "80%}}";
  const std::string path = trained(soft);
  EXPECT_EQ(error_of(path, {soft}), "taken");
  EXPECT_THAT(error_of(path, {"sparsity={density: 0.5}"}), HasSubstr("its mask does not fit"));
}

TEST_P(TakenMasksTest, RefuseAWeightWithoutItsProductOfLowRank) {
  const std::string path = trained(
      "sparsity={density: 0.75, layers: [mlp], pattern: {name: butterfly, grid: 4, low_rank: 0.3}, "
      "rule: {name: static}}");
  EXPECT_THAT(error_of(path, {}),
              AllOf(HasSubstr("mlp.fc1.weight"), HasSubstr("a product of low rank beside it")));
}

TEST_P(TakenMasksTest, RefuseCellsThatAreNotChosenForALayerThatIsDense) {
  const std::string path = trained(testing::sparse_by_choice("diagonal", "layers: [mlp]"), 1);
  EXPECT_THAT(error_of(path, {testing::sparse_by_choice("diagonal", "layers: [mlp.fc1]")}),
              AllOf(HasSubstr("fc2.weight"), HasSubstr("are not chosen yet")));
}

TEST_P(TakenMasksTest, LayersThatTheCheckpointHasDenseKeepTheirOwn) {
  const std::string path =
      trained("sparsity={density: 0.5, layers: [mlp.fc1], rule: {name: static}}");
  const std::string more = "sparsity={density: 0.5, layers: [mlp], rule: {name: static}}";
  EXPECT_EQ(error_of(path, {more}), "taken");
}

TEST(TakenMasks, AreNotReportedAsRandomWeights) {
  const testing::ScratchFolder scratch;
  const std::string soft = testing::sparse_by_choice("diagonal", "layers: [mlp]");
  SessionInTraining run({kSmallVit, soft});
  run.session.step({});
  SessionInTraining next(
      testing::joined({kSmallVit, soft}, starts(save(run, scratch.path()), /*in_part=*/true)));
  EXPECT_THAT(load_initial_weights(next.session, next.recipe),
              ::testing::Not(HasSubstr("sparsity.")));
}

TEST(TakenMasks, AreNotMadeForExpertsByUpcycling) {
  const testing::ScratchFolder scratch;
  const std::string masks = "sparsity={density: 0.5, layers: [mlp], rule: {name: static}}";
  SessionInTraining dense({kSmallVit, masks});
  dense.session.step({});
  SessionInTraining experts({testing::vit(testing::kBlockExperts),
                             "sparsity={density: 0.5, layers: [moe], rule: {name: static}}",
                             "model.init_from=" + save(dense, scratch.path()),
                             "model.upcycle=true"});
  EXPECT_THAT(loading_error(experts), HasSubstr("makes no experts' masks of an MLP's"));
}

}  // namespace
}  // namespace shoal
