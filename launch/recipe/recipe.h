#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/backbone.h"
#include "models/task.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/gradients/weight_average.h"
#include "runtime/data/data_source.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"
#include "runtime/options/config.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"
#include "runtime/options/option_map.h"
#include "runtime/options/registry.h"
#include "sparse/sparsity_options.h"

namespace shoal {

enum class Precision {
  kFloat32,
  kFloat64,
  kBfloat16,  ///< computes in bfloat16; weights, gradients and all state are float32
};

template <>
inline constexpr std::array kEnumWords<Precision>{"float32", "float64", "bfloat16"};

/// The norm of all gradients that train.clip_norm limits.
enum class NormType { kL2, kInf };

template <>
inline constexpr std::array kEnumWords<NormType>{"l2", "inf"};

enum class DeviceKind { kAuto, kCpu, kCuda };

template <>
inline constexpr std::array kEnumWords<DeviceKind>{"auto", "cpu", "cuda"};

/// What to do when the run folder holds an earlier run (recipe key run.on_existing).
enum class OnExisting { kFail, kResume, kNew, kOverwrite };

template <>
inline constexpr std::array kEnumWords<OnExisting>{"fail", "resume", "new", "overwrite"};

/// Units of lengths of a training: those that steps can be counted in, and times.
inline constexpr auto kLengthUnits =
    accepts(DurationUnit::kStep, DurationUnit::kEpoch, DurationUnit::kToken, DurationUnit::kSecond);

/// Largest train.batch, train.group and train.accumulate: a product of two does not overflow.
inline constexpr double kMostSamples = 1 << 30;

/// Section `run` of a recipe, the YAML file that configures a run: where and how to run. In
/// fields(), on_resume() is the rule for a resumed run with another value: kFixed refuses it unless
/// --override is given, kWarned warns, kFree accepts it. changes_scores() is kWarned for keys that
/// only evaluations read. A key without a rule has that of its section, or else kFixed.
/// keeps_evaluation(): what given weights compute in an evaluation does not depend on the key.
struct RunOptions {
  std::string name = "run";
  std::string root = "runs";
  OnExisting on_existing = OnExisting::kFail;
  int64_t seed = 1;
  DeviceKind device = DeviceKind::kAuto;
  std::optional<int64_t> threads;
  bool deterministic = false;
  bool tf32 = false;
  std::optional<Duration> stop_after;
  Duration grace = Duration::seconds(60);
  std::optional<Duration> hang_timeout = Duration::seconds(30 * 60);
  bool tensorboard = true;
  std::optional<Duration> log_layers;
  std::optional<double> peak_tflops;
  bool memory_check = true;

  static constexpr auto fields() {
    return std::tuple{
        field("name", &RunOptions::name, "folder of the run below root", not_empty()),
        field("root", &RunOptions::root, "folder that contains the runs", not_empty(), file_path()),
        field("on_existing", &RunOptions::on_existing, "what to do if the run folder exists"),
        field("seed", &RunOptions::seed, "seed of all random numbers", at_least(0),
              on_resume(OnResume::kFixed)),
        field("device", &RunOptions::device, "auto: cuda if the plug-in and a GPU are available"),
        field("threads", &RunOptions::threads, "threads per rank", in_range(1, 4096),
              unset_word("auto")),
        field("deterministic", &RunOptions::deterministic,
              "bitwise identical runs on the same GPUs; on CPUs, runs always are"),
        field("tf32", &RunOptions::tf32,
              "GPUs round the inputs of float32 products to TF32 (11 significant bits): several "
              "times faster, less precise; no effect on CPUs",
              on_resume(OnResume::kWarned)),
        field("stop_after", &RunOptions::stop_after,
              "saves and ends, with exit code 75, so many steps, or so long, after training "
              "starts; run.on_existing=resume goes on",
              unset_word("never"), above(0), accepts(DurationUnit::kStep, DurationUnit::kSecond)),
        field("grace", &RunOptions::grace,
              "grace period for the last save and its retries, from the signal that stops a run; "
              "any signal after this period, and any second INT or TERM, ends the run at once",
              above(0), accepts(DurationUnit::kSecond)),
        field(
            "hang_timeout", &RunOptions::hang_timeout,
            "longest wait between GPUs for a transfer, its start or a barrier of NCCL, after which "
            "the job ends; exchanges by MPI have no limit yet",
            unset_word("never"), above(0), accepts(DurationUnit::kSecond)),
        field("tensorboard", &RunOptions::tensorboard,
              "also write the metrics for TensorBoard, to tb/"),
        field("log_layers", &RunOptions::log_layers,
              "steps, or time, between records of the norms of each layer's weights, gradients and "
              "updates in layers.jsonl",
              unset_word("never"), above(0), kLengthUnits),
        field("peak_tflops", &RunOptions::peak_tflops,
              "dense peak TFLOP/s of a rank's device, relative to which mfu is computed; auto: "
              "measured at the start on CPUs, the manufacturer's peak on GPUs",
              unset_word("auto"), above(0)),
        field("memory_check", &RunOptions::memory_check,
              "refuse to start if the estimated memory exceeds that of the machine; false: start "
              "anyway")};
  }
  /// Checks that `name` is a path below `root`.
  void validate(Problems& problems) const;
};

/// `model.init_from`: a checkpoint, and which of its weights initialise which of the model's.
struct InitFrom {
  std::string from;
  std::vector<std::string> take;
  config::TextMap rename;
  bool raw_weights = false;

