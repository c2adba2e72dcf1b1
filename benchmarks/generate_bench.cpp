// Greedy generation by GPT-2 beside Hugging Face's generate of the same weights, in turns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "benchmarks/support/tensor_file.h"
#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"
#include "models/backbones/gpt2.h"
#include "models/formats/weight_format.h"
#include "models/text_generation.h"
#include "runtime/options/config_reader.h"

// C width
namespace shoal::bench::generate_bench {
namespace {

constexpr int64_t kWarmUpTurns = 2;
/// How far below the highest logit the peer may find one of our tokens; logits are some tenths.
constexpr double kMostGap = 1e-3;

using Texts = std::vector<std::vector<int64_t>>;

struct Arguments {
  std::string recipe = "configs/gpt2/tiny_wikitext2_bytes.yaml";
  std::string python = "python3";
  std::vector<std::string> overrides;
  std::vector<int64_t> batches = {1, 8};
  int64_t prompt = 32;
  int64_t tokens = 128;
  int64_t threads = 2;
  int64_t rounds = 0;
};

/// Untrained weights repeat the last token: those of the blocks made so large that texts vary.
void enlarge(const BuiltModel& model, int64_t width, double init_std) {
  const torch::NoGradGuard no_grad;
  for (const Parameter& parameter : model.parameters) {
    const bool is_of_block = parameter.name.find(".blocks.") != std::string::npos;
    if (!is_of_block || parameter.tensor.dim() < 2) continue;
    parameter.tensor.mul_(2.0 / (init_std * std::sqrt(static_cast<double>(width))));
  }
}

/// The model as GPT2LMHeadModel takes it, with the weights in `file`.
nlohmann::json describe(const Recipe& recipe, const DataShape& shape, const BuiltModel& model,
                        TensorFile& file) {
  const Choice<Backbone>& backbone = recipe.model.backbone;
  const auto format = Registry<WeightFormat>::create(Choice<WeightFormat>("gpt2"), {});
  Mistakes mistakes;
  format->check(backbone, mistakes);
  mistakes.throw_if_any("transformers has no such GPT-2");
  for (const WeightName& name : format->names(backbone, recipe.task, shape)) {
    if (name.is_copy) continue;
    const auto own = std::find_if(model.parameters.begin(), model.parameters.end(),
                                  [&](const Parameter& p) { return p.name == name.ours; });
    TORCH_CHECK(own != model.parameters.end(), "the model has no ", name.ours);
    file.add(std::string(format->prefix()) + name.theirs,
             name.to_theirs(own->tensor.detach(), torch::kFloat32));
  }
  return {{"file", file.finish()},
          {"config", nlohmann::json::parse(format->config({backbone, recipe.task, shape}))}};
}

Texts make_prompts(int64_t batch, int64_t length, int64_t vocabulary) {
  Texts prompts(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < length; ++i) {
      prompts[static_cast<size_t>(b)].push_back((b * 7919 + i * i * 31 + i) % vocabulary);
    }
  }
  return prompts;
}

/// Prompts that go on: each of our tokens must be the likeliest by the peer's model, given those
/// before it. Texts of both are equal but where logits are, to rounding.
void compare(PeerProcess& peer, const Texts& prompts, const Texts& own, nlohmann::json& row) {
  Texts whole = prompts;
  for (size_t b = 0; b < own.size(); ++b) {
    whole[b].insert(whole[b].end(), own[b].begin(), own[b].end());
  }
  const auto theirs = peer.ask({{"generate", prompts}, {"tokens", own[0].size()}}).get<Texts>();
  const auto gap = peer.ask({{"gap", whole}, {"prompt", prompts[0].size()}}).get<double>();
  if (!(gap <= kMostGap)) {
    throw std::runtime_error(
        fmt::format("a token of shoal's has a logit of {} below the highest in Python", gap));
  }
  size_t equal = 0;
  for (size_t b = 0; b < own.size(); ++b) equal += own[b] == theirs.at(b) ? 1 : 0;
  row["equal_texts"] = equal;
  row["largest_gap"] = gap;
  std::printf(
      "  equal texts: %zu; in Python, logits of our tokens are at most %.1e below the highest\n",
      equal, gap);
}

void report(const std::vector<Timing>& timings, const nlohmann::json& facts, Report& out) {
  const double tokens = facts["batch"].get<double>() * facts["tokens"].get<double>();
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    std::printf("  %-14s %8.1f ms, %8.0f tokens/s, %.2f of shoal's time\n", timing.name.c_str(),
                timing.median_us / 1e3, tokens / timing.median_us * 1e6, ratio);
    nlohmann::json row = facts;
    row.update({{"contender", timing.name},
                {"generate_us", timing.median_us},
                {"tokens_per_second", tokens / timing.median_us * 1e6},
                {"over_shoal", ratio}});
    out.add(row);
  }
  std::fflush(stdout);
}

