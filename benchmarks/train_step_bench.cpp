// A training step of Shoal beside the same step in Python PyTorch, in turns.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/peer_model.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/stored_images.h"
#include "launch/job/launch_info.h"
#include "launch/job/rank_devices.h"
#include "launch/train/session.h"
#include "parallel/comm/communicator.h"
#include "runtime/device/tensor_memory.h"

namespace shoal {
namespace {

constexpr int64_t kStepsPerTurn = 2, kGpuStepsPerTurn = 10;
// Until the routers share the rows out about evenly, as they do through most of a training.
constexpr int64_t kWarmUpTurns = 30;

struct Arguments {
  std::string recipe = "configs/sparse_mlp/tiny_cifar10.yaml";
  std::string python = "python3";
  std::string device = "cpu";
  std::vector<int64_t> peer_threads = {1, 2};
  std::vector<std::string> overrides;
  int64_t rounds = 0;
};

bool is_under_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

/// A barrier that leaves the cores to whoever works meanwhile.
void sleep_until_all_arrive() {
  if (!is_under_mpi()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int arrived = 0; arrived == 0;) {
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  MPI_Barrier(MPI_COMM_WORLD);  // the sleepers wake up to 5 ms apart
}

int64_t steps_per_turn(const c10::Device& device) {
  return device.is_cpu() ? kStepsPerTurn : kGpuStepsPerTurn;
}

double us_a_step(Session& session) {
  const c10::Device device = session.grid().device;
  return bench::us_of_calls([&] { session.step({}); }, steps_per_turn(device), device);
}

using Peers = std::vector<std::unique_ptr<bench::PeerProcess>>;

/// One peer for each number of threads. Throws unless its model has as many parameters.
void add_peers(const Arguments& arguments, const Recipe& recipe, const Session& own, Peers& peers,
               std::vector<bench::TimedContender>& contenders) {
  const c10::Device device = own.grid().device;
  nlohmann::json model = bench::peer_model(recipe);
  model["device"] = device.str();
  for (const int64_t threads : arguments.peer_threads) {
    auto peer = bench::PeerProcess::start(arguments.python, "train_step.py");
    if (peer == nullptr) return;
    peer->ask({{"threads", threads}});
    const int64_t peer_count = peer->ask(model).get<int64_t>();
    const int64_t own_count = count_elements(own.parameters());
    if (peer_count != own_count) {
      throw std::runtime_error(fmt::format("the Python model has {} parameters, the recipe's {}",
                                           peer_count, own_count));
    }
    contenders.push_back({fmt::format("python_{}_threads", threads),
                          [peer = peer.get(), steps = steps_per_turn(device)] {
                            return peer->ask(steps).get<double>();
                          }});
    peers.push_back(std::move(peer));
  }
}

void report(const std::vector<bench::Timing>& timings, const Recipe& recipe, bench::Report& out) {
  for (const bench::Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    std::printf("%-18s %8.1f ms a step, %6.0f images/s, %.2f of shoal's time\n",
                timing.name.c_str(), timing.median_us / 1e3,
                static_cast<double>(recipe.train.batch) / timing.median_us * 1e6, ratio);
    out.add({{"contender", timing.name}, {"step_us", timing.median_us}, {"over_shoal", ratio}});
  }
}

RankGrid make_grid(const Recipe& recipe, std::unique_ptr<Communicator> world,
                   const c10::Device& device, std::unique_ptr<Communicator> gpu_world = nullptr) {
  const int64_t expert_ranks = std::min(recipe.parallel.expert_ranks, world->size());
  RankGrid grid = make_rank_grid(std::move(world), expert_ranks, 0, std::move(gpu_world));
  grid.device = device;
  return grid;
}

/// The recipe; a run.device of its overrides comes before --device.
LoadedRecipe load(const Arguments& arguments) {
  std::vector<std::string> overrides{"run.device=" + arguments.device};
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  return config::load_options<Recipe>({arguments.recipe, overrides, {}},
                                      config::UnsetVariable::kKeep);
}

/// Collective: ranks step together; what rank 0 does alone the others sleep through.
void measure(const Arguments& arguments, bench::Report& out) {
  const LoadedRecipe loaded = load(arguments);
  const Recipe& recipe = loaded.options;
  recycle_tensor_memory();
  const std::unique_ptr<Communicator> guard =
      is_under_mpi() ? make_mpi_communicator() : make_self_communicator();
  RankDevices devices = bind_ranks(recipe, read_launch_info(environment_variable), *guard);
  const c10::Device device = devices.own.device;
  RankGrid grid =
      make_grid(recipe, guard->split(0, guard->rank()), device, std::move(devices.gpu_world));
  RankGrid own_grid = make_grid(recipe, make_self_communicator(), device);
  const std::shared_ptr<const DataSource> source = make_source(recipe);
  const DataShape shape = source->shape();
  const OpenSplit images{source,
                         std::make_unique<bench::StoredImages>(shape.image.value(), shape.classes)};
  Session ranks(recipe, images, grid);
  std::vector<bench::TimedContender> contenders = {{"shoal", [&ranks] {
                                                      sleep_until_all_arrive();
                                                      return us_a_step(ranks);
                                                    }}};
  std::unique_ptr<Session> alone;
  Peers peers;
  if (grid.world->rank() == 0) {
    alone = std::make_unique<Session>(recipe, images, own_grid);
    std::printf("shoal: %ld parameters\n", static_cast<long>(count_elements(alone->parameters())));
    if (grid.world->size() > 1) {
      contenders.push_back({"shoal_one_rank", [&alone] { return us_a_step(*alone); }});
    }
    add_peers(arguments, recipe, *alone, peers, contenders);
  }
  const auto timings = bench::take_turns(contenders, arguments.rounds, kWarmUpTurns);
  if (grid.world->rank() != 0) return;
  out.note("recipe", arguments.recipe);
  out.note("device", device.str());
  out.note("ranks", grid.world->size());
  out.note("threads_per_rank", at::get_num_threads());
  report(timings, recipe, out);
}

int run(int argc, char** argv) {
  bench::Program program(
      "train_step",
      "A training step of a recipe of Sparse-MLP or ViT (forward, backward, gradient sums, "
      "clipping, optimizer; data from memory) beside the same model in Python PyTorch eager; under "
      "mpirun also beside one rank. Threads of a rank: OMP_NUM_THREADS.",
      20);
  Arguments arguments;
  program.add("recipe", arguments.recipe, "of a Sparse-MLP or ViT");
  program.add("overrides", arguments.overrides, "key=value");
  program.add("--device", arguments.device, "cpu or cuda");
  program.add("--python", arguments.python, "an interpreter that has PyTorch 2.11");
  program.add("--peer-threads", arguments.peer_threads, "threads of the Python peers");
  return program.run(argc, argv, [&](bench::Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
