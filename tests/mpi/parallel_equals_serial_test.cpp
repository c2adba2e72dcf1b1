#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/routing_matrix.h"
#include "tests/support/speed_cases.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

constexpr int64_t kSteps = 5;

/// Serial runs that parallel ones are compared with. The ranks make those of neighbouring cases at
/// once, one each; the rank that has made a case's compares.
class SerialRuns {
 public:
  template <class Cases>
  SerialRuns(const Cases& cases, std::vector<std::string> Cases::value_type::*what) {
    for (const auto& test : cases) {
      place_of_[test.name] = what_.size();
      what_.push_back(test.*what);
    }
  }
  /// The rank that compares.
  int64_t keeper_of(const std::string& name, int64_t ranks) const {
    return static_cast<int64_t>(place_of_.at(name)) % ranks;
  }
  /// What this rank has made beside the case of this name: that case's on its keeper.
  const TrainingTrace& own_beside(const std::string& name, const Communicator& world) {
    const auto ranks = static_cast<size_t>(world.size());
    const size_t first = place_of_.at(name) / ranks * ranks;
    const auto [found, is_new] = traces_.try_emplace(first);
    const size_t own = std::min(first + static_cast<size_t>(world.rank()), what_.size() - 1);
    if (is_new) {
      found->second =
          train_and_trace(kEqualityRecipe, what_[own], kSteps, make_self_communicator());
    }
    return found->second;
  }

 private:
  std::vector<std::vector<std::string>> what_;
  std::map<std::string, size_t> place_of_;
  std::map<size_t, TrainingTrace> traces_;
};

/// Trains a case as `overrides` say on every grid of this world, and compares with its serial run.
void expect_equal_on_every_grid(SerialRuns& serial, const std::string& name,
                                const std::vector<std::string>& overrides,
                                const std::vector<std::string>& noise_weights) {
  const auto world = make_mpi_communicator();
  const int64_t ranks = world->size(), keeper = serial.keeper_of(name, ranks);
  const TrainingTrace& own = serial.own_beside(name, *world);
  for (int64_t expert_ranks = 1; expert_ranks <= ranks; ++expert_ranks) {
    if (ranks % expert_ranks != 0) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {}", expert_ranks, ranks / expert_ranks));
    const std::string grid = fmt::format("parallel.expert_ranks={}", expert_ranks);
    // A trace is whole on the first rank.
    const TrainingTrace actual =
        train_and_trace(kEqualityRecipe, joined(overrides, {grid}), kSteps,
                        world->split(0, (world->rank() + ranks - keeper) % ranks));
    if (world->rank() != keeper) continue;
    EXPECT_THAT(differences(own, actual, 1e-12, noise_weights), ::testing::IsEmpty());
  }
}

std::vector<EqualityCase> all_cases() {
  std::vector<EqualityCase> cases = equality_cases();
  for (const EqualityCase& test : routing_selection()) cases.push_back(test);
  return cases;
}

class ParallelEqualsSerialMpi : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(ParallelEqualsSerialMpi, OnEveryGridOfThisWorld) {
  static SerialRuns serial(all_cases(), &EqualityCase::overrides);
  const EqualityCase& test = GetParam();
  expect_equal_on_every_grid(serial, test.name, test.overrides, test.noise_weights);
}

class SpeedSwitchesMpi : public ::testing::TestWithParam<SpeedCase> {};

TEST_P(SpeedSwitchesMpi, ChangeNoResult) {
  static SerialRuns serial(speed_selection(), &SpeedCase::what);
  const bool has_pairs = make_mpi_communicator()->size() % 2 == 0;
  const Overrides nodes = has_pairs ? Overrides{} : Overrides{"parallel.ranks_per_node=1"};
  const SpeedCase& test = GetParam();
  expect_equal_on_every_grid(serial, test.name, joined(joined(test.what, test.how), nodes),
                             test.noise_weights);
}

INSTANTIATE_TEST_SUITE_P(Cases, SpeedSwitchesMpi, ::testing::ValuesIn(speed_selection()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Cases, ParallelEqualsSerialMpi, ::testing::ValuesIn(equality_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Routing, ParallelEqualsSerialMpi, ::testing::ValuesIn(routing_selection()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::testing
