#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"
#include "runtime/data/shards/shard_writer.h"
#include "runtime/yaml/recipe_document.h"

/// What each subcommand takes and does; `doctor` has a header of its own.
namespace shoal {

/// `shoal train RECIPE [key=value …]`.
struct TrainArguments {
  config::RecipeSource source;
  bool override_fixed = false;            ///< --override: resume although the recipe differs
  std::vector<std::string> command_line;  ///< as typed, for env.json
};

/// Trains a recipe on all ranks; writes the run folder and prints a summary. Throws Error (exit 10,
/// 11) before the ranks have met; later failures end the job as by run_on_ranks().
ExitCode train(const TrainArguments& arguments, const Environment& environment);

/// The first samples of what is evaluated, drawn by the task.
struct ImagesRequest {
  std::string folder;  ///< empty, or not there yet; "": nothing is drawn
  int64_t count = 16;
};

/// `shoal eval CKPT|RUN [key=value …] [--best] [--override] [--json] [--images FOLDER [--count N]]
/// [--no-baselines]`.
struct EvalArguments {
  std::string path = {};                    ///< a checkpoint, or a run: its newest checkpoint
  std::vector<std::string> overrides = {};  ///< of the recipe in the checkpoint
  bool best = false;                        ///< the run's best checkpoint instead
  bool raw_weights = false;                 ///< not their averages, where the checkpoint has both
  bool override_model = false;              ///< --override, see add_model_override
  bool json = false;
  ImagesRequest images = {};
  bool baselines = true;  ///< compares with those of the task
};

/// Evaluates a checkpoint on the validation split of its recipe, over however many ranks there are:
/// the recipe's `parallel` is ignored, experts are spread over all ranks. Opens the training split
/// only for baselines that are fitted on it, which are left out with a warning if it cannot be
/// opened. Rank 0 writes to `out`, and pictures as draw_evaluation_images. Throws as load_model.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

// The subcommands for recipes open no data and write nothing but to `out`.

/// `shoal check RECIPE [key=value …] [--world N] [--json]`.
struct CheckArguments {
  config::RecipeSource source;
  std::optional<int64_t> world;  ///< ranks to check for; parallel.expert_ranks if not given
  bool json = false;
  bool expressivity = false;  ///< bounds of the linear regions of sparse MLPs
  bool memory = false;        ///< measure activations by trial steps
};

/// Reads a recipe, builds its model without allocating (but for trial steps with --memory), and
/// checks it against the number of ranks. Notes, and no more, if run.device is cuda and this
/// machine lacks the plug-in or a GPU. Throws ConfigError: exit 10 for the recipe, 11 for the
/// ranks.
ExitCode check(const CheckArguments& arguments, std::ostream& out);

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;
  bool minimal = false;  ///< only what differs from the defaults
};

/// Prints the resolved recipe, each value with where it came from; the output is a recipe again.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

/// `shoal recipes`: the recipes below `folder`, each with the first sentence of its comment, or
/// more where that is but a name. `words`: only those that have all of them in path or sentence.
/// Throws Error (exit 2) if none has.
ExitCode recipes(const std::string& folder, const std::vector<std::string>& words,
                 std::ostream& out);

/// The recipes that the path of a missing file may mean, beside it or below `folder`: those of its
/// file name, else of the nearest one. Three at most, as a user types them.
std::vector<std::string> nearest_recipes(const std::string& path, const std::string& folder);

/// The folder of the recipes that belong to the program at `program`: of the source tree it was
/// built in, or `share/shoal/configs` beside the `bin` it was installed to. Throws Error (exit 2)
/// if there is neither.
std::string find_recipes_folder(const std::string& program);

// The subcommands for checkpoints work without MPI, GPU or model. PATH is a checkpoint's folder, or
// a run's folder, which means the newest one committed there. They throw CheckpointError (exit 20)
// if what they need is damaged, StorageError (exit 21) if it cannot be read.

