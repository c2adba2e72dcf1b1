#include "launch/new_recipe/new.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>

#include "launch/job/launch_info.h"
#include "models/backbone.h"
#include "runtime/base/text.h"
#include "runtime/data/data_source.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

using Experts = Backbone::Sketch::Experts;

constexpr int64_t kSmallSide = 64;  ///< images up to this are taken as they are, in small patches

/// A registered backbone or data source, and its sketch, from which `shoal new` writes a recipe.
template <class Base>
struct Sketched {
  const std::string& name;
  const typename Base::Sketch& sketch;
};

/// What is known of a folder of data.
struct FoundData {
  std::string source;  ///< that reads it
  std::vector<std::string> class_names = {};
  int64_t shorter_side = 0;  ///< of its images, the median of some; 0: unknown
};

/// The parts that a first recipe is written from.
struct RecipePlan {
  Sketched<Backbone> backbone;
  Sketched<DataSource> source;
  int64_t experts;   ///< per layer; 0: none
  std::string path;  ///< data.path; "": the source's default
  FoundData found;   ///< in `path`

  bool is_of_images() const { return source.sketch.image.has_value(); }
  /// The least multiple of 8, of large images of 16, that is not below the images' shorter side;
  /// at most that of the sketch. Every backbone's first recipe accepts it.
  int64_t image_size() const {
    const int64_t most = source.sketch.image->height, side = found.shorter_side;
    const int64_t step = side > kSmallSide ? 16 : 8;
    return side == 0 ? most : std::min(most, (side + step - 1) / step * step);
  }
  bool has_large_images() const { return is_of_images() && image_size() > kSmallSide; }
  bool is_denoiser() const { return backbone.sketch.task == "denoise"; }
  /// True if the recipe adds experts to a backbone that can do without them.
  bool adds_experts() const { return experts > 0 && backbone.sketch.experts == Experts::kMay; }
  std::string task() const {
    if (is_of_images()) return std::string(backbone.sketch.task);
    return source.sketch.has_classes ? "classify" : "lm";
  }
  /// Name of the run, `gpt2_text_moe`.
  std::string name() const {
    return fmt::format("{}_{}{}", backbone.name, source.name, adds_experts() ? "_moe" : "");
  }
};

bool fits(const Backbone::Sketch& backbone, const DataSource::Sketch& source) {
  return backbone.task.empty() != source.image.has_value();
}

/// The names of the members whose sketch `fits`.
template <class Base>
std::vector<std::string> names_of(const std::function<bool(const typename Base::Sketch&)>& fits =
                                      [](const auto&) { return true; }) {
  std::vector<std::string> names;
  for (const config::MemberInfo* member : members_of<Base>().members()) {
    const auto* sketch = sketch_of<Base>(*member);
    if (sketch != nullptr && fits(*sketch)) names.push_back(member->name);
  }
  return names;
}

template <class Base>
Sketched<Base> find(const std::string& option, const std::string& name) {
  const config::MemberInfo* member = members_of<Base>().find(name);
  const auto* sketch = member == nullptr ? nullptr : sketch_of<Base>(*member);
  if (sketch != nullptr) return {member->name, *sketch};
  refuse_unknown(option + ": unknown name", name, names_of<Base>());
}

/// A key `path` with its value, as YAML; references in the value stay such.
std::string path_text(const std::string& path) {
  config::Node value, section;
  value.kind = config::Node::Kind::kScalar;
  value.text = path;
  value.has_unset_variable = path.find("${") != std::string::npos;
  section.kind = config::Node::Kind::kMap;
  section.entries.push_back({"path", {}, value});
  const std::string text = config::emit(section);
  return text.substr(0, text.size() - 1);
}

/// The median of the shorter sides of some images, those that can be decoded; 0 if none can.
int64_t shorter_side_of(const SampleSet& images) {
  constexpr int64_t kMostRead = 9;
  std::vector<int64_t> sides;
  const int64_t count = std::min(kMostRead, images.size());
  for (int64_t i = 0; i < count; ++i) {
    try {
      const ImageShape image = images.read(images.size() * i / count, 0).shape;
      sides.push_back(std::min(image.height, image.width));
    } catch (const DataError&) {
      continue;  // training tells
    }
  }
  std::ranges::sort(sides);
  return sides.empty() ? 0 : sides[sides.size() / 2];
}

