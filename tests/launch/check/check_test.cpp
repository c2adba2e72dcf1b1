#include "launch/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/check/check_recipe.h"
#include "runtime/device/device.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// A recipe of generated data with 6 experts in each of two layers.
config::RecipeSource small_recipe(const std::vector<std::string>& overrides) {
  return {.path = "r.yaml",
          .overrides = testing::joined(
              {"model.sparse.token_moe.experts.count=6", "model.sparse.channel_moe.experts.count=6",
               "parallel.uneven=false", "run.device=cpu"},
              overrides),
          .environment = nullptr,
          .text = testing::kEqualityRecipe};
}

std::string checked(const std::vector<std::string>& overrides, int64_t world, bool json = false) {
  std::ostringstream out;
  EXPECT_EQ(check({small_recipe(overrides), world, json}, out), ExitCode::kOk);
  return out.str();
}

TEST(Check, ChoosesTheMostExpertRanksThatDivideRanksAndUnits) {
  const auto chosen = [](std::optional<int64_t> world, std::vector<std::string> overrides) {
    overrides.emplace_back("parallel.expert_ranks=auto");
    return check_recipe(small_recipe(overrides), config::UnsetVariable::kRefuse, world)
        .loaded.options.parallel.expert_ranks;
  };
  EXPECT_EQ(chosen(std::nullopt, {}), 1);
  EXPECT_EQ(chosen(4, {}), 2);
  EXPECT_EQ(chosen(5, {}), 1);
  EXPECT_EQ(chosen(12, {}), 6);
  EXPECT_EQ(chosen(4, {"parallel.uneven=true"}), 4);
  EXPECT_EQ(chosen(12, {"parallel.ranks_per_node=4"}), 2);
  EXPECT_EQ(chosen(4, {"model.sparse_blocks=0"}), 1) << "nothing is spread";
  const auto json = nlohmann::json::parse(checked({"parallel.expert_ranks=auto"}, 12, true));
  EXPECT_EQ(json["expert_ranks"], 6);
}

TEST(Check, EndsWithWhatThisMachineLacks) {
  EXPECT_THAT(checked({}, 1), EndsWith("\ngood\n"));
  EXPECT_EQ(nlohmann::json::parse(checked({}, 1, true))["ready"], true);
  const std::vector<std::string> missing{"model.init_from=no/run"};
  EXPECT_THAT(checked(missing, 1),
              ContainsRegex("\nthe recipe is good, but cannot run here yet: "
                            "model.init_from: no/run: no such file or folder in the .*\n$"));
  const auto json = nlohmann::json::parse(checked(missing, 1, true));
  EXPECT_EQ(json["ready"], false);
  EXPECT_EQ(json["obstacles"].size(), 1u);
}

TEST(Check, TellsWhetherThisMachineHasTheDevice) {
  const auto told = [](const std::string& device) { return checked({"run.device=" + device}, 1); };
  const std::string absence = cuda_absence();
  EXPECT_THAT(told("cuda"), HasSubstr("device      cuda\n"));
  EXPECT_THAT(told("cuda"),
              EndsWith(absence.empty()
                           ? "\ngood\n"
                           : "\nthe recipe is good, but cannot run here yet: " + absence + "\n"));
  EXPECT_THAT(told("auto"), HasSubstr("device      auto: decided where training starts"));
  EXPECT_THAT(told("auto"), EndsWith("\ngood\n"));
  EXPECT_THAT(told("cpu"), AllOf(HasSubstr("device      cpu\n"), EndsWith("\ngood\n")));
}

TEST(Check, EndsWithTheMemoryThatIsMissing) {
  // Their weights and batches alone are more than any machine has.
  std::vector<std::string> large{"train.batch=8000000", "model.width=2048"};
  EXPECT_THAT(checked(large, 1'000'000),
              ContainsRegex("cannot run here yet: too little memory, .* available for 1000000"));
  large.emplace_back("run.memory_check=false");
  EXPECT_THAT(checked(large, 1'000'000), EndsWith("\ngood\n"));
}

}  // namespace
}  // namespace shoal
