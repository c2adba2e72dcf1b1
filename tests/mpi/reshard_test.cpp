#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "tests/support/train_run.h"

/// Checkpoints of a model that move from grid to grid, all by one start of four ranks, of which
/// each grid takes the first. Driven by tests/cli/reshard.sh.
namespace shoal {
namespace {

struct Shape {
  int64_t ranks, expert_ranks;
};

// Every number of ranks from every other.
const std::vector<Shape> kEveryPair{{4, 4}, {1, 1}, {2, 2}, {3, 3}, {1, 1}, {4, 2}, {2, 1},
                                    {4, 4}, {3, 3}, {2, 2}, {1, 1}, {3, 3}, {4, 4}, {1, 1}};

struct MovedModel {
  std::string name;
  std::vector<std::string> overrides;
  std::vector<Shape> shapes = kEveryPair;
  friend std::ostream& operator<<(std::ostream& out, const MovedModel& model) {
    return out << model.name;
  }
};

std::vector<MovedModel> moved_models() {
  return {
      {"Denoiser",
       {"train.average=0.9", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}",
        "task={name: denoise}",
        "model={backbone: adaptive_attention, patch: 4, width: 16, depth: 1, heads: 2, attention: "
        "{mixing: hard, soft_steps: 8, experts: [{k: 3}, {share: 0.5}, {candidates: {from: window, "
        "window: 3}}, {}]}}"}},
      {"Nexus",
       {"parallel.placement=by_cost",
        "model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 32, nexus: "
        "{experts: {count: 3}, memory: {count: 2, keys: 8, k: 2}, slots: 2}}"}},
      {"Sparse",
       {"sparsity={density: 0.4, rule: {name: set, every: 2step, until: 100%}, permutation: {name: "
        "learned, until: 12step}}"}},
      {"Switches",
       {"sparsity={density: 0.4, layers: [experts], rule: {name: set, every: 2step, until: 100%}, "
        "permutation: {name: benes, near: random, until: 12step}}"}},
      {"Moco",
       {"train.accumulate=1", "task={name: moco_v3, hidden: 32, out: 16}"},
       {{4, 4}, {1, 1}, {3, 3}, {2, 2}, {4, 2}, {1, 1}}},
  };
}

/// The recipe that the script names.
std::string recipe_text() {
  const char* path = std::getenv("RESHARD_RECIPE");
  TORCH_CHECK(path != nullptr, "RESHARD_RECIPE names no recipe");
  std::ifstream file(path);
  return (std::ostringstream() << file.rdbuf()).str();
}

/// Until all are here. Ranks that wait leave the cores to those that train.
void meet(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int is_over = 0; is_over == 0;) {
    MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class ReshardCli : public ::testing::TestWithParam<MovedModel> {};

TEST_P(ReshardCli, LoadsOnEveryGridWhatAnotherSaved) {
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  const std::string folder = GetParam().name;
  const StopSignals signals;
  int64_t steps = 5;
  bool sharded = true;
  for (const auto& [ranks, expert_ranks] : GetParam().shapes) {
    SCOPED_TRACE(fmt::format("on {} ranks, {} of them share the experts", ranks, expert_ranks));
    // A communicator of its own: a rank that sat out has not made the calls of the others.
    const auto world = make_mpi_communicator();
    ASSERT_EQ(world->size(), 4);
    const bool takes_part = world->rank() < ranks;
    auto group = world->split(takes_part ? 0 : 1, world->rank());
    if (takes_part) {
      std::vector<std::string> overrides = GetParam().overrides;
      for (const std::string& more :
           {fmt::format("parallel.expert_ranks={}", expert_ranks),
            std::string("parallel.uneven=true"), fmt::format("run.stop_after={}step", steps),
            fmt::format("parallel.shard_optimizer={}", steps == 1 && sharded)}) {
        overrides.push_back(more);
      }
      const Recipe recipe =
          config::load_options_text<Recipe>(recipe_text(), "recipe", {"", overrides, nullptr})
              .options;
      const std::string saved =
          steps == 1 ? content_digest(CheckpointReader(resolve_checkpoint(folder))) : "";
      group->barrier();
      RankGrid grid = make_rank_grid(std::move(group), expert_ranks);
      const testing::RunEnd end = testing::train_run(recipe, folder, grid, signals);
      if (steps == 1) {
        EXPECT_EQ(end.loaded, saved);
      }
    }
    meet(all);
    steps = 1;
    sharded = !sharded;
  }
  MPI_Comm_free(&all);
}

INSTANTIATE_TEST_SUITE_P(Models, ReshardCli, ::testing::ValuesIn(moved_models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal
