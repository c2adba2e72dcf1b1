#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/routing_matrix.h"
#include "tests/support/speed_cases.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

/// Three steps, for what MPI adds shows in them and thread ranks compare all (tests/launch/train),
/// but for cases of which something changes later: masks, soft choices.
int64_t steps_of(const EqualityCase& test) {
  const bool changes_late = std::ranges::any_of(test.overrides, [](const std::string& text) {
    return text.find("sparsity") != std::string::npos || text.find("soft_") != std::string::npos;
  });
  return changes_late ? test.steps : std::min<int64_t>(test.steps, 3);
}

/// Cases with the serial runs that parallel ones are compared with. The ranks make those of
/// neighbouring cases at once, one each; the rank that has made a case's compares.
class SerialRuns {
 public:
  explicit SerialRuns(std::vector<EqualityCase> cases) : cases_(std::move(cases)) {}

  size_t place_of(const std::string& name) const {
    const auto found = std::ranges::find(cases_, name, &EqualityCase::name);
    return static_cast<size_t>(found - cases_.begin());
  }
  const EqualityCase& at(size_t place) const { return cases_.at(place); }
  /// What this rank has made where others made its neighbours'.
  const TrainingTrace& own_near(size_t place, const Communicator& world) {
    const auto ranks = static_cast<size_t>(world.size());
    const size_t first = place / ranks * ranks;
    const auto [found, is_new] = traces_.try_emplace(first);
    if (is_new) {
      const size_t own = std::min(first + static_cast<size_t>(world.rank()), cases_.size() - 1);
      found->second = train_and_trace(kEqualityRecipe, at(own).overrides, steps_of(at(own)),
                                      make_self_communicator());
    }
    return found->second;
  }

 private:
  std::vector<EqualityCase> cases_;
  std::map<size_t, TrainingTrace> traces_;
};

/// Trains a case, as `how` says, on every grid of this world, and compares with its serial run.
void expect_equal_on_every_grid(SerialRuns& serial, const std::string& name,
                                const std::vector<std::string>& how) {
  const auto world = make_mpi_communicator();
  const size_t place = serial.place_of(name);
  const EqualityCase& test = serial.at(place);
  const TrainingTrace& own = serial.own_near(place, *world);
  const int64_t ranks = world->size(), keeper = static_cast<int64_t>(place) % ranks;
  for (int64_t expert_ranks = 1; expert_ranks <= ranks; ++expert_ranks) {
    if (ranks % expert_ranks != 0) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {}", expert_ranks, ranks / expert_ranks));
    const std::string grid = fmt::format("parallel.expert_ranks={}", expert_ranks);
    // A trace is whole on the first rank.
    const TrainingTrace actual =
        train_and_trace(kEqualityRecipe, joined(joined(test.overrides, how), {grid}),
                        steps_of(test), world->split(0, (world->rank() + ranks - keeper) % ranks));
    if (world->rank() != keeper) continue;
    EXPECT_THAT(differences(own, actual, 1e-12, test.noise_weights), ::testing::IsEmpty());
  }
}

std::vector<EqualityCase> cases_without_switches() {
  std::vector<EqualityCase> cases = equality_cases();
  for (const EqualityCase& test : routing_selection()) cases.push_back(test);
  return cases;
}

std::vector<EqualityCase> cases_of_switches() {
  std::vector<EqualityCase> cases;
  for (const SpeedCase& test : speed_selection()) {
    cases.push_back({test.name, test.what, test.noise_weights});
  }
  return cases;
}

class ParallelEqualsSerialMpi : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(ParallelEqualsSerialMpi, OnEveryGridOfThisWorld) {
  static SerialRuns serial(cases_without_switches());
  expect_equal_on_every_grid(serial, GetParam().name, {});
}

class SpeedSwitchesMpi : public ::testing::TestWithParam<SpeedCase> {};

TEST_P(SpeedSwitchesMpi, ChangeNoResult) {
  static SerialRuns serial(cases_of_switches());
  const bool has_pairs = make_mpi_communicator()->size() % 2 == 0;
  const Overrides nodes = has_pairs ? Overrides{} : Overrides{"parallel.ranks_per_node=1"};
  expect_equal_on_every_grid(serial, GetParam().name, joined(GetParam().how, nodes));
}

INSTANTIATE_TEST_SUITE_P(Cases, SpeedSwitchesMpi, ::testing::ValuesIn(speed_selection()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Cases, ParallelEqualsSerialMpi, ::testing::ValuesIn(equality_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Routing, ParallelEqualsSerialMpi, ::testing::ValuesIn(routing_selection()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::testing
