#include "launch/data/recipe_source.h"
#include "launch/recipe/recipe.h"
#include "launch/runs/expert_records.h"

#include <gtest/gtest.h>

#include "launch/step/session.h"
#include "runtime/base/error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

class LoggedLoads : public ::testing::Test {
 protected:
  LoggedLoads() {
    recipe_.run.root = scratch_.path();
    recipe_.run.name = ".";
    recipe_.run.on_existing = OnExisting::kResume;
    recipe_.parallel.placement = PlacementRule::kByLoad;
  }
  UnitLoads read() { return logged_loads(recipe_, *world_); }
  void write(const std::string& text) { testing::write_file(scratch_.file("experts.jsonl"), text); }

  testing::ScratchFolder scratch_;
  std::unique_ptr<Communicator> world_ = make_self_communicator();
  Recipe recipe_;
};

TEST_F(LoggedLoads, AreThoseOfTheLastWholeStep) {
  write(R"({"step":5,"layer":"a","load":[9,9]}
{"step":10,"layer":"a","load":[1,2]}
{"step":10,"layer":"b","load":[3]}
{"step":15,"layer":"a","lo)");
  EXPECT_EQ(read(), (UnitLoads{{"a", {1, 2}}, {"b", {3}}}));
}

TEST_F(LoggedLoads, AreEmptyWithoutARunAndForOtherRules) {
  EXPECT_TRUE(read().empty());
  write("{\"step\":5,\"layer\":\"a\",\"load\":[9,9]}\n");
  recipe_.parallel.placement = PlacementRule::kByCost;
  EXPECT_TRUE(read().empty());
  recipe_.parallel.placement = PlacementRule::kByLoad;
  recipe_.run.on_existing = OnExisting::kOverwrite;
  EXPECT_TRUE(read().empty());
}

// That the run cannot be resumed with it is told once it is built, with what differs.
TEST_F(LoggedLoads, OfAnotherModelDoNotKeepThisOneFromBeingBuilt) {
  const Recipe recipe = testing::equality_recipe({"parallel.placement=by_load"});
  write("{\"step\":5,\"layer\":\"blocks.1.moe_c\",\"load\":[1,1,9]}\n");
  RankGrid grid = testing::self_grid();
  EXPECT_NO_THROW(build_model(recipe, make_source(recipe)->shape(), {&grid, torch::kMeta}, read()));
}

TEST_F(LoggedLoads, NameTheLineThatIsNoRecord) {
  write("{\"step\":5,\"layer\":\"a\",\"load\":[9,9]}\n{\"step\":6}\n");
  try {
    read();
    ADD_FAILURE() << "was accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("experts.jsonl:2: not a record"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal
