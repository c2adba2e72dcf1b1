#include "launch/check/memory_estimate.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>

#include "launch/machine/machine_facts.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "launch/step/activation_probe.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"
#include "runtime/device/tensor_memory.h"

namespace shoal {
namespace {

/// Memory of a rank for Open MPI: its libraries, and buffers shared with the ranks of the machine.
constexpr int64_t kMpiBytes = int64_t{8} << 20;
/// FLOPs that a trial step should take at most.
constexpr double kTrialFlops = 2e10;
/// FLOPs beyond which no trial step is run: seconds on a core. Between the two a trial has the
/// fewest samples that the model can train on.
constexpr double kMostTrialFlops = 2e11;
constexpr int64_t kLeastSequence = 64;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How a recipe's ranks share its model.
struct Shares {
  int64_t world = 1, expert_ranks = 1;
  bool shards_optimizer = false;
};

/// Bytes of the parameter on the rank that has most of it.
int64_t bytes_on_rank(const Parameter& parameter, int64_t expert_ranks) {
  const auto bytes = static_cast<int64_t>(parameter.tensor.nbytes());
  if (!parameter.is_stacked()) return bytes;
  const int64_t units = parameter.tensor.size(0);
  return bytes / units * divided_up(units, expert_ranks);
}

/// Masks, at a byte a weight, and soft permutations.
int64_t sparsity_bytes(const std::vector<SparseLayerInfo>& layers, int64_t expert_ranks) {
  int64_t bytes = 0;
  for (const SparseLayerInfo& layer : layers) {
    const int64_t copies = layer.copies > 1 ? divided_up(layer.copies, expert_ranks) : 1;
    bytes += copies * (layer.rows * layer.columns + layer.soft_bytes);
  }
  return bytes;
}

int64_t sample_bytes(const Recipe& recipe, const DataShape& shape, int64_t views) {
  const auto real = static_cast<int64_t>(torch::elementSize(dtype_of(recipe)));
  constexpr int64_t kInteger = sizeof(int64_t);
  const int64_t pixels = shape.image ? shape.image->bytes() * views : 0;
  return (pixels + shape.values + shape.targets) * real +
         (shape.sequence * (shape.token_labels > 0 ? 2 : 1)) * kInteger;
}

using Classes = std::vector<std::pair<std::string, int64_t>>;

/// A model that may be on `meta`, and the shape of its data.
struct ShapedModel {
  const BuiltModel& model;
  const DataShape& shape;
};

/// The classes that follow from shapes, for `samples` of a micro-batch.
Classes shape_classes(const CheckedRecipe& checked, const ShapedModel& shaped, const Shares& shares,
                      int64_t samples) {
  const Recipe& recipe = checked.loaded.options;
  const BuiltModel& model = shaped.model;
  int64_t weights = 0, trained = 0, trained_stacked = 0;
  const bool has_key_encoder = model.task->make_step_rule({.total_steps = 1}) != nullptr;
  for (const Parameter& parameter : model.parameters) {
    const int64_t bytes = bytes_on_rank(parameter, shares.expert_ranks);
    weights += bytes;
    if (has_key_encoder && !parameter.tensor.requires_grad()) weights += bytes;  // its last values
    if (!parameter.tensor.requires_grad()) continue;
    trained += bytes;
    if (parameter.is_stacked()) trained_stacked += bytes;
  }
  int64_t updated = trained;  // by this rank
  if (shares.shards_optimizer) {
    updated = divided_up(trained - trained_stacked, shares.world) +
              divided_up(trained_stacked, shares.world / shares.expert_ranks);
  }
  return {{"weights", weights},
          {"gradients", trained},
          {"optimizer", std::ssize(checked.counts.state_kinds) * updated},
          {"averages", recipe.train.average ? trained : 0},
          {"norms of layers", recipe.run.log_layers ? updated : 0},
          {"sparsity",
           recipe.sparsity ? sparsity_bytes(checked.counts.sparse, shares.expert_ranks) : 0},
          // One in use, and those that wait.
          {"batches", samples * sample_bytes(recipe, shaped.shape, model.task->views()) *
                          (recipe.data.prefetch + 1)}};
}

int64_t sum_of(const Classes& classes) {
  return std::accumulate(classes.begin(), classes.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second; });
}

/// Rows as sent and as received, where experts lie on several ranks and their load is even.
int64_t exchange_bytes(const CheckedRecipe& checked, int64_t samples) {
  const Recipe& recipe = checked.loaded.options;
  const std::optional<ModelWork>& work = checked.counts.work;
  if (recipe.parallel.expert_ranks == 1 || !work) return 0;
  return static_cast<int64_t>(2 * work->routed_numbers * static_cast<double>(samples) *
                              static_cast<double>(torch::elementSize(compute_dtype_of(recipe))));
}

/// Bytes of the files of text, which are mapped and end up in memory whole.
int64_t mapped_bytes(const DataSource& source) {
  if (source.shape().sequence == 0) return 0;
  std::set<std::string> files;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    for (const std::string& file : source.files(split)) files.insert(file);
  }
  int64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code failed;
    const auto size = std::filesystem::file_size(file, failed);
    if (!failed) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

/// Samples of two trials, and the tokens of a sample. Without a small one, the large one has all
/// samples (`is_whole`) or tells nothing of more of them.
struct Trials {
  int64_t small = 0, large = 0;
  int64_t sequence = 0;
  bool is_whole = false;
};

/// Chooses trials of at most `samples`, or twice the fewest; nothing if these take too long.
std::optional<Trials> choose_trials(const CheckedRecipe& checked, int64_t samples) {
  const DataShape shape = checked.source->shape();
  const std::optional<ModelWork>& work = checked.counts.work;
  const int64_t least = checked.model.task->compares_samples() ? 2 : 1;
  Trials trials{.sequence = shape.sequence};
  double flops = work ? work->training_flops : kTrialFlops / 8;
  while (flops > kTrialFlops && !shape.image && trials.sequence >= 2 * kLeastSequence) {
    trials.sequence /= 2;
    flops /= 2;
  }
  if (flops * static_cast<double>(least) > kMostTrialFlops) return std::nullopt;
  const double affordable = flops > 0 ? kTrialFlops / flops : static_cast<double>(samples);
  trials.large =
      std::clamp<int64_t>(static_cast<int64_t>(std::min(affordable, static_cast<double>(samples))),
                          least, std::max(least, samples));
  const int64_t group = checked.loaded.options.train.group;
  if (trials.large > group) trials.large -= trials.large % group;
  trials.small = trials.large / 2;
  if (trials.small > group) trials.small -= trials.small % group;
  if (trials.small < least) trials.small = 0;
  trials.is_whole = trials.large >= samples && trials.sequence == shape.sequence;
  if (trials.small == 0 && !trials.is_whole &&
      2 * flops * static_cast<double>(trials.large) <= kMostTrialFlops) {
    trials.small = trials.large;
    trials.large *= 2;
  }
  return trials;
}

/// The bytes that a trial took beside those that follow from shapes.
struct Trial {
  double samples = 0;  ///< in samples of the recipe's length
  double activations = 0;
  int64_t process = 0;
};

Trial run_trial(const CheckedRecipe& checked, const ShapedModel& shaped, int64_t samples) {
  const int64_t sequence = shaped.shape.sequence, whole = checked.source->shape().sequence;
  const ProbedMemory probed =
      probe_memory(checked.loaded.options, *checked.source, samples, sequence);
  const int64_t known = sum_of(shape_classes(checked, shaped, {}, samples));
  const double share = whole > 0 ? static_cast<double>(sequence) / static_cast<double>(whole) : 1.0;
  return {static_cast<double>(samples) * share,
          static_cast<double>(std::max<int64_t>(0, probed.tensors - known)), probed.process};
}

/// Bytes that grow with the samples beside activations.
double bytes_of_samples(const MemoryEstimate& estimate) {
  double bytes = 0;
  for (const auto& [name, of_class] : estimate.classes) {
    if (name == "batches" || name == "exchange") bytes += static_cast<double>(of_class);
  }
  return bytes;
}

/// Runs the trials and adds what they measure. Memory that does not depend on the samples is told
/// apart from theirs by two trials alone: after one, more samples are not estimated.
void add_trials(const CheckedRecipe& checked, const Trials& trials, int64_t world,
                MemoryEstimate& estimate) {
  const DataShape whole = checked.source->shape(), shape = probed_shape(whole, trials.sequence);
  const bool is_cut = shape.sequence != whole.sequence;
  const BuiltModel small_model =
      is_cut ? build_model(checked.loaded.options, shape) : checked.model;
  const ShapedModel shaped{small_model, shape};
  Trial small;
  if (trials.small > 0) small = run_trial(checked, shaped, trials.small);
  const Trial large = run_trial(checked, shaped, trials.large);
  double activations = large.activations;
  if (trials.small > 0) {
    const double slope =
        std::max(0.0, large.activations - small.activations) / (large.samples - small.samples);
    activations += slope * (static_cast<double>(estimate.samples) - large.samples);
    estimate.bytes_of_sample =
        slope + bytes_of_samples(estimate) / static_cast<double>(estimate.samples);
  }
  estimate.classes.emplace_back("activations", static_cast<int64_t>(std::max(0.0, activations)));
  estimate.classes.emplace_back("process", large.process + (world > 1 ? kMpiBytes : 0));
  estimate.has_activations = trials.small > 0 || trials.is_whole;
  estimate.not_measured =
      estimate.has_activations
          ? ""
          : fmt::format(
                "a second, larger trial takes too long on a processor; those of {}{} are "
                "in the sum",
                counted(trials.large, "sample"),
                trials.sequence > 0 ? " of " + counted(trials.sequence, "token") : "");
}

/// "weights 1.2 GiB, activations 30.0 GiB": what takes a tenth of the sum or more.
std::string largest_classes(const MemoryEstimate& estimate) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : estimate.classes) {
    if (bytes >= estimate.total() / 10) parts.push_back(name + " " + human_bytes(bytes));
  }
  return join_words(parts);
}