  static constexpr std::string_view kShortKey = "from";  ///< `init_from: PATH` sets `from`
  static constexpr auto fields() {
    return std::tuple{
        required("from", &InitFrom::from, "checkpoint or run", not_empty(), file_path()),
        field("take", &InitFrom::take,
              "weights to load from the checkpoint, by name, with * for any text; none given: all, "
              "and every weight of the model must be among them"),
        field("rename", &InitFrom::rename,
              "prefixes of the checkpoint's names, and their replacements"),
        field("raw_weights", &InitFrom::raw_weights,
              "load the weights themselves, not their averages (train.average), if the checkpoint "
              "has both")};
  }
  /// True if weights of the model may keep their random values.
  bool is_partial() const { return !take.empty() || !rename.empty(); }
};

/// `model`: the backbone with its keys, and the origin of initial weights.
struct ModelOptions {
  Choice<Backbone> backbone;
  std::optional<InitFrom> init_from;
  bool upcycle = false;

  static constexpr auto fields() {
    return std::tuple{
        inlined(&ModelOptions::backbone),
        field("init_from", &ModelOptions::init_from,
              "checkpoint or run whose weights training starts from", unset_word("none"),
              keeps_evaluation(), on_resume(OnResume::kFree)),
        field("upcycle", &ModelOptions::upcycle,
              "init_from is a dense model: each MLP is copied into all the experts that replace it",
              keeps_evaluation(), on_resume(OnResume::kFree))};
  }
  void validate(Problems& problems) const {
    if (upcycle && !init_from) {
      problems.add("upcycle", "needs init_from, the dense checkpoint to start from");
    } else if (upcycle && init_from->is_partial()) {
      problems.add("init_from", "upcycle takes the whole checkpoint; leave take and rename out");
    }
  }
};

/// `train`: length of the training, and the size of a step.
struct TrainOptions {
  Duration duration;
  int64_t batch = 0;
  int64_t group = 8;
  int64_t accumulate = 1;
  double clip_norm = 0.0;
  NormType clip_norm_type = NormType::kL2;
  Precision precision = Precision::kFloat32;
  std::optional<WeightAverage::Options> average;
  bool recompute = false;
  Duration log_every = Duration::steps(50);
  std::optional<int64_t> patience;
  int64_t max_nonfinite_steps = 3;

