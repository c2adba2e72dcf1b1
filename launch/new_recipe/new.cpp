#include "launch/new_recipe/new.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

/// Keys for photographs to be restored.
constexpr std::string_view kSmallCrops =
    "  image_size: 64\n"
    "  train: {crop: {name: random}}\n"
    "  valid: {crop: {name: center}}\n";

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

/// A stage of experts, indented.
std::string moe_stage(const RecipePlan& plan, const std::string& indent) {
  const bool is_of_images = plan.is_of_images();
  const int64_t k = is_of_images ? std::min<int64_t>(2, plan.experts) : 1;
  return fmt::format(
      "{0}router:  {{name: top_k, k: {1}, noise: {2}}}   # k experts a token\n"
      "{0}losses:  auto   # those that are usual for the router: they even out the load\n"
      "{0}experts: {{count: {3}}}   # hidden: auto, 4 times the width\n",
      indent, k, is_of_images ? "gaussian" : "none", plan.experts);
}

/// Puts `text` in place of each `mark`.
void replace(const std::string& mark, const std::string& text, std::string& lines) {
  for (std::size_t at; (at = lines.find(mark)) != std::string::npos;) {
    lines.replace(at, mark.size(), text);
  }
}

/// How many keys each attention expert attends to: `{k: 8}, {k: 16}`.
std::string top_k_experts(int64_t experts) {
  std::string choices;
  for (int64_t i = 0; i < experts; ++i) {
    choices += fmt::format("{}{{k: {}}}", i > 0 ? ", " : "",
                           std::min<int64_t>(64, 8 << std::min<int64_t>(i, 3)));
  }
  return choices;
}

// Parts of a first recipe, lines of YAML with comments, in this order.

std::string head_section(const RecipePlan& plan) {
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

std::string data_section(const RecipePlan& plan) {
  const DataSource::Sketch& source = plan.source.sketch;
  std::string text = fmt::format("data:\n  source: {}\n", plan.source.name);
  const std::string path = plan.path.empty() ? std::string(source.path) : plan.path;
  if (!path.empty()) {
    text += fmt::format("  {:<30} # folder of {}; or data.path=FOLDER\n", path_text(path),
                        source.files);
  }
  if (const auto& names = plan.class_names; !names.empty()) {
    text += fmt::format("  classes: auto   # {} found: {} to {}\n", names.size(), names.front(),
                        names.back());
  }
  text += plan.is_denoiser() && plan.has_large_images() ? kSmallCrops : source.lines;
  if (plan.is_denoiser()) {
    const auto times = static_cast<std::size_t>(source.image->channels);
    const std::vector<std::string> zeros(times, "0"), ones(times, "1");
    return text + fmt::format("  normalise: {{mean: [{}], std: [{}]}}   # pixels stay in [0, 1]\n",
                              join_words(zeros), join_words(ones));
  }
  return text + std::string(source.change);
}

std::string model_section(const RecipePlan& plan) {
  std::string lines(plan.backbone.sketch.lines);
  if (plan.adds_experts()) {
    lines +=
        "  moe:                           # in every second block of the last half\n    {stage}\n";
  }
  replace("{patch}", plan.has_large_images() ? "16" : "4", lines);
  replace("{top_k}", top_k_experts(plan.experts), lines);
  for (const std::string indent : {"    ", "      "}) {
    replace("\n" + indent + "{stage}\n", "\n" + moe_stage(plan, indent), lines);
  }
  return fmt::format("model:\n  backbone: {}\n{}", plan.backbone.name, lines);
}

/// From `task` on.
std::string training_sections(const RecipePlan& plan) {
  const bool is_of_images = plan.is_of_images();
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
                    "parallel: {{expert_ranks: auto}}   # ranks that share the experts\n",
                    plan.is_denoiser() ? "1e-3" : "2e-3", is_of_images ? "10ep" : "2000step",
                    is_of_images ? 64 : 16, is_of_images ? 8 : 1, often, often);
}

}  // namespace

ExitCode new_recipe(const NewArguments& arguments, std::ostream& out) {
  const RecipePlan plan = plan_recipe(arguments);
  out << head_section(plan) << data_section(plan) << model_section(plan) << training_sections(plan);
  return ExitCode::kOk;
}

}  // namespace shoal
