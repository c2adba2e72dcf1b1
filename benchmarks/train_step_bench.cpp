// A whole training step (forward, backward, gradient sums, clipping, optimizer) of a Sparse-MLP
// recipe, beside the same model in Python PyTorch eager, in turns in one run; data comes from
// memory.
//
//   train_step_bench [RECIPE] [--peer-threads N]... [--rounds N] [--python PROGRAM] [--json FILE]
//                    [key=value...]
//   mpirun -np N train_step_bench ...     and beside one rank of the same program
//
// Threads of a rank: OMP_NUM_THREADS. Peers run on rank 0's machine while all ranks sleep.
#include <ATen/Parallel.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/support/peer_process.h"
#include "launch/session.h"
#include "models/backbones/sparse_mlp.h"
#include "moe/expert_bank.h"
#include "moe/routers/importance_score.h"
#include "moe/routers/top_k.h"
#include "parallel/communicator.h"
#include "runtime/tensor_memory.h"

namespace shoal {
namespace {

struct Arguments {
  std::string recipe = "configs/sparse_mlp/tiny_cifar10.yaml";
  std::string python = "python3";
  std::string json;
  std::vector<int64_t> peer_threads;
  std::vector<std::string> overrides;
  int64_t rounds = 20;
  int64_t steps_per_round = 2;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (word == "--python") {
      arguments.python = value();
    } else if (word == "--json") {
      arguments.json = value();
    } else if (word == "--rounds") {
      arguments.rounds = std::stoll(value());
    } else if (word == "--peer-threads") {
      arguments.peer_threads.push_back(std::stoll(value()));
    } else if (word.find('=') != std::string::npos) {
      arguments.overrides.push_back(word);
    } else {
      arguments.recipe = word;
    }
  }
  if (arguments.peer_threads.empty()) arguments.peer_threads = {1, 2};
  return arguments;
}

/// Images in memory, so that steps are timed and not the drawing of images.
class StoredImages final : public SampleSet {
 public:
  StoredImages(const ImageShape& shape, int64_t classes) {
    for (int64_t i = 0; i < 1024; ++i) {
      Sample sample;
      sample.shape = shape;
      sample.label = i % classes;
      for (int64_t j = 0; j < shape.bytes(); ++j) {
        sample.pixel_CHW.push_back(static_cast<uint8_t>((i * 7919 + j * 104729) >> 3));
      }
      samples_.push_back(std::move(sample));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  Sample read(int64_t index) const override { return samples_[static_cast<size_t>(index)]; }

 private:
  std::vector<Sample> samples_;
};

nlohmann::json describe_moe(const MoeOptions& moe) {
  const auto& experts = moe.experts.options<ExpertBank>();
  const bool by_importance = moe.router.name() == "importance_score";
  const TopKOptions& top_k = by_importance ? moe.router.options<ImportanceScoreRouter>().top_k
                                           : moe.router.options<TopKRouter>();
  return {{"experts", experts.count},
          {"hidden", experts.hidden},
          {"k", top_k.k},
          {"drop", by_importance ? moe.router.options<ImportanceScoreRouter>().drop : 0.0},
          {"weight", 0.005}};
}

/// The model's sizes as benchmarks/peers/train_step.py reads them.
nlohmann::json describe(const Recipe& recipe) {
  const SparseMlp::Options& model = recipe.model.backbone.options<SparseMlp>();
  const ImageShape image = image_shape_of(recipe);
  const int64_t side = image.height / model.patch;
  return {{"batch", recipe.train.batch},
          {"group", recipe.train.group},
          {"clip_norm", recipe.train.clip_norm},
          {"image", image.height},
          {"classes", open_source(recipe)->num_classes()},
          {"lr", 1e-3},
          {"weight_decay", 0.05},
          {"label_smoothing", 0.1},
          {"patch", model.patch},
          {"width", model.width},
          {"token_hidden", model.token_hidden},
          {"channel_hidden", model.channel_hidden},
          {"dense_blocks", model.dense_blocks},
          {"sparse_blocks", model.sparse_blocks},
          {"sparse",
           {{"tokens", model.sparse.tokens.value_or(2 * side * side)},
            {"width", model.sparse.width.value_or(model.width / 2)},
            {"outer_residual", model.sparse.outer_residual},
            {"token_moe", describe_moe(model.sparse.token_moe)},
            {"channel_moe", describe_moe(model.sparse.channel_moe.value())}}}};
}

/// Microseconds a step, each round, by contender.
using Times = std::map<std::string, std::vector<double>>;

bool is_under_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

/// A barrier that leaves the cores to whoever works meanwhile.
void sleep_until_all_arrive() {
  if (!is_under_mpi()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int arrived = 0;;) {
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The contenders take turns; between turns all ranks meet.
class Race {
 public:
  Race(const Arguments& arguments, Session& ranks, Session* alone)
      : arguments_(arguments), ranks_(ranks), alone_(alone) {}

  void add_peer(int64_t threads, nlohmann::json model) {
    auto peer = std::make_unique<bench::PeerProcess>(
        std::vector<std::string>{arguments_.python, "benchmarks/peers/train_step.py"});
    model["threads"] = threads;
    const std::string answer = peer->ask(model.dump());
    std::printf("PyTorch eager, %ld threads: %s\n", static_cast<long>(threads), answer.c_str());
    peers_.emplace("peer_" + std::to_string(threads), std::move(peer));
  }

  /// Collective.
  Times run() {
    for (round_ = -2; round_ < arguments_.rounds; ++round_) {
      take_turn("shoal", [&] { return seconds_of(ranks_); });
      if (alone_ != nullptr) take_turn("shoal_one_rank", [&] { return seconds_of(*alone_); });
      for (auto& [name, peer] : peers_) {
        take_turn(name, [&] { return std::stod(peer->ask(std::to_string(steps()))); });
      }
      // Ranks without peers wait here for rank 0 to have had its turns.
      sleep_until_all_arrive();
    }
    return times_;
  }

 private:
  int64_t steps() const { return arguments_.steps_per_round; }
  double seconds_of(Session& session) const {
    return bench::seconds_of([&] { session.step({}); }, steps());
  }
  void take_turn(const std::string& name, const std::function<double()>& seconds) {
    const double us = seconds() * 1e6 / static_cast<double>(steps());
    if (round_ >= 0) times_[name].push_back(us);
  }

  const Arguments& arguments_;
  Session& ranks_;
  Session* alone_;
  std::map<std::string, std::unique_ptr<bench::PeerProcess>> peers_;
  int64_t round_ = 0;
  Times times_;
};

void report(const Times& times, const Recipe& recipe, bench::Report& out) {
  const double own = bench::median(times.at("shoal"));
  const auto images = static_cast<double>(recipe.train.batch);
  for (const auto& [name, turns] : times) {
    const double us = bench::median(turns);
    std::printf("%-16s %8.1f ms a step, %6.0f images/s, %.2f of shoal's time\n", name.c_str(),
                us / 1e3, images / us * 1e6, us / own);
    out.add({{"contender", name}, {"step_us", us}, {"time_over_shoal", us / own}});
  }
}

RankGrid make_grid(const Recipe& recipe, std::unique_ptr<Communicator> world) {
  const int64_t expert_ranks = std::min(recipe.parallel.expert_ranks, world->size());
  return make_rank_grid(std::move(world), expert_ranks);
}

int run(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const LoadedRecipe loaded = config::load_options<Recipe>(
      {arguments.recipe, arguments.overrides, {}}, config::UnsetVariable::kKeep);
  const Recipe& recipe = loaded.options;
  recycle_tensor_memory();
  RankGrid grid =
      make_grid(recipe, is_under_mpi() ? make_mpi_communicator() : make_self_communicator());
  RankGrid own_grid = make_grid(recipe, make_self_communicator());
  const bool is_first = grid.world->rank() == 0;
  const StoredImages images(image_shape_of(recipe), open_source(recipe)->num_classes());
  Session session(recipe, images, grid);
  std::unique_ptr<Session> alone;
  if (is_first && grid.world->size() > 1) {
    alone = std::make_unique<Session>(recipe, images, own_grid);
  }
  Race race(arguments, session, alone.get());
  if (is_first) {
    std::printf("shoal: %ld parameters\n",
                static_cast<long>(count_elements(Session(recipe, images, own_grid).parameters())));
    for (const int64_t threads : arguments.peer_threads) race.add_peer(threads, describe(recipe));
  }
  const Times times = race.run();
  if (!is_first) return 0;
  bench::Report out("train_step", argc, argv);
  out.note("recipe", arguments.recipe);
  out.note("ranks", grid.world->size());
  out.note("threads_per_rank", at::get_num_threads());
  report(times, recipe, out);
  out.write(arguments.json);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  try {
    return shoal::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_step_bench: %s\n", error.what());
    return 1;
  }
}
