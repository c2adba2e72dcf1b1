#include "launch/commands/new_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/recipe/config_writer.h"

namespace shoal {
namespace {

enum class DataKind {
  kImages,
  kText,       ///< to predict the next token
  kAnswers,    ///< sequences with some labelled tokens
  kSequences,  ///< sequences with a class
};

/// A data source, with values for a first training.
struct SourceSketch {
  std::string_view name;
  DataKind kind;
  int64_t side;             ///< of images, pixels
  std::string_view path;    ///< data.path unless the user gives it; "": needs no files
  std::string_view files;   ///< what is in the folder
  std::string_view lines;   ///< further keys of `data`
  std::string_view change;  ///< augmentation of images that are classified
};

constexpr std::array kSources{
    SourceSketch{"shapes", DataKind::kImages, 32, "", "",
                 "  image_size: 32\n"
                 "  classes: 10\n"
                 "  train: {samples: 8192}         # drawn images; no files are needed\n"
                 "  valid: {samples: 1024}\n",
                 ""},
    SourceSketch{"cifar", DataKind::kImages, 32, "${env:CIFAR10}", "data_batch_1.bin, ...",
                 "  train: {files: [data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, "
                 "data_batch_4.bin]}\n"
                 "  valid: {files: [data_batch_5.bin]}   # held out of the training files\n",
                 "  augment: {crop_padding: 4, flip: true}\n"},
    SourceSketch{"image_folder", DataKind::kImages, 224, "images",
                 "train/CLASS/NAME.jpg and val/CLASS/NAME.jpg",
                 "  classes: 1000                  # folders of each split\n"
                 "  image_size: 224\n"
                 "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
                 "  valid: {crop: {name: center, resize: 256}}\n",
                 "  augment: {flip: true}\n"},
    SourceSketch{"tar_shards", DataKind::kImages, 224, "shards",
                 "train/*.tar and val/*.tar, as `shoal data pack --classes` makes them",
                 "  classes: 1000\n"
                 "  image_size: 224\n"
                 "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
                 "  valid: {crop: {name: center, resize: 256}}\n",
                 "  augment: {flip: true}\n"},
    SourceSketch{"text", DataKind::kText, 0, "${env:WIKITEXT2}", "the files of both splits",
                 "  tokenizer: {name: bytes}       # or gpt2, with its vocab and merges\n"
                 "  sequence: 256                  # tokens of a sample\n"
                 "  train: {files: [wiki.train.tokens]}   # text, or token caches (*.bin)\n"
                 "  valid: {files: [wiki.valid.tokens]}\n",
                 ""},
    SourceSketch{
        "mqar", DataKind::kAnswers, 0, "", "",
        "  sequence: 64                   # pairs of keys and values, then keys to answer\n"
        "  vocabulary: 128\n"
        "  pairs: 8\n"
        "  train: {samples: 100000}\n"
        "  valid: {samples: 1000}\n",
        ""},
    SourceSketch{"mixed_complexity", DataKind::kAnswers, 0, "", "",
                 "  sequence: 128\n"
                 "  islands: 3                     # expressions of a sample\n",
                 ""},
    SourceSketch{"listops", DataKind::kSequences, 0, "", "",
                 "  min_length: 3\n"
                 "  max_length: 64                 # 2000 in the Long Range Arena\n"
                 "  max_depth: 3\n"
                 "  max_args: 5\n",
                 ""},
    SourceSketch{"pixels", DataKind::kSequences, 0, "", "",
                 "  images: {source: pathfinder, image_size: 20, length: 3, distractors: 1, "
                 "distractor_length: 2}\n",
                 ""},
    SourceSketch{"lra_text", DataKind::kSequences, 0, "lra", "label<TAB>text, a line a sample",
                 "  max_length: 1024               # bytes of each text\n"
                 "  train: {files: [train.tsv]}\n"
                 "  valid: {files: [valid.tsv]}\n",
                 ""},
    SourceSketch{"lra_retrieval", DataKind::kSequences, 0, "lra", "LRA's files",
                 "  max_length: 1024               # bytes of each text\n"
                 "  train: {files: [new_aan_pairs.train.tsv]}\n"
                 "  valid: {files: [new_aan_pairs.eval.tsv]}\n",
                 ""}};

/// Of photographs that are restored.
constexpr std::string_view kSmallCrops =
    "  image_size: 64\n"
    "  train: {crop: {name: random}}\n"
    "  valid: {crop: {name: center}}\n";

enum class Experts { kNone, kMay, kMust };

struct BackboneSketch {
  std::string_view name;
  bool reads_images;
  Experts experts;
  std::string_view why;   ///< of kNone and kMust, what to take instead
  std::string_view task;  ///< of images
  std::string_view lines;
};

// {patch}: of an image of 8 x 8 patches, or 16 pixels.
constexpr std::array kBackbones{
    BackboneSketch{"vit", true, Experts::kMay, "", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 128\n"
                   "  depth: 6\n"
                   "  heads: 4\n"
                   "  hidden: 512                    # of dense MLPs, 4 times the width\n"
                   "  pool: mean                     # or cls: a class token\n"},
    BackboneSketch{"convnext", true, Experts::kMay, "", "classify",
                   "  stem_patch: 2\n"
                   "  depths: [2, 2, 4]              # blocks of each stage\n"
                   "  widths: [32, 64, 128]          # channels of each stage\n"},
    BackboneSketch{"mixer", true, Experts::kNone, "sparse_mlp is a Mixer with experts", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 128\n"
                   "  depth: 6\n"
                   "  token_hidden: 64               # of MLPs over tokens, half the width\n"
                   "  channel_hidden: 512            # of MLPs over channels, 4 times the width\n"},
    BackboneSketch{"sparse_mlp", true, Experts::kMust, "mixer is the dense model", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 64\n"
                   "  dense_blocks: 2\n"
                   "  token_hidden: 64\n"
                   "  channel_hidden: 256\n"
                   "  sparse_blocks: 1\n"},
    BackboneSketch{"adaptive_attention", true, Experts::kMust, "vit is a dense model", "denoise",
                   "  patch: 4                       # side of a patch, pixels\n"
                   "  width: 64\n"
                   "  depth: 2\n"
                   "  heads: 4\n"},
    BackboneSketch{"gpt2", false, Experts::kMay, "", "",
                   "  width: 128\n"
                   "  depth: 4\n"
                   "  heads: 4\n"},
    BackboneSketch{"hspmn", false, Experts::kMay, "", "",
                   "  width: 128\n"
                   "  depth: 4\n"
                   "  heads: 4\n"
                   "  kv_heads: 1\n"
                   "  hidden: 256\n"
                   "  init_std: 0.06\n"
                   "  gate: {rate: 0.25, anneal_steps: 300}   # share of tokens that attend\n"}};

bool fits(const BackboneSketch& backbone, const SourceSketch& source) {
  return backbone.reads_images == (source.kind == DataKind::kImages);
}

template <class Sketch, std::size_t kCount>
std::vector<std::string> names_of(const std::array<Sketch, kCount>& sketches) {
  std::vector<std::string> names;
  for (const Sketch& sketch : sketches) names.emplace_back(sketch.name);
  return names;
}

template <class Sketch, std::size_t kCount>
const Sketch& find(const std::array<Sketch, kCount>& sketches, const std::string& option,
                   const std::string& name) {
  const auto found = std::ranges::find(sketches, name, &Sketch::name);
  if (found != sketches.end()) return *found;
  const std::vector<std::string> names = names_of(sketches);
  const std::string guess = did_you_mean(name, names);
  throw Error(ExitCode::kUsage, fmt::format("{}: none is called '{}'{}", option, name, guess),
              guess.empty() ? "one of: " + join_words(names) : "");
}

const SourceSketch& source_for(const BackboneSketch& backbone, const std::string& name) {
  if (name.empty()) return find(kSources, "--data", backbone.reads_images ? "shapes" : "text");
  const SourceSketch& source = find(kSources, "--data", name);
  if (fits(backbone, source)) return source;
  std::vector<std::string> others;
  for (const BackboneSketch& other : kBackbones) {
    if (fits(other, source)) others.emplace_back(other.name);
  }
  throw Error(ExitCode::kUsage,
              fmt::format("{} reads {}, and {} has {}", backbone.name,
                          backbone.reads_images ? "images" : "tokens", source.name,
                          backbone.reads_images ? "tokens" : "images"),
              fmt::format("--data for {}: {}; --backbone for {}: {}", backbone.name,
                          join_words(new_recipe_sources(std::string(backbone.name))), source.name,
                          join_words(others)));
}

int64_t experts_for(const BackboneSketch& backbone, std::optional<int64_t> wanted) {
  constexpr int64_t kUsual = 4;
  const int64_t experts = wanted.value_or(backbone.experts == Experts::kMust ? kUsual : 0);
  const bool is_refused = backbone.experts == (experts == 0 ? Experts::kMust : Experts::kNone);
  if (!is_refused) return experts;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} experts", backbone.name, experts == 0 ? "always has" : "has no"),
              std::string(backbone.why));
}

