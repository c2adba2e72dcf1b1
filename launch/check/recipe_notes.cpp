#include "launch/check/recipe_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "launch/job/launch_info.h"
#include "launch/recipe/recipe.h"
#include "moe/losses/balance_loss.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/base/text.h"
#include "runtime/options/config_writer.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using config::Node;
using Lines = std::vector<std::string>;

/// The text of a scalar in a mapping; "" if it is not there.
std::string text_of(const Node& map, std::string_view key) {
  const config::Entry* entry = map.find(key);
  return entry != nullptr ? entry->value.text : "";
}

/// Lines on what users should know of a recipe's text.
void note_scopes(const Node& tree, Lines& notes) {
  visit_nodes(tree, "", [&](const Node& map, const std::string& path) {
    if (text_of(map, "scope") != "global") return;
    notes.push_back(config::join_path(path, "scope") +
                    ": the value of a loss of scope global depends on train.accumulate");
  });
}

/// True if each evaluation, also the best, is at the step of a save.
bool evaluates_where_it_saves(const Recipe& recipe) {
  const std::optional<Duration>&evaluates = recipe.evaluate.every, &saves = recipe.checkpoint.every;
  if (recipe.checkpoint.keep_best == 0 || !evaluates) return true;
  if (!saves || saves->unit != evaluates->unit || saves->is_time()) return false;
  // evaluates / saves is a whole number
  return static_cast<__int128>(evaluates->count) * saves->scale %
             (static_cast<__int128>(saves->count) * evaluates->scale) ==
         0;
}

/// Changed keys of a capacity where no row is limited.
void warn_of_capacities(const Node& changed, const Node& tree, Lines& warnings) {
  visit_nodes(tree, "", [&](const Node& map, const std::string& path) {
    const config::Entry* capacity = map.find("capacity");
    if (capacity == nullptr || text_of(capacity->value, "mode") != "dropless") return;
    for (const char* key : {"factor", "min", "align", "order"}) {
      const std::string place = config::join_path(path, "capacity." + std::string(key));
      if (config::find_node(changed, place) == nullptr) continue;
      warnings.push_back(place + ": no effect, as capacity.mode is dropless: nothing is limited");
    }
  });
}

/// `importance 0.005, load 0.005`: names and weights, and the scope where it is not the default.
std::string losses_text(const Node& losses) {
  const Node defaults = config::to_node(BalanceLossOptions{});
  Lines words;
  for (const Node& loss : losses.items) {
    const std::string scope = text_of(loss, "scope");
    words.push_back(fmt::format("{} {}{}", text_of(loss, "name"), text_of(loss, "weight"),
                                scope == text_of(defaults, "scope") ? "" : " of scope " + scope));
  }
  return words.empty() ? "none" : join_words(words);
}

/// The losses that the recipe leaves to the router.
void note_usual_losses(const CheckedRecipe& checked, const Node& tree, Lines& notes) {
  visit_nodes(checked.loaded.document.root, "", [&](const Node& map, const std::string& path) {
    const config::Entry* given = map.find("losses");
    const bool is_auto = given != nullptr && given->value.kind != Node::Kind::kList &&
                         !given->value.has_unset_variable;
    if (!is_auto) return;
    const std::string place = config::join_path(path, "losses");
    const Node* losses = config::find_node(tree, place);
    const Node* router = config::find_node(tree, config::join_path(path, "router.name"));
    if (losses == nullptr || router == nullptr) return;
    notes.push_back(fmt::format("{}: auto stands for {}, which is usual for the {} router", place,
                                losses_text(*losses), router->text));
  });
}

/// The names of stages, by a text that they share.
using StagesOfText = std::map<std::string, std::vector<std::string>>;

StagesOfText stages_by(const std::vector<MoeStageInfo>& stages, std::string MoeStageInfo::*text) {
  StagesOfText found;
  for (const MoeStageInfo& stage : stages) {
    if (!(stage.*text).empty()) found[stage.*text].push_back(stage.name);
  }
  return found;
}

void warn_of_balance(const std::vector<MoeStageInfo>& stages, Lines& warnings) {
  for (const auto& [router, names] : stages_by(stages, &MoeStageInfo::unbalanced)) {
    warnings.push_back(fmt::format(
        "{}: nothing balances the load of the {} router, so that it may come to use few experts; "
        "add a loss that evens it out, set router.bias.rate, or write losses: auto",
        join_words(names), router));
  }
}