/// The bytes that are available there; nothing where a GPU's allocator does not tell.
std::optional<int64_t> available_to(const RunPlace& place) {
  if (!place.device.is_cuda()) return machine_memory().available_bytes;
  try {
    return static_cast<int64_t>(
        c10::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(place.device.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

int64_t MemoryEstimate::total() const { return sum_of(classes); }

MemoryEstimate estimate_memory(const CheckedRecipe& checked, int64_t world) {
  const Recipe& recipe = checked.loaded.options;
  const Shares shares{world, *recipe.parallel.expert_ranks, recipe.parallel.shard_optimizer};
  MemoryEstimate estimate;
  const int64_t groups = recipe.train.batch / recipe.train.accumulate / recipe.train.group;
  estimate.samples = divided_up(groups, world) * recipe.train.group;
  const DataShape shape = checked.source->shape();
  estimate.classes = shape_classes(checked, {checked.model, shape}, shares, estimate.samples);
  const auto saved = static_cast<int64_t>(checked.counts.checkpoint.data_bytes);
  estimate.classes.emplace_back("checkpoint", divided_up(saved, world));
  estimate.classes.emplace_back("exchange", exchange_bytes(checked, estimate.samples));
  estimate.page_cache_bytes = mapped_bytes(*checked.source);
  estimate.not_measured = "not asked for";
  return estimate;
}

void measure_activations(const CheckedRecipe& checked, int64_t world, int64_t available,
                         MemoryEstimate& estimate) {
  const DataShape shape = checked.source->shape();
  const int64_t alone = sum_of(shape_classes(checked, {checked.model, shape}, {}, 1));
  if (alone > available / 2) {
    estimate.not_measured =
        fmt::format("a trial with all experts takes {}, and this machine has {} left",
                    human_bytes(alone), human_bytes(available));
    return;
  }
  const std::optional<Trials> trials = choose_trials(checked, estimate.samples);
  if (!trials) {
    estimate.not_measured = "a training step of one sample takes too long on a processor";
    return;
  }
  try {
    add_trials(checked, *trials, world, estimate);
  } catch (const std::exception& error) {
    estimate.not_measured = std::string("a trial step failed: ") + error.what();
  }
  release_tensor_memory();
}

void keep_device_classes(MemoryEstimate& estimate) {
  std::erase_if(estimate.classes, [](const auto& entry) {
    return entry.first == "batches" || entry.first == "checkpoint" || entry.first == "process";
  });
}

std::optional<int64_t> most_activations(const CheckedRecipe& checked,
                                        const MemoryEstimate& estimate) {
  if (!checked.counts.work) return std::nullopt;
  const double bytes = checked.counts.work->multiply_adds * static_cast<double>(estimate.samples);
  constexpr double kMost = 1e18;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

std::string to_text(const MemoryEstimate& estimate, int64_t ranks) {
  std::vector<std::vector<std::string>> rows{{"memory per rank", "estimate"}};
  const auto add = [&rows](const std::string& name, int64_t bytes) {
    rows.push_back({name, human_bytes(bytes)});
  };
  for (const auto& [name, bytes] : estimate.classes) {
    if (bytes > 0) add(name, bytes);
  }
  const bool has_some = std::ranges::any_of(
      estimate.classes, [](const auto& entry) { return entry.first == "activations"; });
  if (!has_some) rows.push_back({"activations", "not measured"});
  add(estimate.has_activations ? "sum"
      : has_some               ? "at least"
                               : "sum without activations",
      estimate.total());
  if (ranks > 1) add(fmt::format("{} ranks on one machine", ranks), ranks * estimate.total());
  if (estimate.page_cache_bytes > 0) {
    add("page cache of text files, once a machine, not in the sum", estimate.page_cache_bytes);
  }
  return text_table(rows);
}

std::string memory_hint(const CheckedRecipe& checked, const MemoryEstimate& estimate,
                        int64_t available_of_rank, int64_t world) {
  const TrainOptions& train = checked.loaded.options.train;
  std::string batch;
  if (estimate.bytes_of_sample > 0) {
    const double fixed = static_cast<double>(estimate.total()) -
                         estimate.bytes_of_sample * static_cast<double>(estimate.samples);
    const double fitting =
        (static_cast<double>(available_of_rank) - fixed) / estimate.bytes_of_sample;
    const int64_t groups = fitting > 0 ? static_cast<int64_t>(fitting) / train.group * world : 0;
    batch = groups > 0 ? fmt::format(
                             "train.batch {} or less fits, or as much with a larger "
                             "train.accumulate; ",
                             groups * train.group * train.accumulate)
                       : "no train.batch fits; ";
  }
  return batch +
         "train.recompute keeps fewer activations, parallel.shard_optimizer and more "
         "parallel.expert_ranks share out state; run.memory_check=false starts all the same";
}

std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell) {
  MemoryEstimate estimate = estimate_memory(checked, world);
  if (place.device.is_cuda()) keep_device_classes(estimate);
  const int64_t ranks = place.device.is_cuda() ? 1 : place.ranks;
  const std::optional<int64_t> most = most_activations(checked, estimate);
  if (most && *most < available && (estimate.total() + *most) * ranks <= available) return "";
  if (!place.device.is_cuda()) {
    tell("memory check: measuring activations by trial steps");
    measure_activations(checked, world, available, estimate);
    if (!estimate.has_activations) {
      tell("memory check: activations are not estimated: " + estimate.not_measured);
    }
  }
  if (estimate.total() * ranks <= available) return "";
  return fmt::format(
      "train.batch: a rank would take about {} ({}; {} in a micro-batch), {} on this {} {}, of "
      "which {} is available; {}",
      human_bytes(estimate.total()), largest_classes(estimate), counted(estimate.samples, "sample"),
      counted(ranks, "rank"), place.device.is_cuda() ? "GPU" : "machine",
      human_bytes(ranks * estimate.total()), human_bytes(available),
      memory_hint(checked, estimate, available / ranks, world));
}

std::vector<std::string> require_memory(const CheckedRecipe& checked, const RunPlace& place,
                                        Communicator& world, Console& console) {
  std::vector<std::string> told;
  if (!checked.loaded.options.run.memory_check) return told;
  const auto tell = [&](const std::string& line) {
    console.print(line);
    told.push_back(line);
  };
  const std::string refusal = on_rank_zero(world, [&]() -> std::string {
    const std::optional<int64_t> available = available_to(place);
    return available ? memory_refusal(checked, world.size(), place, *available, tell) : "";
  });
  if (!refusal.empty()) throw ConfigError(refusal, ExitCode::kTopology);
  return told;
}

}  // namespace shoal