/// What a first recipe is made of.
struct Plan {
  const BackboneSketch& backbone;
  const SourceSketch& source;
  int64_t experts;
  std::string path;

  bool is_denoiser() const { return backbone.task == "denoise"; }
  std::string task() const {
    if (backbone.reads_images) return std::string(backbone.task);
    return source.kind == DataKind::kSequences ? "classify" : "lm";
  }
  std::string name() const {
    return fmt::format("{}_{}{}", backbone.name, source.name,
                       backbone.experts == Experts::kMay && experts > 0 ? "_moe" : "");
  }
};

/// A path as YAML; references in it stay such.
std::string path_text(const std::string& path) {
  config::Entry entry;
  entry.key = "path";
  entry.value.kind = config::Node::Kind::kScalar;
  entry.value.text = path;
  entry.value.has_unset_variable = path.find("${") != std::string::npos;
  config::Node section;
  section.kind = config::Node::Kind::kMap;
  section.entries.push_back(std::move(entry));
  std::string text = config::emit(section);
  text.pop_back();
  return text;
}

std::string data_section(const Plan& plan) {
  const SourceSketch& source = plan.source;
  std::string text = fmt::format("data:\n  source: {}\n", source.name);
  const std::string path = plan.path.empty() ? std::string(source.path) : plan.path;
  if (!path.empty()) {
    text += fmt::format("  {:<30} # folder of {}; or data.path=FOLDER\n", path_text(path),
                        source.files);
  }
  const bool is_large = source.side > 64;
  text += plan.is_denoiser() && is_large ? kSmallCrops : source.lines;
  if (plan.is_denoiser()) {
    return text + "  normalise: {mean: [0, 0, 0], std: [1, 1, 1]}   # pixels stay in [0, 1]\n";
  }
  return text + std::string(source.change);
}