  static constexpr auto fields() {
    return std::tuple{
        required(
            "duration", &TrainOptions::duration,
            "duration of training; a time is converted to steps at the start, by a timed trial",
            above(0), kLengthUnits, on_resume(OnResume::kFree)),
        required("batch", &TrainOptions::batch, "samples per optimizer step, over all ranks",
                 in_range(1, kMostSamples), unit("samples")),
        field("group", &TrainOptions::group,
              "samples per routing group; routers and capacity compare tokens only within a group",
              in_range(1, kMostSamples), unit("samples")),
        field("accumulate", &TrainOptions::accumulate, "micro-steps per step",
              in_range(1, kMostSamples)),
        field("clip_norm", &TrainOptions::clip_norm, "largest gradient norm; 0 = no limit",
              at_least(0.0), on_resume(OnResume::kWarned)),
        field("clip_norm_type", &TrainOptions::clip_norm_type,
              "l2: norm of all gradients as one vector; inf: the largest absolute value",
              on_resume(OnResume::kWarned)),
        field("precision", &TrainOptions::precision,
              "dtype of activations, weights and all state; bfloat16: only activations and "
              "products, the rest is float32"),
        field("average", &TrainOptions::average,
              "exponential moving average of the weights, used by evaluations and by everything "
              "that reads checkpoints except a resume; training uses the weights themselves",
              unset_word("none")),
        field("recompute", &TrainOptions::recompute,
              "recompute each block in the backward pass instead of storing its activations",
              on_resume(OnResume::kFree)),
        field("log_every", &TrainOptions::log_every,
              "steps, or time, between lines of metrics; also at the end", above(0), kLengthUnits,
              on_resume(OnResume::kFree)),
        field("patience", &TrainOptions::patience,
              "training stops after this many consecutive evaluations without a better score",
              at_least(1), unset_word("none"), on_resume(OnResume::kFree)),
        field("max_nonfinite_steps", &TrainOptions::max_nonfinite_steps,
              "training ends (exit 30) after this many consecutive steps whose loss or gradients "
              "are not finite",
              at_least(1), on_resume(OnResume::kWarned))};
  }
  /// Checks that batch / accumulate is a multiple of group.
  void validate(Problems& problems) const;
};

/// `evaluate`: how often to evaluate, and on which samples.
struct EvaluateOptions {
  std::optional<Duration> every = Duration::epochs(1);
  std::optional<int64_t> samples;
  OptionMap<DataOptions> sets;
  std::optional<std::string> score;
  std::optional<int64_t> stride;

  static constexpr auto fields() {
    return std::tuple{
        field("every", &EvaluateOptions::every, "how often; also at the end, unless it is never",
              above(0), unset_word("never")),
        field("samples", &EvaluateOptions::samples,
              "number of samples of each validation set to evaluate, the same samples in all "
              "evaluations, drawn by run.seed; all: every sample",
              at_least(1), unit("samples"), unset_word("all"), changes_scores()),
        field("sets", &EvaluateOptions::sets,
              "additional validation sets by name, {NAME: {…}}: the `data` keys in which each "
              "differs; its split `valid` is evaluated, with metrics NAME.METRIC",
              changes_scores()),
        field("score", &EvaluateOptions::score,
              "metric that selects the best checkpoint, NAME.METRIC of a set; auto: the task's, on "
              "data.valid",
              not_empty(), unset_word("auto"), changes_scores()),
        field("stride", &EvaluateOptions::stride,
              "stride of sliding-window perplexity on text: windows after the first score only "
              "their last `stride` tokens; none: windows do not overlap",
              at_least(1), unit("tokens"), unset_word("none"), changes_scores())};
  }
  /// Checks the names of the sets.
  void validate(Problems& problems) const;
};

/// `checkpoint`: how often to save, and which checkpoints to keep. Training ends with a save.
struct CheckpointOptions {
  std::optional<Duration> every = Duration::epochs(1);
  int64_t keep_last = 2;
  int64_t keep_best = 1;

  static constexpr auto fields() {
    return std::tuple{field("every", &CheckpointOptions::every, "how often; also at the end",
                            above(0), unset_word("never")),
                      field("keep_last", &CheckpointOptions::keep_last,
                            "number of newest checkpoints to keep", at_least(1)),
                      field("keep_best", &CheckpointOptions::keep_best,
                            "number of best checkpoints to keep", at_least(0))};
  }
};

template <>
inline constexpr std::array kEnumWords<PlacementRule>{"contiguous", "by_cost", "by_load"};

/// `parallel`: how ranks are used. The number of replicas follows from the number of ranks.
struct ParallelOptions {
  std::optional<int64_t> expert_ranks = 1;  ///< check_recipe() replaces auto by its number
  bool uneven = false;
  PlacementRule placement = PlacementRule::kContiguous;
  std::optional<int64_t> ranks_per_node;
  bool overlap_gradients = true;
  bool shard_optimizer = false;
  bool share_gpu = false;

