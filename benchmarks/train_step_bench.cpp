// A training step of Shoal beside the same step in Python PyTorch, in turns.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/peer_model.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/stored_images.h"
#include "benchmarks/support/tensor_file.h"
#include "launch/data/recipe_source.h"
#include "launch/job/launch_info.h"
#include "launch/job/rank_devices.h"
#include "launch/model/model_weights.h"
#include "launch/step/session.h"
#include "parallel/comm/communicator.h"
#include "runtime/device/tensor_memory.h"

namespace shoal::bench::train_step_bench {
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

nlohmann::json num_parameters(const Session& session) {
  int64_t trained = 0;
  for (const Parameter& parameter : session.parameters()) {
    if (parameter.tensor.requires_grad()) trained += parameter.tensor.numel();
  }
  return {{"trained", trained}, {"others", count_elements(session.parameters()) - trained}};
}

bool freezes_stem(const Session& session) {
  return std::ranges::any_of(session.parameters(), [](const Parameter& parameter) {
    return parameter.name == "backbone.stem.weight" && !parameter.tensor.requires_grad();
  });
}

/// The first batch and the weights that its loss is made of.
nlohmann::json write_batch(const LoaderSettings& settings, const SampleSet& images,
                           const Session& session, bench::TensorFile& file) {
  file.add("image", BatchMaker(images, settings, true).make({0, settings.cut.batch}).image_bVCHW);
  for (const Parameter& parameter : session.parameters()) {
    if (!parameter.name.starts_with("key_")) file.add(parameter.name, parameter.tensor);
  }
  return file.finish();
}

/// What the session's peers are asked first and have to answer.
struct PeerQuestions {
  std::string script = "train_step.py";
  nlohmann::json model, num_parameters;
  std::optional<double> loss = {};  ///< of the first batch; nothing where it has noise
};

/// Questions for a peer implementation; for MoCo v3 also the loss, which takes a step of the
/// session.
PeerQuestions questions_about(const Recipe& recipe, const OpenSplit& images, Session& session,
                              bench::TensorFile& file) {
  PeerQuestions questions{.model = bench::peer_model(recipe),
                          .num_parameters = num_parameters(session)};
  questions.model["device"] = session.grid().device.str();
  questions.model["freezes_stem"] = freezes_stem(session);
  if (!bench::trains_moco(recipe)) return questions;
  questions.script = "moco_step.py";
  LoaderSettings settings = loader_settings(recipe, images, session.grid());
  settings.views = session.task().views();
  questions.model["file"] = write_batch(settings, *images.samples, session, file);
  const double loss = session.step({}).loss.item<double>();
  if (session.model().stages.empty()) questions.loss = loss;
  return questions;
}

/// Throws unless the peer has as many parameters and makes the same of the first batch.
void check_peer(bench::PeerProcess& peer, const PeerQuestions& questions) {
  const nlohmann::json found = peer.ask(questions.model);
  if (found != questions.num_parameters) {
    throw std::runtime_error(fmt::format("parameters of the Python model: {}, the recipe's: {}",
                                         found.dump(), questions.num_parameters.dump()));
  }
  if (!questions.loss) return;
  const auto loss = peer.ask("loss").get<double>();
  if (std::abs(loss - *questions.loss) < 1e-5 * *questions.loss) return;
  throw std::runtime_error(
      fmt::format("the loss of the Python model is {}, the recipe's {}", loss, *questions.loss));
}

/// One peer for each number of threads.
void add_peers(const Arguments& arguments, const PeerQuestions& questions, int64_t steps,
               Peers& peers, std::vector<bench::TimedContender>& contenders) {
  for (const int64_t threads : arguments.peer_threads) {
    auto peer = bench::PeerProcess::start(arguments.python, questions.script);
    if (peer == nullptr) return;
    peer->ask({{"threads", threads}});
    check_peer(*peer, questions);
    contenders.push_back({fmt::format("python_{}_threads", threads),
                          [peer = peer.get(), steps] { return peer->ask(steps).get<double>(); }});
    peers.push_back(std::move(peer));
  }
}

void report(const std::vector<bench::Timing>& timings, const Recipe& recipe, bench::Report& out) {
  for (const bench::Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    std::printf("%-18s %8.1f ms per step, %6.0f images/s, %.2f of shoal's time\n",
                timing.name.c_str(), timing.median_us / 1e3,
                static_cast<double>(recipe.train.batch) / timing.median_us * 1e6, ratio);
    out.add({{"contender", timing.name}, {"step_us", timing.median_us}, {"over_shoal", ratio}});
  }
}

RankGrid make_grid(const Recipe& recipe, std::unique_ptr<Communicator> world,
                   const c10::Device& device, std::unique_ptr<Communicator> gpu_world = nullptr) {
  const int64_t expert_ranks =
      std::min(recipe.parallel.expert_ranks.value_or(world->size()), world->size());
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
  const OpenSplit images =
      open_split(std::make_shared<bench::StoredSource>(make_source(recipe)), Split::kTrain);
  const DataShape shape = images.source->shape();
  Session ranks(recipe, build_model(recipe, shape, {&grid, grid.device}), images, grid);
  std::vector<bench::TimedContender> contenders = {{"shoal", [&ranks] {
                                                      sleep_until_all_arrive();
                                                      return us_a_step(ranks);
                                                    }}};
  std::unique_ptr<Session> alone;
  bench::TensorFile file;
  Peers peers;
  if (grid.world->rank() == 0) {
    alone = std::make_unique<Session>(
        recipe, build_model(recipe, shape, {&own_grid, own_grid.device}), images, own_grid);
    std::printf("shoal: parameters %s\n", num_parameters(*alone).dump().c_str());
    if (grid.world->size() > 1) {
      contenders.push_back({"shoal_one_rank", [&alone] { return us_a_step(*alone); }});
    }
    add_peers(arguments, questions_about(recipe, images, *alone, file), steps_per_turn(device),
              peers, contenders);
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
      "A training step of a recipe of Mixer, Sparse-MLP or ViT, as a classifier or by MoCo v3 "
      "(forward, backward, gradient sums, clipping, optimizer; data from memory), beside the same "
      "model in Python PyTorch eager; under mpirun also beside one rank. Threads of a rank: "
      "OMP_NUM_THREADS.",
      20);
  Arguments arguments;
  program.add("recipe", arguments.recipe, "of a Mixer, Sparse-MLP or ViT");
  program.add("overrides", arguments.overrides, "key=value");
  program.add("--device", arguments.device, "cpu or cuda");
  program.add("--python", arguments.python, "an interpreter that has PyTorch 2.11");
  program.add("--peer-threads", arguments.peer_threads, "threads of the Python peers");
  return program.run(argc, argv, [&](bench::Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

const Benchmark kBenchmark("train_step", run);

}  // namespace
}  // namespace shoal::bench::train_step_bench