/// resolve_checkpoint, which names on standard error what does not count.
std::string choose_checkpoint(const std::string& path, bool best, bool pass_unreadable);

/// Two checkpoints differ: the exit code that `diff` and `cmp` have for it.
constexpr ExitCode kDiffers{1};

struct CheckpointArguments {
  std::string path;
  std::string other = {};        ///< the second checkpoint of `diff`
  bool best = false;             ///< of a run's folder, the checkpoint with the best score
  bool pass_unreadable = false;  ///< of a run's folder, the newest or best that can be read
  bool json = false;             ///< one JSON object on `out`
};

/// `shoal ckpt verify PATH`: checks every byte. Exit 0, 20, or 21 if it cannot be read.
ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt ls PATH`: the checkpoints of a run, or the one at PATH, with step, score and size;
/// of those that lack a file or have one of a wrong size, what is wrong (exit 20), or why they
/// cannot be read (exit 21). Reads no data.
ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt diff PATH OTHER`: which tensors and values differ. Exit 0 if none do, else kDiffers;
/// the JSON has `equal`.
ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt digest PATH`: `sha256:…` of tensors, step and data cursor: equal for equal
/// content, whatever the run, the world and the recipe were.
ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out);

struct InspectArguments {
  std::string path;
  std::string diff = {};  ///< compare with this checkpoint, number by number
  bool tensors = false;   ///< list every tensor with its range and norm
  bool best = false;
  bool json = false;
  bool experts = false;  ///< how the run's experts were loaded at the checkpoint's step
  /// With `experts`: draws their loads up to that step into this file, a name in .svg, which is
  /// replaced.
  std::string heat_map = {};
  // For draw_activation_maps and draw_expert_maps, each a folder that is empty or not there yet:
  std::string activation_maps = {}, expert_maps = {};
  int64_t images = 8;  ///< the first ones of the validation split
  // For draw_sparsity (sparsity_maps.h):
  bool sparsity = false;
  std::string page = {};  ///< a file, a name in .html; none: numbers only
  // For draw_gate_maps (gate_maps.h):
  std::string gates = {};                   ///< a file, a name in .html
  int64_t samples = 8;                      ///< the first ones of the validation split
  std::optional<std::string> prompt = {};   ///< this text in their place
  std::vector<std::string> overrides = {};  ///< of the recipe in the checkpoint
  bool raw_weights = false;                 ///< not their averages, where the checkpoint has both
  bool override_model = false;              ///< --override, see add_model_override
};

/// `shoal inspect PATH [--tensors | --diff OTHER | --experts [--heat-map FILE.svg]]`: what a
/// checkpoint holds. `--diff` ends as `ckpt diff` does. The experts are in experts.jsonl of its
/// run; DataError (exit 13) if that has no record up to its step. StorageError (exit 21) if the
/// heat map cannot be written.
ExitCode inspect(const InspectArguments& arguments, std::ostream& out);

/// `shoal report RUN… [--out FILE.html]`.
struct ReportArguments {
  std::vector<std::string> runs;  ///< run folders; of several one page shows them side by side
  std::string out = {};           ///< empty: report.html in the folder of the one run
};

/// Writes a page on runs, finished or going on (run_report.h). Throws Error (exit 2) for several
/// runs without a file and for more than 8, DataError (exit 13) for a folder that is no run,
/// StorageError (exit 21) if the page cannot be written.
ExitCode report(const ReportArguments& arguments, std::ostream& out);

// Exchange of weights with other programs, on this process alone.

/// `shoal import FOLDER|FILE --as FORMAT OUT [key=value …]`.
struct ImportArguments {
  std::string path;
  std::string format;  ///< a registered WeightFormat, or kOwnLayout
  std::string out;
  std::vector<std::string> overrides = {};  ///< of the recipe that the weights give
  bool json = false;
};

/// Turns weights that another program saved into the folder `out`, which is as a run's: a
/// checkpoint of step 0 and resolved.yaml, the recipe of the model. Numbers are converted to the
/// dtype of train.precision, which is float64 where all weights are. Nothing is left at `out` after
/// an error. Throws Error (exit 2) for an unknown format, Error (exit 12) if the weights are not a
/// model that Shoal computes or tensors are missing, surplus or of a wrong shape, all named,
/// ConfigError for the overrides, CheckpointError (exit 20) for files that are damaged,
/// StorageError if they cannot be read, or `out` is there already or cannot be written.
ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out);

/// `shoal export CKPT|RUN --to PROGRAM OUT [--dtype DTYPE] [--best]`.
struct ExportArguments {
  std::string path;
  std::string program;  ///< WeightFormat::program of some format, or kOwnLayout
  std::string out;
  std::string dtype = {};  ///< float32, float64, bfloat16, float16; empty: the checkpoint's
  bool best = false;
  bool raw_weights = false;  ///< not their averages, where the checkpoint has both
  bool json = false;
};

/// Writes model.safetensors and config.json, as the program has them, into the new folder `out`; of
/// Shoal's own layout (own_layout.h), recipe.yaml in place of config.json.
/// Permutations of sparse layers are folded in (FoldedWeights). Throws Error (exit 2) for an
/// unknown program or dtype, Error (exit 12) if the program has no layout for the model or a
/// permutation is still soft, otherwise as import_weights.
ExitCode export_weights(const ExportArguments& arguments, std::ostream& out);

/// `shoal fold CKPT|RUN OUT [--best] [--raw-weights] [--json]`.
struct FoldArguments {
  std::string path;
  std::string out;
  bool best = false;
  bool raw_weights = false;  ///< not their averages, where the checkpoint has both
  bool json = false;
};

/// Writes the model of a checkpoint without its permutations: its weights and masks in the order
/// that they stand for (FoldedWeights), with which it computes the same. `out` is as a run's
/// folder: a checkpoint of the same step without the state of training, and resolved.yaml. Where
/// folded masks are not such as sparsity.pattern has, its recipe has unstructured, static ones.
/// Throws Error (exit 2) if nothing is permuted, Error (exit 12) if a permutation is still soft,
/// CheckpointError, and StorageError as import_weights.
ExitCode fold(const FoldArguments& arguments, std::ostream& out);

/// The values of --as and of --to.
std::vector<std::string> import_formats();
std::vector<std::string> export_programs();

/// `shoal data tokenize FILE… --tokenizer NAME [--KEY VALUE …] --out X.bin`.
struct TokenizeArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::vector<std::pair<std::string, std::string>> options;  ///< the tokenizer's keys
  std::string out;
  bool json = false;
};

/// Encodes files of text into a token cache; an older cache of that name is replaced. Throws Error:
/// exit 2 for the arguments, 13 for the files, 21 if the cache cannot be written.
ExitCode tokenize(const TokenizeArguments& arguments, std::ostream& out);

/// `shoal data pack FOLDER --out DIR [--shard-size BYTES] [--classes]`.
struct PackArguments {
  PackPlan plan;
  bool json = false;
};

/// Packs a folder of images into shards (shard_writer.h). Nothing is left of them after an error.
/// Throws Error: exit 2 unless DIR is an empty folder or none, 13 for the images, 21 if a shard
/// cannot be written.
ExitCode pack(const PackArguments& arguments, std::ostream& out);

/// `shoal data verify DIR|FILE.tar… [--decode]`.
struct VerifyArguments {
  std::vector<std::string> paths;  ///< shards, and folders of them
  bool decodes = false;
  bool json = false;
};

/// Checks shards (verify_shards.h) and writes what is in them and every finding. Throws DataError
/// (exit 13) with the first one.
ExitCode verify_data(const VerifyArguments& arguments, std::ostream& out);

}  // namespace shoal
