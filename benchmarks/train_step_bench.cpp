// A whole training step (data, forward, backward, gradient sums, clipping, optimizer) of a recipe,
// beside the same model in Python PyTorch eager, in turns in one run.
//
// Usage: train_step_bench [RECIPE] [--peer-threads N]... [--rounds N] [--python PROGRAM]
//                         [--json FILE] [key=value...]
// Alone it runs with OMP_NUM_THREADS threads; under mpirun with one rank a process, where the peer
// waits and works on rank 0's side while the ranks wait for it at a barrier.

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
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

/// Seconds a step of Python PyTorch takes, and of this program, in turns.
struct Contest {
  std::vector<double> own_us;
  std::map<int64_t, std::vector<double>> peer_us;  ///< by the peer's threads
};

class Race {
 public:
  Race(const Arguments& arguments, const Recipe& recipe, Session& session)
      : arguments_(arguments), session_(session), world_(*session.grid().world) {
    if (world_.rank() != 0) return;
    nlohmann::json model = describe(recipe);
    for (const int64_t threads : arguments.peer_threads) {
      model["threads"] = threads;
      auto peer = std::make_unique<bench::PeerProcess>(
          std::vector<std::string>{arguments.python, "benchmarks/peers/train_step.py"});
      const std::string ready = peer->ask(model.dump());
      std::printf("peer with %ld threads: %s parameters\n", static_cast<long>(threads),
                  ready.substr(ready.find(' ') + 1).c_str());
      peers_.emplace(threads, std::move(peer));
    }
  }

  /// Collective: all ranks step together; while a peer works, they wait for rank 0.
  Contest run() {
    Contest contest;
    for (int64_t round = -2; round < arguments_.rounds; ++round) {
      const double own = own_round_us();
      if (round >= 0) contest.own_us.push_back(own);
      for (auto& [threads, peer] : peers_) {
        const double seconds = std::stod(peer->ask(std::to_string(arguments_.steps_per_round)));
        const double peer_us = seconds * 1e6 / static_cast<double>(arguments_.steps_per_round);
        if (round >= 0) contest.peer_us[threads].push_back(peer_us);
      }
    }
    return contest;
  }

 private:
  double own_round_us() {
    world_.barrier();
    const double seconds =
        bench::seconds_of([&] { session_.step({}); }, arguments_.steps_per_round);
    return seconds * 1e6 / static_cast<double>(arguments_.steps_per_round);
  }

  const Arguments& arguments_;
  Session& session_;
  Communicator& world_;
  std::map<int64_t, std::unique_ptr<bench::PeerProcess>> peers_;
};

void report(const Contest& contest, const Recipe& recipe, bench::Report& out,
            const std::string& json) {
  const auto images = static_cast<double>(recipe.train.batch);
  const double own = bench::median(contest.own_us);
  std::printf("shoal: %.1f ms a step, %.0f images/s\n", own / 1e3, images / own * 1e6);
  for (const auto& [threads, times] : contest.peer_us) {
    const double peer = bench::median(times);
    std::printf("PyTorch eager, %ld threads: %.1f ms, ratio %.2f\n", static_cast<long>(threads),
                peer / 1e3, peer / own);
    out.add({{"peer_threads", threads},
             {"shoal_us", own},
             {"peer_us", peer},
             {"ratio", peer / own},
             {"images_per_second", images / own * 1e6}});
  }
  out.write(json);
}

int run(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const LoadedRecipe loaded = config::load_options<Recipe>(
      {arguments.recipe, arguments.overrides, {}}, config::UnsetVariable::kKeep);
  const Recipe& recipe = loaded.options;
  recycle_tensor_memory();
  const bool is_mpi = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  auto world = is_mpi ? make_mpi_communicator() : make_self_communicator();
  const bool is_first = world->rank() == 0;
  const int64_t expert_ranks = std::min(recipe.parallel.expert_ranks, world->size());
  RankGrid grid = make_rank_grid(std::move(world), expert_ranks);
  const StoredImages images(image_shape_of(recipe), open_source(recipe)->num_classes());
  Session session(recipe, images, grid);
  const Contest contest = Race(arguments, recipe, session).run();
  if (!is_first) return 0;
  bench::Report out("train_step", argc, argv);
  out.note("recipe", arguments.recipe);
  out.note("ranks", grid.world->size());
  out.note("threads_per_rank", at::get_num_threads());
  report(contest, recipe, out, arguments.json);
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