  static constexpr auto fields() {
    return std::tuple{
        field("expert_ranks", &ParallelOptions::expert_ranks,
              "consecutive ranks over which units (such as experts) are sharded; auto: the largest "
              "number that divides the ranks and the units of each layer",
              at_least(1), unset_word("auto")),
        field("uneven", &ParallelOptions::uneven,
              "allow ranks to hold unequal numbers of units; placement by_cost always allows it"),
        field("placement", &ParallelOptions::placement,
              "which rank holds which unit; by_cost balances the cost of a row over ranks, by_load "
              "the load of the units before a resume"),
        field("ranks_per_node", &ParallelOptions::ranks_per_node,
              "consecutive ranks that hierarchical exchanges treat as one node; auto: those of a "
              "machine",
              at_least(1), unset_word("auto")),
        field("overlap_gradients", &ParallelOptions::overlap_gradients,
              "overlap the gradient all-reduce over replicas with the backward pass"),
        field("shard_optimizer", &ParallelOptions::shard_optimizer,
              "each replica stores and updates its shard of the optimizer state (ZeRO-1)"),
        field("share_gpu", &ParallelOptions::share_gpu,
              "allow several ranks on one GPU, for tests: slow, and needs NCCL 2.30")};
  }
};

/// A whole recipe.
struct Recipe {
  RunOptions run;
  DataOptions data;
  ModelOptions model;
  Choice<Task> task;
  Choice<Optimizer> optimizer{"adamw"};
  Choice<Schedule> schedule{"cosine"};
  TrainOptions train;
  std::optional<SparsityOptions> sparsity;
  EvaluateOptions evaluate;
  CheckpointOptions checkpoint;
  ParallelOptions parallel;

  static constexpr auto fields() {
    return std::tuple{
        field("run", &Recipe::run, "where and how to run", on_resume(OnResume::kFree)),
        required("data", &Recipe::data, "what to train on"),
        required("model", &Recipe::model, "what to train"),
        required("task", &Recipe::task, "what to train for"),
        field("optimizer", &Recipe::optimizer, "how weights are updated"),
        field("schedule", &Recipe::schedule, "how the learning rate changes",
              on_resume(OnResume::kWarned)),
        required("train", &Recipe::train, "how long, and what a step is"),
        field("sparsity", &Recipe::sparsity, "sparse training: which layers are sparse, and how",
              unset_word("none")),
        field("evaluate", &Recipe::evaluate, "when to evaluate", on_resume(OnResume::kFree)),
        field("checkpoint", &Recipe::checkpoint, "when to save, and what stays",
              on_resume(OnResume::kFree)),
        field("parallel", &Recipe::parallel, "how the ranks are used", on_resume(OnResume::kFree))};
  }
  /// Completes each of evaluate.sets to a whole section `data`, by lay_over (other_data.h).
  static void complete(config::Node& root, const config::Surroundings& surroundings);
};

extern template const config::Type& config::type_of<Recipe>();  // saves seconds of compiling

using LoadedRecipe = config::Loaded<Recipe>;  ///< with the document it was read from

/// Puts number and names of the classes into the keys of `data` that the recipe leaves to the data,
/// as far as they are there, and returns these keys. Reads names, such as those of folders, and no
/// samples.
std::vector<std::string> find_classes(Recipe& recipe);
/// Gives evaluate.sets the classes of `data`, by which the model's outputs are numbered.
void share_classes(Recipe& recipe);
/// Where a value of the recipe comes from, as "recipe.yaml:14", for comments in written recipes.
config::Comment origins_of(const LoadedRecipe& loaded);

/// Returns a manifest's recipe, `${env:X}` unresolved. Throws ConfigError that names `checkpoint`.
Recipe stored_recipe(const Manifest& manifest, const std::string& checkpoint = "the checkpoint");

/// The dtype of weights, gradients and all state, by train.precision: float32 or float64.
torch::Dtype dtype_of(const Recipe& recipe);
/// The dtype of activations: bfloat16 if train.precision is, else dtype_of.
torch::Dtype compute_dtype_of(const Recipe& recipe);

}  // namespace shoal
