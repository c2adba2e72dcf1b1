#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"
#include "launch/model/model_work.h"
#include "launch/recipe/recipe.h"
#include "models/backbone.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/yaml/recipe_document.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Sizes and properties of the model that a recipe describes, over all ranks.
struct ModelCounts {
  int64_t parameters = 0;
  int64_t parameters_headless = 0;      ///< without the classifier's weight and bias
  int64_t active_parameters = 0;        ///< used for one token; experts that it skips do not count
  bool lacks_head = false;              ///< the classifier is not counted: its size is not known
  std::vector<MoeStageInfo> stages;     ///< layers with routed units (experts or memory units)
  std::vector<SparseLayerInfo> sparse;  ///< layers whose weights have sparsity masks
  std::vector<std::string> notes_on_accumulation;  ///< effects of train.accumulate on losses
  /// Kinds of optimizer state (m, v, t), one number per parameter element each: to estimate memory.
  /// step_count_kinds: those that count an element's updates since sparse training regrew it (t).
  /// Without sparsity these counts are all equal; recipe_notes() then remarks that they do nothing.
  std::vector<std::string> state_kinds, step_count_kinds;
  CheckpointSize checkpoint;      ///< upper bounds of a checkpoint's size
  std::optional<ModelWork> work;  ///< multiply-adds and FLOPs; unset: unknown
};

/// A recipe without mistakes, as far as can be told before data is opened, and with the number that
/// parallel.expert_ranks: auto stands for.
struct CheckedRecipe {
  LoadedRecipe loaded;
  std::shared_ptr<const DataSource> source;  ///< not opened: no file has been read
  std::vector<SetSource> sets;               ///< of evaluate.sets, not opened either
  BuiltModel model;  ///< on the meta device: tensors have shapes but no memory
  ModelCounts counts;
};

/// Reads a recipe and checks all that needs neither data nor allocation: the rules of its sections,
/// model and optimizer, durations in units that the data lack (such as tokens, for images), overlap
/// of training and validation data, and the number of ranks, `world` (default:
/// parallel.expert_ranks, 1 if that is auto). `unset`: whether a value that needs an unset
/// environment variable is a mistake. Skips a rule if a section that it reads already has a
/// mistake. Throws one ConfigError with every mistake: exit 11 if only the ranks do not fit,
/// else 10.
CheckedRecipe check_recipe(const config::RecipeSource& source, config::UnsetVariable unset,
                           std::optional<int64_t> world);

/// True if a place, such as the end of a warm-up, lies behind the training's end; false if that is
/// not known, as train.duration is a time. `place` computes its step from a StepScale. Before the
/// data is opened, `scale` has only tokens_per_sample; the result is then true only if the place is
/// behind the end for a short and for a very long epoch.
bool is_behind_end(const Recipe& recipe, StepScale scale,
                   const std::function<int64_t(const StepScale&)>& place);

}  // namespace shoal