/// The peer with its versions noted; nullptr without a Python that has PyTorch and transformers.
std::unique_ptr<PeerProcess> start_peer(const Arguments& arguments, Report& out) {
  std::unique_ptr<PeerProcess> peer = PeerProcess::start(arguments.python, "generate.py");
  if (peer == nullptr) return nullptr;
  peer->ask({{"threads", arguments.threads}});
  const nlohmann::json versions = peer->ask("versions");
  if (versions.contains("absent")) {
    std::printf(
        "peers/generate.py: not run, '%s' has no transformers: %s (pip install transformers)\n",
        arguments.python.c_str(), versions["absent"].get<std::string>().c_str());
    return nullptr;
  }
  out.note("python", versions);
  return peer;
}

void measure_batch(const std::function<std::vector<GeneratedText>()>& generate,
                   const Texts& prompts, PeerProcess* peer, const Arguments& arguments,
                   Report& out) {
  std::vector<TimedContender> contenders{{"shoal", [&] { return us_of([&] { generate(); }); }}};
  Texts own;
  for (GeneratedText& text : generate()) own.push_back(std::move(text.tokens));
  nlohmann::json facts{
      {"batch", prompts.size()}, {"prompt", prompts[0].size()}, {"tokens", own[0].size()}};
  std::printf("batch %zu, prompts of %zu tokens, %zu new ones\n", prompts.size(), prompts[0].size(),
              own[0].size());
  if (peer != nullptr) {
    compare(*peer, prompts, own, facts);
    contenders.push_back({"transformers", [&] { return peer->ask("time").get<double>(); }});
  }
  report(take_turns(contenders, arguments.rounds, kWarmUpTurns), facts, out);
}

void measure(const Arguments& arguments, Report& out) {
  set_up(arguments.threads, out);
  const Recipe recipe = config::load_options<Recipe>({arguments.recipe, arguments.overrides, {}},
                                                     config::UnsetVariable::kKeep)
                            .options;
  if (recipe.train.precision != Precision::kFloat32) {
    throw std::runtime_error("train.precision: the peer computes in float32");
  }
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const DataShape shape = make_source(recipe)->shape();
  const BuiltModel built = build_model(recipe, shape, {&grid, grid.device});
  const auto& gpt2 = recipe.model.backbone.options<Gpt2>();
  enlarge(built, gpt2.width, gpt2.init_std);
  auto& model = dynamic_cast<TextModel&>(*built.task);
  const int64_t room = model.text_backbone().context_length() - arguments.prompt;
  if (room <= 0) throw std::runtime_error("--prompt: as long as the model's context");
  GenerationOptions options;
  options.sampling.temperature = 0.0;
  options.max_tokens = std::min(arguments.tokens, room);
  const std::unique_ptr<PeerProcess> peer = start_peer(arguments, out);
  if (peer != nullptr) {
    TensorFile file;
    peer->ask(describe(recipe, shape, built, file));
  }
  out.note("recipe", arguments.recipe);
  for (const int64_t batch : arguments.batches) {
    const Texts prompts = make_prompts(batch, arguments.prompt, shape.vocabulary);
    options.batch = batch;
    measure_batch([&] { return generate_text(model, prompts, options, grid); }, prompts, peer.get(),
                  arguments, out);
  }
}

int run(int argc, char** argv) {
  Program program("generate",
                  "Greedy generation by a recipe's GPT-2 with random weights, prompt and tokens "
                  "from memory, beside generate() of Hugging Face's GPT2LMHeadModel with its "
                  "cache, from equal weights and prompts, with equal threads.",
                  15);
  Arguments arguments;
  program.add("recipe", arguments.recipe, "of a GPT-2");
  program.add("overrides", arguments.overrides, "key=value");
  program.add("--python", arguments.python,
              "an interpreter that has PyTorch 2.11 and transformers 5");
  program.add("--batch", arguments.batches, "sequences at once");
  program.add("--prompt", arguments.prompt, "tokens of a prompt");
  program.add("--tokens", arguments.tokens, "to generate, at most what the context has room for");
  program.add("--threads", arguments.threads, "of each side");
  return program.run(argc, argv, [&](Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

const Benchmark kBenchmark("generate", run);

}  // namespace
}  // namespace shoal::bench::generate_bench
