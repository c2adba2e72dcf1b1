#include "launch/step/step_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/moco/momentum_encoder.h"
#include "parallel/gradients/weight_average.h"
#include "sparse/training/choose_cells.h"
#include "sparse/training/learn_permutations.h"
#include "sparse/training/prune_grow.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::SessionInTraining;

/// The rules of a session, in order; `after_step` for the one of the modules.
std::vector<std::string> names_of(const Session& session) {
  std::vector<std::string> names;
  for (const auto& rule : session.rules()) {
    const StepRule* one = rule.get();
    names.push_back(dynamic_cast<const MomentumEncoder*>(one) != nullptr     ? "task"
                    : dynamic_cast<const LearnPermutations*>(one) != nullptr ? "permutations"
                    : dynamic_cast<const ChooseCells*>(one) != nullptr       ? "cells"
                    : dynamic_cast<const PruneGrow*>(one) != nullptr         ? "masks"
                    : dynamic_cast<const WeightAverage*>(one) != nullptr     ? "average"
                                                                             : "after_step");
  }
  return names;
}

TEST(StepRules, StandInTheOrderInWhichTheyAct) {
  EXPECT_THAT(names_of(SessionInTraining({}).session), ElementsAre("after_step"));
  EXPECT_THAT(names_of(SessionInTraining(
                           testing::moco({testing::sparse("unstructured"), "train.average=0.9"}))
                           .session),
              ElementsAre("task", "masks", "average", "after_step"));
  EXPECT_THAT(names_of(SessionInTraining({testing::sparse_by_choice(
                                              "block, size: 2",
                                              "permutation: {name: learned, lr: 0.05, until: 80%}"),
                                          "optimizer.name=adamw", "train.average=0.9"})
                           .session),
              ElementsAre("permutations", "cells", "masks", "average", "after_step"));
}

TEST(StepRules, LendTheAveragesUntilTheyAreReleased) {
  SessionInTraining run({"optimizer={name: adamw, lr: 1e-2}", "train.average=0.9"});
  const torch::Tensor weight = run.session.parameters().front().tensor;
  for (int step = 0; step < 2; ++step) run.session.step({});
  const torch::Tensor own = weight.detach().clone();
  {
    const auto lent = run.session.lend_weights();
    EXPECT_FALSE(weight.equal(own));
  }
  EXPECT_TRUE(weight.equal(own));
}

}  // namespace
}  // namespace shoal
