#include "launch/job/rank_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

Recipe recipe_with(const std::string& key_and_value) {
  return testing::equality_recipe(
      {"data={source: cifar, path: here, train: {files: [a]}, valid: {files: [b]}}",
       key_and_value});
}

TEST(RankFacts, NameWhatIsLoadedByItsBuildId) {
  const std::string program = build_id_of_loaded("");
  const std::string library = build_id_of_loaded("libshoal.so");
  EXPECT_THAT(program, ::testing::MatchesRegex("[0-9a-f]{40}"));
  EXPECT_THAT(library, ::testing::MatchesRegex("[0-9a-f]{40}"));
  EXPECT_NE(program, library);
  EXPECT_THROW(build_id_of_loaded("libabsent.so"), Error);
}

TEST(RankFacts, NameTheLibrariesAsLoaded) {
  EXPECT_THAT(loaded_torch_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+.*"));
  EXPECT_THAT(loaded_mpi_version(), ::testing::HasSubstr("MPI"));
  std::vector<std::string> names;
  for (const auto& [name, value] : installation_facts()) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("shoal", "program", "libshoal.so", "LibTorch", "MPI"));
}

TEST(RankFacts, LeaveOutPathsOfDataAlone) {
  const Facts facts = recipe_facts(recipe_with("run.seed=1"));
  EXPECT_EQ(recipe_facts(recipe_with("data.path=there")), facts);
  for (const char* other : {"run.root=elsewhere", "run.seed=7", "data.train.files=[b]"}) {
    EXPECT_NE(recipe_facts(recipe_with(other)), facts) << other;
  }
}

TEST(RankFacts, RefuseRecipesThatDiffer) {
  testing::run_ranks(3, [](Communicator& world) {
    const std::string rank = std::to_string(world.rank());
    require_equal_ranks(world, recipe_with("data.path=/node" + rank));
    try {
      require_equal_ranks(world, recipe_with("run.seed=" + rank));
      ADD_FAILURE() << "three seeds were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kVersionSkew);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("recipe: "));
    }
  });
}

}  // namespace
}  // namespace shoal