/// A stage of experts, indented.
std::string moe_stage(const Plan& plan, const std::string& indent) {
  const bool is_of_images = plan.backbone.reads_images;
  const int64_t k = is_of_images ? std::min<int64_t>(2, plan.experts) : 1;
  const std::string experts = fmt::format(
      "{0}experts: {{count: {1}}}   # hidden: auto, 4 times the width\n", indent, plan.experts);
  if (!is_of_images) {
    return indent + "router:  {name: top_k, k: 1}   # experts that a token is routed to\n" +
           indent + "losses:  [{name: switch, weight: 0.01}]   # evens out their load\n" + experts;
  }
  return fmt::format(
      "{0}router:  {{name: top_k, k: {1}, noise: gaussian}}   # k experts a token\n"
      "{0}losses:  [{{name: importance, weight: 0.005}}, {{name: load, weight: 0.005}}]   # even "
      "load\n{2}",
      indent, k, experts);
}

std::string attention_experts(const Plan& plan) {
  std::string experts;
  for (int64_t i = 0; i < plan.experts; ++i) {
    experts += fmt::format("{}{{k: {}}}", i > 0 ? ", " : "",
                           std::min<int64_t>(64, 8 << std::min<int64_t>(i, 3)));
  }
  return fmt::format(
      "  attention:\n"
      "    experts: [{}]   # each attends to its k best keys\n"
      "    losses: [{{name: kl_uniform, weight: 0.01, scope: global}}]   # evens out their use\n",
      experts);
}