/// Looks at a folder of images by the source that --data names, or finds one that reads it to
/// train.
FoundData look_at(const NewArguments& arguments, const Sketched<Backbone>& backbone) {
  std::vector<std::string> names{arguments.data};
  if (arguments.data.empty()) names = new_recipe_sources(backbone.name);
  for (const std::string& name : names) {
    const auto& sketch = find<DataSource>("--data", name).sketch;
    if (sketch.path.empty() || !sketch.image) continue;
    try {
      const auto data = config::load_options_text<DataOptions>(
          "source: " + name + "\n" + path_text(arguments.path), "", {"", {}, environment_variable});
      const auto source = Registry<DataSource>::create(data.options.source, {});
      return {name, source->class_names(), shorter_side_of(*source->open(Split::kTrain))};
    } catch (const Error&) {
      continue;
    }
  }
  return {arguments.data};
}

Sketched<DataSource> source_for(const Sketched<Backbone>& backbone, const std::string& name) {
  const auto is_usual = [&](const DataSource::Sketch& source) {
    return source.is_usual && fits(backbone.sketch, source);
  };
  const std::string known = name.empty() ? names_of<DataSource>(is_usual).at(0) : name;
  const auto source = find<DataSource>("--data", known);
  if (fits(backbone.sketch, source.sketch)) return source;
  const bool has_images = source.sketch.image.has_value();
  const auto others =
      names_of<Backbone>([&](const Backbone::Sketch& other) { return fits(other, source.sketch); });
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} reads {}, and {} has {}", backbone.name, has_images ? "tokens" : "images",
                  source.name, has_images ? "images" : "tokens"),
      fmt::format("--data for {}: {}; --backbone for {}: {}", backbone.name,
                  join_words(new_recipe_sources(backbone.name)), source.name, join_words(others)));
}

int64_t experts_for(const Sketched<Backbone>& backbone, std::optional<int64_t> wanted) {
  constexpr int64_t kUsual = 4;
  const Experts rule = backbone.sketch.experts;
  const int64_t experts = wanted.value_or(rule == Experts::kMust ? kUsual : 0);
  const bool is_refused = rule == (experts == 0 ? Experts::kMust : Experts::kNone);
  if (!is_refused) return experts;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} experts", backbone.name, experts == 0 ? "always has" : "has no"),
              std::string(backbone.sketch.why));
}

/// Chooses the parts.
RecipePlan plan_recipe(const NewArguments& arguments) {
  const auto backbone = find<Backbone>("--backbone", arguments.backbone);
  FoundData found{arguments.data};
  if (!arguments.path.empty()) found = look_at(arguments, backbone);
  const auto source = source_for(backbone, found.source);
  if (!arguments.path.empty() && source.sketch.path.empty()) {
    if (!arguments.data.empty()) {
      throw Error(ExitCode::kUsage, fmt::format("--path: {} needs no files", source.name),
                  "leave out --path, or name another source by --data");
    }
    if (!std::filesystem::is_directory(arguments.path)) {
      throw Error(ExitCode::kUsage, fmt::format("--path: no such folder: '{}'", arguments.path),
                  "correct the path, or name the source of data that are elsewhere by --data");
    }
    throw Error(ExitCode::kUsage,
                fmt::format("--path: no data source knows the files in '{}'", arguments.path),
                fmt::format("name one by --data; class folders are divided into train/ and val/ by "
                            "shoal data split {} --valid 10%",
                            arguments.path));
  }
  return {backbone, source, experts_for(backbone, arguments.experts), arguments.path, found};
}

/// Keys for photographs to be restored.
constexpr std::string_view kSmallCrops =
    "  image_size: 64\n"
    "  train: {crop: {name: random}}\n"
    "  valid: {crop: {name: center}}\n";

/// A stage of experts, indented.
std::string moe_stage(const RecipePlan& plan, const std::string& indent) {
  const bool is_of_images = plan.is_of_images();
  const int64_t k = is_of_images ? std::min<int64_t>(2, plan.experts) : 1;
  return fmt::format(
      "{0}router:  {{name: top_k, k: {1}, noise: {2}}}   # k experts per token\n"
      "{0}losses:  auto   # the usual balance losses of the router\n"
      "{0}experts: {{count: {3}}}   # hidden: auto, 4 times the width\n",
      indent, k, is_of_images ? "gaussian" : "none", plan.experts);
}

