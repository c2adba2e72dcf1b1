// A training step of GPT-2, dense or with experts, beside the same step in Python PyTorch, in
// turns.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/machine.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "benchmarks/support/tensor_file.h"
#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "models/backbones/gpt2.h"
#include "moe/losses/balance_loss.h"
#include "runtime/data/loader/loader.h"
#include "runtime/optim/adamw.h"
#include "runtime/options/config_reader.h"

// S tokens of a sample  V vocabulary
namespace shoal::bench::lm_step_bench {
namespace {

constexpr int64_t kStepsPerTurn = 2, kWarmUpTurns = 5;

struct Arguments {
  std::string recipe = "configs/gpt2/tiny_wikitext2_bytes.yaml";
  std::string python = "python3";
  std::vector<std::string> overrides;
  int64_t threads = 2;
  int64_t rounds = 0;
};

/// One batch of tokens, the same in each step, as both sides train on it.
class StoredTokens final : public SampleSet {
 public:
  StoredTokens(const DataShape& shape, int64_t size) : shape_(shape), size_(size) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample;
    for (int64_t i = 0; i <= shape_.sequence; ++i) {
      const int64_t token = (index * 7919 + i * i * 31 + i) % shape_.vocabulary;
      if (i < shape_.sequence) sample.token_S.push_back(token);
      if (i > 0) sample.token_label_S.push_back(token);
    }
    return sample;
  }

 private:
  DataShape shape_;
  int64_t size_;
};

/// The factor of Switch's balance loss, the one that the peer has; 0 without experts.
double balance_weight(const Gpt2::Options& model) {
  if (!model.feed_forward.moe) return 0.0;
  const auto& losses = model.feed_forward.moe->losses.value();
  if (losses.size() != 1 || losses.front().name() != "switch") {
    throw std::runtime_error("the peer's experts have one balance loss, switch");
  }
  return Registry<BalanceLoss>::create(losses.front(), {})->weight();
}

/// What the peer needs of the recipe, with the weights and the batch in `file`.
nlohmann::json describe(const Recipe& recipe, const Session& session, const OpenSplit& data,
                        const RankGrid& grid, TensorFile& file) {
  const auto& model = recipe.model.backbone.options<Gpt2>();
  if (recipe.optimizer.name() != "adamw") {
    throw std::runtime_error(
        fmt::format("optimizer: {}, the peer's is adamw", recipe.optimizer.name()));
  }
  const auto& adamw = recipe.optimizer.options<AdamW>();
  const BatchMaker maker(*data.samples, loader_settings(recipe, data, grid), false);
  const Batch batch = maker.make({0, recipe.train.batch});
  file.add("token", batch.token_bS);
  file.add("label", batch.token_label_bS);
  for (const Parameter& parameter : session.parameters()) {
    file.add(parameter.name, parameter.tensor);
  }
  return {{"file", file.finish()},
          {"depth", model.depth},
          {"heads", model.heads},
          {"balance_weight", balance_weight(model)},
          {"betas", adamw.betas},
          {"eps", adamw.eps},
          {"weight_decay", adamw.weight_decay},
          {"clip_norm", recipe.train.clip_norm}};
}

void require_equal(const std::string& form, double loss, double own) {
  if (std::abs(loss - own) < 1e-5 * own) return;
  throw std::runtime_error(
      fmt::format("Python's {} makes a loss of {}, shoal of {}", form, loss, own));
}

void report(const std::vector<Timing>& timings, int64_t tokens, Report& out) {
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    std::printf("%-18s %8.1f ms per step, %7.0f tokens/s, %.3f of shoal's time\n",
                timing.name.c_str(), timing.median_us / 1e3,
                static_cast<double>(tokens) / timing.median_us * 1e6, ratio);
    out.add({{"contender", timing.name}, {"step_us", timing.median_us}, {"over_shoal", ratio}});
  }
}

void measure(const Arguments& arguments, Report& out) {
  set_up(arguments.threads, out);
  const Recipe recipe = config::load_options<Recipe>({arguments.recipe, arguments.overrides, {}},
                                                     config::UnsetVariable::kKeep)
                            .options;
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const std::shared_ptr<const DataSource> source = make_source(recipe);
  const DataShape shape = source->shape();
  const OpenSplit data{source, std::make_unique<StoredTokens>(shape, recipe.train.batch)};
  Session session(recipe, build_model(recipe, data.source->shape(), {&grid, grid.device}), data,
                  grid);
  const bool is_sparse = recipe.model.backbone.options<Gpt2>().feed_forward.moe.has_value();
  TensorFile file;
  nlohmann::json question = describe(recipe, session, data, grid, file);
  std::vector<TimedContender> contenders{
      {"shoal", [&session] {
         return 1e6 / kStepsPerTurn * seconds_of([&] { session.step({}); }, kStepsPerTurn);
       }}};
  const auto peer = PeerProcess::start(arguments.python, "lm_step.py");
  const StepOutcome first = session.step({});
  const double own_loss = first.loss.item<double>();
  const double loss_after_step = session.step({}).loss.item<double>();
  question["lr"] = first.lr;  // of the schedule
  if (peer != nullptr) {
    peer->ask({{"threads", arguments.threads}});
    require_equal("model", peer->ask(question).get<double>(), own_loss);
    require_equal("model after one step", peer->ask("step").get<double>(), loss_after_step);
    peer->ask(question);  // anew, so that its forms are compared before a step
    const std::vector<std::string> forms = is_sparse
                                               ? std::vector<std::string>{"loop", "grouped_mm"}
                                               : std::vector<std::string>{"loop"};
    for (const std::string& form : forms) {
      if (is_sparse) require_equal(form, peer->ask({{"form", form}}).get<double>(), own_loss);
      contenders.push_back({is_sparse ? "python_" + form : "python", [&peer, form, is_sparse] {
                              if (is_sparse) peer->ask({{"form", form}});
                              return peer->ask(kStepsPerTurn).get<double>();
                            }});
    }
  }
  out.note("recipe", arguments.recipe);
  report(take_turns(contenders, arguments.rounds, kWarmUpTurns),
         recipe.train.batch * shape.sequence, out);
  out.note("peak_bytes", peak_bytes());
  std::printf("most memory held: shoal %.0f MiB", static_cast<double>(peak_bytes()) / (1 << 20));
  if (peer != nullptr) {
    const auto bytes = peer->ask("peak").get<int64_t>();
    out.note("python_peak_bytes", bytes);
    std::printf(", Python %.0f MiB", static_cast<double>(bytes) / (1 << 20));
  }
  std::printf("\n");
}

int run(int argc, char** argv) {
  Program program("lm_step",
                  "A training step of a recipe of GPT-2 (forward, backward, clipping, optimizer; "
                  "tokens from memory) beside the same model in Python PyTorch eager, from equal "
                  "weights, on equal tokens and threads.",
                  15);
  Arguments arguments;
  program.add("recipe", arguments.recipe, "of a GPT-2");
  program.add("overrides", arguments.overrides, "key=value");
  program.add("--python", arguments.python, "an interpreter that has PyTorch 2.11");
  program.add("--threads", arguments.threads, "of each side");
  return program.run(argc, argv, [&](Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

const Benchmark kBenchmark("lm_step", run);

}  // namespace
}  // namespace shoal::bench::lm_step_bench