std::string model_section(const Plan& plan) {
  std::string lines(plan.backbone.lines);
  const std::string patch = std::to_string(plan.source.side > 64 ? 16 : 4);
  for (std::size_t at; (at = lines.find("{patch}")) != std::string::npos;) {
    lines.replace(at, 7, patch);
  }
  std::string text = fmt::format("model:\n  backbone: {}\n{}", plan.backbone.name, lines);
  if (plan.is_denoiser()) return text + attention_experts(plan);
  if (plan.backbone.name == "sparse_mlp") {
    return text + "  sparse:\n    token_moe:                     # mixes tokens\n" +
           moe_stage(plan, "      ") + "    channel_moe:                   # mixes channels\n" +
           moe_stage(plan, "      ");
  }
  if (plan.experts == 0) return text;
  return text + "  moe:                           # in every second block of the last half\n" +
         moe_stage(plan, "    ");
}

std::string training_sections(const Plan& plan) {
  const bool is_of_images = plan.backbone.reads_images;
  std::string task = fmt::format("task: {{name: {}}}\n", plan.task());
  if (plan.task() == "classify") {
    task = is_of_images ? "task: {name: classify, label_smoothing: 0.1}\n"
                        : "task: {name: classify, pool: mean}   # or last: the last token\n";
  }
  const std::string often = is_of_images ? "1ep" : "500step";
  return task + fmt::format(
                    "optimizer: {{name: adamw, lr: {}, weight_decay: 0.05}}\n"
                    "schedule: {{name: cosine, warmup: 5%}}\n"
                    "train:\n"
                    "  duration: {:<20} # in step, ep (passes over the data) or tok\n"
                    "  batch: {:<23} # samples of a step, over all ranks\n"
                    "  group: {:<23} # samples that are compared while routing\n"
                    "  clip_norm: 1.0\n"
                    "evaluate: {{every: {}}}\n"
                    "checkpoint: {{every: {}}}\n"
                    "parallel: {{expert_ranks: 1}}      # ranks that share the experts\n",
                    plan.is_denoiser() ? "1e-3" : "2e-3", is_of_images ? "10ep" : "2000step",
                    is_of_images ? 64 : 16, is_of_images ? 8 : 1, often, often);
}

std::string head(const Plan& plan) {
  const std::string experts =
      plan.experts == 0 ? "dense" : counted(plan.experts, "expert") + " a layer";
  return fmt::format(
      "# A first recipe of {0} on {1}, {2}. Save it as {3}.yaml, then\n"
      "#   shoal check {3}.yaml\n"
      "#   shoal train {3}.yaml\n"
      "# `shoal keys --backbone {0}` has the other keys, `shoal show` all values.\n"
      "run: {{name: {3}, seed: 1}}   # writes runs/{3}/\n",
      plan.backbone.name, plan.source.name, experts, plan.name());
}

}  // namespace

ExitCode new_recipe(const NewArguments& arguments, std::ostream& out) {
  const BackboneSketch& backbone = find(kBackbones, "--backbone", arguments.backbone);
  const SourceSketch& source = source_for(backbone, arguments.data);
  if (!arguments.path.empty() && source.path.empty()) {
    throw Error(ExitCode::kUsage, fmt::format("--path: {} needs no files", source.name));
  }
  const Plan plan{backbone, source, experts_for(backbone, arguments.experts), arguments.path};
  out << head(plan) << data_section(plan) << model_section(plan) << training_sections(plan);
  return ExitCode::kOk;
}

std::vector<std::string> new_recipe_backbones() { return names_of(kBackbones); }

std::vector<std::string> new_recipe_sources(const std::string& backbone) {
  const BackboneSketch& known = find(kBackbones, "--backbone", backbone);
  std::vector<std::string> names;
  for (const SourceSketch& source : kSources) {
    if (fits(known, source)) names.emplace_back(source.name);
  }
  return names;
}

}  // namespace shoal
