#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/backbone.h"
#include "models/formats/foreign_weights.h"
#include "models/task.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/data/data_source.h"
#include "runtime/options/registry.h"

namespace shoal {

/// One weight and its names in Shoal and in the other program's files. Both tensors have equal
/// elements in equal order, unless `is_transposed`.
struct WeightName {
  std::string ours, theirs;
  /// The foreign shape, if it differs from ours. If it has fewer rows, our remaining rows are
  /// padding: zero after an import, omitted by an export.
  std::vector<int64_t> shape = {};
  bool is_transposed = false;  ///< a matrix; the foreign one is our transpose
  /// Duplicate of a weight listed separately: not exported; if a file has it, it must be equal.
  bool is_copy = false;
  bool has_prefix = true;  ///< `theirs` is preceded by WeightFormat::prefix

  /// Returns the foreign shape of a weight whose shape in Shoal is shape_of_ours.
  std::vector<int64_t> shape_of_theirs(std::vector<int64_t> shape_of_ours) const;
  /// Converts a foreign tensor to our shape and dtype. Throws Error (exit 12) with the tensor's
  /// name if a value overflows the dtype; so does to_theirs().
  torch::Tensor to_ours(torch::Tensor value, const std::vector<int64_t>& shape_of_ours,
                        torch::Dtype dtype) const;
  /// Converts our tensor to the foreign layout in this dtype, contiguous.
  torch::Tensor to_theirs(torch::Tensor value, torch::Dtype dtype) const;
};

/// Sections of a recipe that an import derives from weights and config.json.
struct ModelRecipe {
  /// A recipe key whose value is neither in the weights nor in config.json; `why`: the reason.
  struct Key {
    std::string key, why;
  };

  Choice<Backbone> backbone;
  Choice<Task> task;
  Choice<DataSource> data;
  std::vector<Key> required_keys = {};  ///< keys the user must set, each with the reason
  /// Keys set as in the published model of these weights' sizes; `why` begins with the value.
  std::vector<Key> assumed_keys = {};
};

/// Description of a model to export.
struct ModelToExport {
  const Choice<Backbone>& backbone;
  const Choice<Task>& task;
  DataShape data;
  std::optional<ImageTransform> images = {};  ///< preprocessing of its images
  std::vector<std::string> class_names = {};  ///< by label; empty: not known
  std::string dtype = "float32";              ///< of the exported tensors
};

/// Names and layout of another program's weights for one kind of model, such as timm's ViTs.
/// Registered under its name in `shoal import --as`. Lists each weight once, for import and export.
class WeightFormat {
 public:
  struct Context {};
  using Options = NoOptions;
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "weight format";

  virtual ~WeightFormat() = default;
  /// Program name in `shoal export --to`: hf, timm. A program has one format per backbone and task.
  virtual std::string_view program() const = 0;
  /// Registered name of the backbone whose weights this format stores.
  virtual std::string_view backbone() const = 0;
  /// Registered name of the task whose head it describes.
  virtual std::string_view task() const = 0;

  /// Prefix of foreign tensor names, optional when reading.
  virtual std::string_view prefix() const { return ""; }
  /// Patterns of foreign tensors that are not weights, such as masks.
  virtual std::vector<std::string> ignored() const { return {}; }
  /// Derives a recipe from weights. Throws Error (exit 12) that lists features Shoal does not
  /// support, or names the first size that cannot be derived.
  virtual ModelRecipe recipe(const ForeignWeights& weights) const = 0;

  /// Adds a mistake for each option of the model that the format cannot represent.
  virtual void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const = 0;
  /// Adds a mistake for each option with which the exported config.json would make the other
  /// program compute something else. Called for a model that passes check().
  virtual void check_export(const ModelToExport&, Mistakes&) const {}
  /// Lists the weights of a model that passes check().
  virtual std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>& task,
                                        const DataShape& data) const = 0;
  /// Text of the other program's config.json for a model that passes check().
  virtual std::string config(const ModelToExport& model) const = 0;
};

/// Throws Error (exit 12) with the weights of `model` that `names` lacks, so that the format cannot
/// hold the model. `hint`: what the user can do.
void require_all_named(const std::vector<WeightName>& names, const StateList& model,
                       const std::string& hint = "");

/// Adds the names of a layer's weight and bias.
void add_layer(std::vector<WeightName>& names, const std::string& ours, const std::string& theirs);

}  // namespace shoal
