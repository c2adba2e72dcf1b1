#include "launch/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "launch/check/check_recipe.h"
#include "launch/check/memory_estimate.h"
#include "launch/check/recipe_notes.h"
#include "launch/job/launch_info.h"
#include "launch/machine/machine_facts.h"
#include "launch/recipe/recipe.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/device/device.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config.h"

namespace shoal {
namespace {

/// The name with `*` for numbers: layers of all blocks in one line.
std::string without_numbers(const std::string& name) {
  static const std::regex kNumber("(^|\\.)[0-9]+");
  return std::regex_replace(name, kNumber, "$1*");
}

/// Layers of equal names but for numbers, sizes and densities in one line.
void print_sparse(const Recipe& recipe, const std::vector<SparseLayerInfo>& layers,
                  std::ostream& out) {
  if (layers.empty()) return;
  int64_t on = 0, all = 0, soft_bytes = 0;
  std::vector<std::string> lines;
  std::map<std::string, int64_t> count_of_line;
  for (const SparseLayerInfo& layer : layers) {
    const int64_t weights = layer.rows * layer.columns;
    on += layer.weights * layer.copies;
    all += weights * layer.copies;
    soft_bytes += layer.soft_bytes * layer.copies;
    const std::string line = fmt::format(
        "{}: {} x {}{}, {} of {} weights on{}, density {:.4g} for {:.4g}, {} with masks",
        without_numbers(layer.name), layer.rows, layer.columns,
        layer.copies > 1 ? " of " + counted(layer.copies, "expert") : "", grouped(layer.weights),
        grouped(weights),
        layer.low_rank > 0 ? fmt::format(" and in a product of rank {}", layer.low_rank) : "",
        layer.reached(), layer.density, human_bytes(layer.bytes * layer.copies));
    if (++count_of_line[line] == 1) lines.push_back(line);
  }
  out << fmt::format("sparse      {} of {} weights on in {}, pattern {}, rule {}, permutation {}\n",
                     grouped(on), grouped(all), counted(std::ssize(layers), "layer"),
                     recipe.sparsity->pattern.name(), recipe.sparsity->rule.name(),
                     recipe.sparsity->permutation.name());
  for (const std::string& line : lines) {
    out << fmt::format("            {} times {}\n", count_of_line[line], line);
  }
  if (soft_bytes > 0) {
    out << fmt::format(
        "            soft permutations, with gradients and Adam's state: {} ({} bytes) "
        "over all experts, until they are hard\n",
        human_bytes(soft_bytes), grouped(soft_bytes));
  }
}

/// Lines on what is hardly meant in the recipe, and on what this machine lacks.
std::vector<std::string> all_warnings(const CheckedRecipe& checked, int64_t world) {
  PosixFileSystem files;
  std::vector<std::string> lines = recipe_warnings(checked, world, files);
  std::ranges::move(schedule_warnings(checked), std::back_inserter(lines));
  std::ranges::move(resume_warnings(checked), std::back_inserter(lines));
  std::ranges::move(missing_inputs(checked), std::back_inserter(lines));
  if (const auto threads = checked.loaded.options.run.threads) {
    LaunchInfo here = read_launch_info(environment_variable);
    here.local_size = world;  // as if all ranks ran on this machine
    std::ranges::move(core_warnings(look_at_cores(here, *threads)), std::back_inserter(lines));
  }
  return lines;
}

/// "8 experts", "12 experts and 4 memory units".
std::string units_text(const MoeStageInfo& stage) {
  const int64_t experts = stage.num_units - stage.num_memory_units;
  std::vector<std::string> parts;
  if (experts > 0) parts.push_back(counted(experts, "expert"));
  if (stage.num_memory_units > 0) parts.push_back(counted(stage.num_memory_units, "memory unit"));
  return join_words(parts, " and ");
}

/// True if a GPU trains, as far as this machine tells.
bool runs_on_gpu(const RunOptions& run) {
  return run.device == DeviceKind::kCuda ||
         (run.device == DeviceKind::kAuto && cuda_absence().empty());
}

void print_text(const CheckedRecipe& checked, int64_t world,
                const std::vector<std::string>& warnings, std::ostream& out) {
  const Recipe& recipe = checked.loaded.options;
  const ModelCounts& counts = checked.counts;
  const TrainOptions& train = recipe.train;
  out << fmt::format("model       {}, {} parameters ({} without head, {} active per token)\n",
                     recipe.model.backbone.name(), grouped(counts.parameters),
                     grouped(counts.parameters_headless), grouped(counts.active_parameters));
  for (const MoeStageInfo& stage : counts.stages) {
    out << fmt::format("            {}: {}, {} per token\n", stage.name, units_text(stage),
                       stage.units_per_token);
  }
  if (counts.work) {
    out << fmt::format(
        "            {:.4g} M multiply-adds per sample, {:.4g} GFLOP per sample in training\n",
        counts.work->multiply_adds / 1e6, counts.work->training_flops / 1e9);
  }
  print_sparse(recipe, counts.sparse, out);
  out << fmt::format("ranks       {} = {} x {}\n", world,
                     counted(*recipe.parallel.expert_ranks, "expert-parallel rank"),
                     counted(world / *recipe.parallel.expert_ranks, "replica"));
  out << fmt::format("step        {} in {} of {} of {}\n", counted(train.batch, "sample"),
                     counted(train.accumulate, "micro-step"),
                     counted(train.batch / train.accumulate / train.group, "routing group"),
                     train.group);
  out << fmt::format("training    {} with {}, schedule {}\n", to_text(train.duration),
                     recipe.optimizer.name(), recipe.schedule.name());
  const CheckpointSize& checkpoint = counts.checkpoint;
  out << fmt::format("checkpoint  up to {} in at most {}\n", human_bytes(checkpoint.data_bytes),
                     counted(static_cast<int64_t>(checkpoint.num_shards), "shard"));
  out << fmt::format("device      {}{}\n", enum_name(recipe.run.device),
                     recipe.run.device == DeviceKind::kAuto
                         ? ": decided where training starts; `shoal doctor` examines a machine"
                         : "");
  for (const std::string& note : recipe_notes(checked, runs_on_gpu(recipe.run))) {
    out << "note        " << note << "\n";
  }
  for (const std::string& line : warnings) out << "warning     " << line << "\n";
}

/// Reasons why this machine cannot run a good recipe as it is: no data, no GPU or too little
/// memory. Without a trial `estimate` is a lower bound. No plug-in is loaded to look for GPUs.
std::vector<std::string> obstacles_here(const CheckedRecipe& checked, int64_t world,
                                        const MemoryEstimate& estimate) {
  const RunOptions& run = checked.loaded.options.run;
  std::vector<std::string> obstacles = missing_inputs(checked);
  const std::string absence = cuda_absence();
  if (run.device == DeviceKind::kCuda && !absence.empty()) obstacles.push_back(absence);
  const int64_t needed = estimate.total() * world, available = machine_memory().available_bytes;
  if (run.memory_check && !runs_on_gpu(run) && needed > available) {
    obstacles.push_back(fmt::format("too little memory, {} of {} available for {}",
                                    human_bytes(available), human_bytes(needed),
                                    counted(world, "rank")));
  }
  return obstacles;
}

/// The classes of memory of a rank; the sum only where nothing is missing in it.
nlohmann::ordered_json memory_json(const MemoryEstimate& estimate) {
  nlohmann::ordered_json json;
  for (const auto& [name, bytes] : estimate.classes) json[name] = bytes;
  if (estimate.has_activations) json["sum"] = estimate.total();
  return json;
}

void print_memory(const CheckedRecipe& checked, int64_t world, const MemoryEstimate& estimate,
                  std::ostream& out) {
  out << to_text(estimate, world);
  if (!estimate.has_activations) {
    out << "  activations are not estimated: " << estimate.not_measured << "\n";
  }
  if (runs_on_gpu(checked.loaded.options.run)) {
    out << "  activations of a processor; those of a GPU's kernels differ\n";
    return;
  }
  const MachineMemory machine = machine_memory();
  out << fmt::format("  this machine has {}, {} of it available", human_bytes(machine.total_bytes),
                     human_bytes(machine.available_bytes));
  if (estimate.total() * world > machine.available_bytes) {
    out << fmt::format(": too little for {} here; {}", counted(world, "rank"),
                       memory_hint(checked, estimate, machine.available_bytes / world, world));
  }
  out << "\n";
}

/// Prints the bounds as a table with a row per setting, like that of PA-DST, appendix C.1.
void print_expressivity(const std::vector<Expressivity>& settings, std::ostream& out) {
  out << fmt::format("{:<22}  {:>26}  {:>20}  {}\n", "expressivity", "directions, first layers",
                     "log10 linear regions", "all directions from layer");
  for (const Expressivity& one : settings) {
    std::vector<int64_t> directions = one.bound.directions;
    if (directions.size() > 4) directions.resize(4);
    out << fmt::format(
        "{:<22}  {:>26}  {:>20.1f}  {}\n", one.setting,
        fmt::format("{}", fmt::join(directions, " ")), one.bound.log10_regions,
        one.bound.layers_to_catch_up ? std::to_string(*one.bound.layers_to_catch_up) : "none");
  }
}

}  // namespace

std::vector<Expressivity> expressivity_of(const std::vector<SparseLayerInfo>& layers) {
  std::vector<RegionLayer> masked;
  int64_t inputs = 0;
  for (const SparseLayerInfo& layer : layers) {
    if (layer.name.find("mlp.") == std::string::npos || layer.copies > 1) continue;
    if (masked.empty()) inputs = layer.columns;
    masked.push_back({layer.rows, layer.span});
  }
  if (masked.empty()) {
    throw ConfigError(
        "sparsity.layers: no MLP of this model is sparse, and --expressivity counts "
        "linear regions of MLPs");
  }
  std::vector<RegionLayer> free = masked;
  for (RegionLayer& layer : free) layer.span.reset();
  return {{"dense or unstructured", bound_regions(inputs, free, RegionMixing::kNone)},
          {"these masks", bound_regions(inputs, masked, RegionMixing::kNone)},
          {"these masks, permuted", bound_regions(inputs, masked, RegionMixing::kPermuted)}};
}

ExitCode check(const CheckArguments& arguments, std::ostream& out) {
  const CheckedRecipe checked =
      check_recipe(arguments.source, config::UnsetVariable::kKeep, arguments.world);
  const ModelCounts& counts = checked.counts;
  const int64_t world = arguments.world.value_or(*checked.loaded.options.parallel.expert_ranks);
  std::vector<Expressivity> expressivity;
  if (arguments.expressivity) expressivity = expressivity_of(counts.sparse);
  const std::vector<std::string> warnings = all_warnings(checked, world);
  if (!arguments.json) print_text(checked, world, warnings, out);
  MemoryEstimate memory = estimate_memory(checked, world);
  if (arguments.memory) {
    set_up_torch(checked.loaded.options.run.threads, /*deterministic=*/false,
                 read_launch_info(environment_variable));
    measure_activations(checked, world, machine_memory().available_bytes, memory);
  }
  const std::vector<std::string> obstacles = obstacles_here(checked, world, memory);
  if (arguments.json) {
    nlohmann::ordered_json json{{"parameters", counts.parameters},
                                {"parameters_headless", counts.parameters_headless},
                                {"active_parameters", counts.active_parameters},
                                {"world", world},
                                {"expert_ranks", *checked.loaded.options.parallel.expert_ranks},
                                {"warnings", warnings},
                                {"ready", obstacles.empty()},
                                {"obstacles", obstacles}};
    json["memory_bytes"] = memory_json(memory);
    json["page_cache_bytes"] = memory.page_cache_bytes;
    if (!memory.has_activations) json["not_measured"] = memory.not_measured;
    if (counts.work) {
      json["multiply_adds"] = counts.work->multiply_adds;
      json["training_flops"] = counts.work->training_flops;
    }
    for (const Expressivity& one : expressivity) {
      json["log10_linear_regions"][one.setting] = one.bound.log10_regions;
    }
    out << json_text(json) << "\n";
  } else {
    if (arguments.memory) print_memory(checked, world, memory, out);
    if (!expressivity.empty()) print_expressivity(expressivity, out);
    out << (obstacles.empty() ? "good\n"
                              : "the recipe is good, but cannot run here yet: " +
                                    join_words(obstacles, "; ") + "\n");
  }
  return ExitCode::kOk;
}

}  // namespace shoal