/// Puts the size of the images in place of the marks of photograph_sketch.
void replace_image_marks(const RecipePlan& plan, std::string& lines) {
  if (!plan.is_of_images()) return;
  const bool is_large = plan.has_large_images();
  const int64_t size = plan.image_size(), side = plan.found.shorter_side;
  const std::string reason = fmt::format("   # shorter side of the images: {} pixels", side);
  lines = replaced(lines, "{image_size}", std::to_string(size) + (side > 0 ? reason : ""));
  lines = replaced(lines, "{least_area}", is_large ? "0.08" : "0.5");
  lines = replaced(lines, "{resize}", std::to_string(is_large ? size * 8 / 7 : size));
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
      plan.experts == 0 ? "dense" : counted(plan.experts, "expert") + " per layer";
  return fmt::format(
      "# A recipe for {0} on {1}, {2}. Save it as {3}.yaml, then\n"
      "#   shoal check {3}.yaml\n"
      "#   shoal train {3}.yaml\n"
      "# `shoal keys --backbone {0}` lists the other keys, `shoal show` all values.\n"
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
  if (const auto& names = plan.found.class_names; !names.empty()) {
    text += fmt::format("  classes: auto   # {} found: {} to {}\n", names.size(), names.front(),
                        names.back());
  }
  text += plan.is_denoiser() && plan.has_large_images() ? kSmallCrops : source.lines;
  replace_image_marks(plan, text);
  if (plan.is_denoiser()) {
    const auto times = static_cast<std::size_t>(source.image->channels);
    const std::vector<std::string> zeros(times, "0"), ones(times, "1");
    return text + fmt::format("  normalise: {{mean: [{}], std: [{}]}}   # pixels stay in [0, 1]\n",
                              join_words(zeros), join_words(ones));
  }
  return text + std::string(source.augment);
}

std::string model_section(const RecipePlan& plan) {
  std::string lines(plan.backbone.sketch.lines);
  if (plan.adds_experts()) {
    lines +=
        "  moe:                           # in every second block of the last half\n    {stage}\n";
  }
  lines = replaced(lines, "{patch}", plan.has_large_images() ? "16" : "4");
  lines = replaced(lines, "{top_k}", top_k_experts(plan.experts));
  for (const std::string indent : {"    ", "      "}) {
    lines = replaced(lines, "\n" + indent + "{stage}\n", "\n" + moe_stage(plan, indent));
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
  return task +
         fmt::format(
             "optimizer: {{name: adamw, lr: {}, weight_decay: 0.05}}\n"
             "schedule: {{name: cosine, warmup: 5%}}\n"
             "train:\n"
             "  duration: {:<20} # in step, ep (passes over the data), tok; or by the clock: "
             "10min, 2h\n"
             "  batch: {:<23} # samples per step, over all ranks\n"
             "  group: {:<23} # samples per routing group\n"
             "  clip_norm: 1.0\n"
             "  log_every: 10step              # interval between logged steps\n"
             "evaluate: {{every: {}}}\n"
             "checkpoint: {{every: {}}}\n"
             "parallel: {{expert_ranks: auto}}   # ranks over which experts are sharded\n",
             plan.is_denoiser() ? "1e-3" : "2e-3", is_of_images ? "10ep" : "2000step",
             is_of_images ? 64 : 16, is_of_images ? 8 : 1, often, often);
}

}  // namespace

ExitCode new_recipe(const NewArguments& arguments, std::ostream& out) {
  const RecipePlan plan = plan_recipe(arguments);
  out << head_section(plan) << data_section(plan) << model_section(plan) << training_sections(plan);
  return ExitCode::kOk;
}

std::vector<std::string> new_recipe_backbones() { return names_of<Backbone>(); }

std::vector<std::string> new_recipe_sources() { return names_of<DataSource>(); }

std::vector<std::string> new_recipe_sources(const std::string& backbone) {
  const auto known = find<Backbone>("--backbone", backbone);
  return names_of<DataSource>(
      [&](const DataSource::Sketch& source) { return fits(known.sketch, source); });
}

}  // namespace shoal