void warn_of_idle_ranks(const Recipe& recipe, int64_t world, Lines& warnings) {
  const TrainOptions& train = recipe.train;
  const int64_t groups = train.batch / train.accumulate / train.group;
  if (world <= groups) return;
  warnings.push_back(fmt::format(
      "train.group: a micro-step has {} of {}, so that {} of the {} ranks get no samples; lower "
      "train.group or train.accumulate, raise train.batch, or start fewer ranks",
      counted(groups, "routing group"), counted(train.group, "sample"), world - groups, world));
}

/// The folder itself, or the nearest one above it that is there.
std::string existing_folder(const std::string& folder) {
  std::error_code failed;
  fs::path path = fs::absolute(folder, failed);
  while (!path.empty() && !fs::is_directory(path, failed) && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path.string();
}

/// Steps of the checkpoints that a resume finds in the run's folder; none where it cannot be read.
std::vector<int64_t> resumed_checkpoints(const RunOptions& run) {
  if (run.on_existing != OnExisting::kResume) return {};
  try {
    return list_checkpoints((fs::path(run.root) / run.name / "ckpt").string());
  } catch (const Error&) {
    return {};
  }
}

void warn_of_disk(const CheckedRecipe& checked, FileSystem& files, Lines& warnings) {
  const RunOptions& run = checked.loaded.options.run;
  const CheckpointOptions& kept = checked.loaded.options.checkpoint;
  const int64_t free = files.free_bytes(existing_folder(run.root));
  if (free < 0) return;  // not known: the folder cannot be asked
  const auto bytes = static_cast<double>(checked.counts.checkpoint.data_bytes);
  const int64_t existing = std::ssize(resumed_checkpoints(run));
  const int64_t most_new = std::max<int64_t>(1, kept.keep_last + kept.keep_best + 1 - existing);
  const bool holds_one = bytes <= static_cast<double>(free);
  if (holds_one && bytes * static_cast<double>(most_new) <= static_cast<double>(free)) return;
  const std::string too_little =
      existing > 0
          ? fmt::format(", too little for {} more beside the {} of this run", most_new, existing)
          : fmt::format(", too little for the {} that lie there during a save", most_new);
  warnings.push_back(fmt::format(
      "run.root: a checkpoint takes up to {}, and the disk of {} has {} free{}; free some space, "
      "or choose another run.root{}",
      human_bytes(bytes), run.root, human_bytes(free),
      holds_one ? too_little : ": saving will fail",
      holds_one ? ", or lower checkpoint.keep_last or keep_best" : ""));
}

/// Weights of at least a hundredth of the model's products whose sizes tensor cores do not divide.
void note_odd_sizes(const CheckedRecipe& checked, Lines& notes) {
  if (!checked.counts.work) return;
  const ModelWork& work = *checked.counts.work;
  Lines names;
  for (const Parameter& parameter : checked.model.parameters) {
    const torch::Tensor& weight = parameter.tensor;
    const auto found = work.weight_multiply_adds.find(parameter.name);
    const bool is_depthwise = weight.dim() == 4 && weight.size(1) == 1;  // no matrix product
    if (found == work.weight_multiply_adds.end() || weight.dim() < 2 || is_depthwise) continue;
    // Of a stack of experts one; of a convolution the matrix of its patches.
    const int64_t rows = weight.size(weight.dim() == 3 ? 1 : 0);
    const int64_t columns = weight.dim() == 3 ? weight.size(2) : weight.numel() / rows;
    if (found->second < 0.01 * work.multiply_adds || (rows % 8 == 0 && columns % 8 == 0)) continue;
    names.push_back(fmt::format("{} ({} x {})", parameter.name, rows, columns));
  }
  if (names.empty()) return;
  notes.push_back(fmt::format(
      "model: sizes of {} are not multiples of 8, which GPUs multiply more slowly: {}{}",
      counted(std::ssize(names), "weight"), names.front(), names.size() > 1 ? ", ..." : ""));
}

/// What GPUs compute slowly.
void note_gpu(const CheckedRecipe& checked, const Node& tree, Lines& notes) {
  const Recipe& recipe = checked.loaded.options;
  const bool is_float32 = recipe.train.precision == Precision::kFloat32;
  if (is_float32 && !recipe.run.tf32) {
    notes.emplace_back(
        "train.precision: float32 products leave a GPU's tensor cores unused; run.tf32=true or "
        "train.precision=bfloat16 is several times faster, and less exact");
  } else if (recipe.train.precision != Precision::kFloat64) {
    note_odd_sizes(checked, notes);
  }
  if (recipe.parallel.expert_ranks == 1) return;
  visit_nodes(tree, "", [&](const Node& map, const std::string& path) {
    const config::Entry* capacity = map.find("capacity");
    const std::string mode = capacity == nullptr ? "" : text_of(capacity->value, "mode");
    const Node* levels = config::find_node(map, "exchange.hierarchical");
    const bool has_levels = levels != nullptr && levels->text == "true";
    if (mode.empty() || (mode == "padded" && !has_levels)) return;
    notes.push_back(
        config::join_path(path, has_levels ? "exchange.hierarchical" : "capacity.mode") +
        ": the host waits for the GPU in each layer, for the numbers of rows that ranks send" +
        (has_levels ? "; between machines with capacity.mode=padded too"
                    : "; padded does not wait where all lengths are equal"));
  });
}

bool exists_here(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

/// True for an empty file or folder, and for a folder of such.
bool is_empty_here(const fs::path& path) {
  std::error_code failed;
  const auto is_empty = [](const fs::path& inner) {
    std::error_code unknown;
    return fs::is_empty(inner, unknown);
  };
  if (!fs::is_directory(path, failed)) return is_empty(path);
  const fs::directory_iterator entries(path, failed);
  return !failed && std::ranges::all_of(entries, is_empty, &fs::directory_entry::path);
}

/// Names the folder that a relative path begins at; "" for absolute paths.
std::string base_of(const fs::path& path) {
  return path.is_absolute() ? "" : " in the working directory " + working_directory();
}

/// Warns of sparse training that never updates its masks, though its rule is to.
void warn_of_idle_rule(const CheckedRecipe& checked, const StepScale& scale, Lines& warnings) {
  constexpr int64_t kMostSteps = 10'000'000;
  const Recipe& recipe = checked.loaded.options;
  const auto first_update = [&](const StepScale& known) {
    const auto rule = Registry<GrowRule>::create(recipe.sparsity->rule, {known});
    const int64_t end = std::min({rule->rests_from(), known.total_steps, kMostSteps});
    int64_t step = 0;
    while (step < end && !rule->is_due(step)) ++step;
    return step < end || end == 0 || end == kMostSteps ? 0 : known.total_steps + 1;
  };
  if (!recipe.sparsity || !is_behind_end(recipe, scale, first_update)) return;
  warnings.push_back(
      fmt::format("sparsity.rule: {} makes no update in a training of {}: the masks "
                  "stay as they are drawn; lower sparsity.rule.every",
                  recipe.sparsity->rule.name(), to_text(recipe.train.duration)));
}

}  // namespace

std::vector<std::string> recipe_notes(const CheckedRecipe& checked, bool on_gpu) {
  Lines notes;
  const Recipe& recipe = checked.loaded.options;
  if (!evaluates_where_it_saves(recipe)) {
    notes.emplace_back(
        "checkpoint.every: evaluations and saves may fall on different steps; at each evaluation "
        "that is the best so far, a checkpoint is saved as well, for checkpoint.keep_best");
  }
  if (recipe.train.duration.is_time()) {
    notes.emplace_back(
        "train.duration: a short trial at the start converts the time to steps; the end of the "
        "schedule and values in percent are known only then");
  }
  if (recipe.train.average) {
    notes.emplace_back(
        "train.average: evaluations use the averages, which are a second copy of the trained "
        "weights on each rank");
  }
  if (!checked.counts.step_count_kinds.empty() && !recipe.sparsity) {
    notes.push_back(fmt::format(
        "optimizer: without sparsity all weights have the same age, so that the state {} costs "
        "memory and changes nothing",
        join_words(checked.counts.step_count_kinds)));
  }
  if (checked.counts.lacks_head) {
    notes.emplace_back(
        "data.classes: auto, and the data that names them is not there: the head is not counted");
  }
  const Node tree = config::to_node(recipe);
  note_usual_losses(checked, tree, notes);
  note_scopes(tree, notes);
  if (recipe.sparsity) {
    std::ranges::move(sparsity_notes(checked.counts.sparse), std::back_inserter(notes));
  }
  if (recipe.train.accumulate > 1) {
    std::ranges::copy(checked.counts.notes_on_accumulation, std::back_inserter(notes));
  }
  for (const auto& [note, names] : stages_by(checked.counts.stages, &MoeStageInfo::note)) {
    notes.push_back(join_words(names) + ": " + note);
  }
  if (on_gpu) note_gpu(checked, tree, notes);
  return notes;
}

std::vector<std::string> recipe_warnings(const CheckedRecipe& checked, int64_t world,
                                         FileSystem& files) {
  Lines warnings;
  const Recipe& recipe = checked.loaded.options;
  const Node tree = config::to_node(recipe);
  // The keys that differ from their defaults: a stored recipe gives all of them.
  const Node changed = config::to_minimal_node(config::type_of<Recipe>(), &recipe);
  warn_of_capacities(changed, tree, warnings);
  warn_of_balance(checked.counts.stages, warnings);
  warn_of_idle_ranks(recipe, world, warnings);
  const bool keeps_best = recipe.checkpoint.keep_best > 0 &&
                          config::find_node(changed, "checkpoint.keep_best") != nullptr;
  if (keeps_best && !recipe.evaluate.every) {
    warnings.emplace_back(
        "checkpoint.keep_best: no effect, as evaluate.every is never: no checkpoint has a score");
  }
  warn_of_disk(checked, files, warnings);
  return warnings;
}

std::vector<std::string> schedule_warnings(const CheckedRecipe& checked, StepScale scale) {
  const Recipe& recipe = checked.loaded.options;
  const Node schedule = config::to_node(recipe.schedule);
  scale.tokens_per_sample = checked.source->shape().sequence;
  std::vector<std::pair<std::string, std::string>> places{{"warmup", text_of(schedule, "warmup")}};
  if (const Node* milestones = config::find_node(schedule, "milestones")) {
    for (const Node& item : milestones->items) {
      places.emplace_back(fmt::format("milestones[{}]", places.size() - 1), item.text);
    }
  }
  Lines warnings;
  for (const auto& [key, text] : places) {
    const auto place = parse_duration(text);
    const auto first_behind = [&](const StepScale& known) { return to_steps(*place, known) + 1; };
    if (!place || place->count == 0 || !is_behind_end(recipe, scale, first_behind)) continue;
    warnings.push_back(fmt::format(
        "schedule.{}: {} lies at or behind the end of the training of {}{}: {}", key, text,
        to_text(recipe.train.duration),
        scale.total_steps > 0 ? " (" + counted(scale.total_steps, "step") + ")" : "",
        key == "warmup" ? "the learning rate never reaches optimizer.lr" : "no effect"));
  }
  warn_of_idle_rule(checked, scale, warnings);
  return warnings;
}

std::string past_end_warning(int64_t end, int64_t step) {
  return fmt::format(
      "train.duration ends at step {}, and the checkpoint is of step {}: nothing is trained; raise "
      "train.duration, or start a new run (another run.name)",
      end, step);
}

std::vector<std::string> resume_warnings(const CheckedRecipe& checked) {
  const Recipe& recipe = checked.loaded.options;
  const std::vector<int64_t> steps = resumed_checkpoints(recipe.run);
  if (steps.empty()) return {};
  int64_t end = 0;
  const StepScale scale{.tokens_per_sample = checked.source->shape().sequence};
  const bool is_past_end = is_behind_end(recipe, scale, [&](const StepScale& known) {
    end = known.total_steps;
    return steps.back();
  });
  if (!is_past_end) return {};
  return {past_end_warning(end, steps.back())};
}

std::vector<std::string> missing_inputs(const CheckedRecipe& checked) {
  Lines lines;
  visit_nodes(checked.loaded.document.root, "", [&](const Node& node, const std::string& path) {
    if (!node.has_unset_variable) return;
    const std::size_t begin = node.text.find("${env:"), end = node.text.find('}', begin);
    lines.push_back(
        fmt::format("{}: {} is not set", path, node.text.substr(begin, end + 1 - begin)));
  });
  std::set<std::string> told;
  const auto tell_missing = [&](const std::string& key, const DataSource& source, Split split) {
    for (const std::string& file : source.files(split)) {
      const bool is_there = exists_here(file), is_empty = is_there && is_empty_here(file);
      if (file.find("${env:") != std::string::npos || (is_there && !is_empty)) continue;
      const fs::path folder = fs::path(file).parent_path();
      const bool has_folder = is_there || folder.empty() || exists_here(folder);
      const std::string missing = has_folder ? file : folder.string();
      if (!told.insert(missing).second) continue;
      const char* what = is_empty     ? "is empty"
                         : has_folder ? "no such file or folder"
                                      : "no such folder";
      lines.push_back(fmt::format("{}: {}: {}{}", key, missing, what, base_of(missing)));
    }
  };
  tell_missing("data", *checked.source, Split::kTrain);
  tell_missing("data", *checked.source, Split::kValid);
  for (const SetSource& set : checked.sets) {
    tell_missing("evaluate.sets." + set.name, *set.source, Split::kValid);
  }
  const std::optional<InitFrom>& start = checked.loaded.options.model.init_from;
  if (start && start->from.find("${env:") == std::string::npos && !exists_here(start->from)) {
    lines.push_back(fmt::format("model.init_from: {}: no such file or folder{}", start->from,
                                base_of(start->from)));
  }
  return lines;
}

}  // namespace shoal
