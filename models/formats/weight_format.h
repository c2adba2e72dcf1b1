#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/backbone.h"
#include "models/formats/foreign_weights.h"
#include "models/task.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/data/data_source.h"
#include "runtime/options/registry.h"

namespace shoal {

/// One weight with its names in Shoal and in the other program's files. Both have the same elements
/// in the same order, unless `is_transposed`.
struct WeightName {
  std::string ours, theirs;
  /// Shape in the other program's file, if it differs from ours. If it has fewer rows, our other
  /// rows are padding: zero after an import, left out by an export.
  std::vector<int64_t> shape = {};
  bool is_transposed = false;  ///< true if theirs, a matrix, is the transpose of ours
  /// True for a second copy of a weight that is listed separately: not exported; if stored, it must
  /// be equal.
  bool is_copy = false;
  bool has_prefix = true;  ///< true if WeightFormat::prefix precedes `theirs`

  /// Shape in the other program for one of ours.
  std::vector<int64_t> shape_of_theirs(std::vector<int64_t> shape_of_ours) const;
  /// Converts their tensor to ours, of this shape and dtype. Throws Error (exit 12) that names the
  /// tensor if a number overflows the dtype; so does to_theirs().
  torch::Tensor to_ours(torch::Tensor value, const std::vector<int64_t>& shape_of_ours,
                        torch::Dtype dtype) const;
  /// Converts our tensor to theirs, contiguous, in this dtype.
  torch::Tensor to_theirs(torch::Tensor value, torch::Dtype dtype) const;
};

/// The recipe sections that follow from weights and config.json.
struct ModelRecipe {
  /// A key that neither weights nor config.json determine.
  struct Key {
    std::string key, why;
  };

  Choice<Backbone> backbone;
  Choice<Task> task;
  Choice<DataSource> data;
  std::vector<Key> required_keys = {};  ///< keys that the user has to set, each with the reason
  /// Keys set here as in the one published model of these sizes, each with its value.
  std::vector<Key> assumed_keys = {};
};

/// Description of a model to export.
struct ModelToExport {
  const Choice<Backbone>& backbone;
  const Choice<Task>& task;
  DataShape data;
  std::optional<ImageTransform> images = {};  ///< preprocessing of its images
  std::string dtype = "float32";              ///< dtype of the exported numbers
};

/// Names and layout of a kind of model's weights in another program. Registered under the name that
/// `shoal import --as` takes. A format lists each weight once, for both directions.
class WeightFormat {
 public:
  struct Context {};
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "weight format";

  virtual ~WeightFormat() = default;
  /// Name of the program for `shoal export --to`: hf, timm. At most one of its formats fits a
  /// backbone with a task.
  virtual std::string_view program() const = 0;
  /// Registered name of the backbone whose weights it describes.
  virtual std::string_view backbone() const = 0;
  /// Registered name of the task whose head it describes.
  virtual std::string_view task() const = 0;

  /// Prefix of their tensors' names; optional on import.
  virtual std::string_view prefix() const { return ""; }
  /// Name patterns of their tensors that are not weights, such as masks.
  virtual std::vector<std::string> ignored() const { return {}; }
  /// The recipe of a model with these weights. Throws Error (exit 12) that lists the features Shoal
  /// does not implement, or the first size that cannot be determined.
  virtual ModelRecipe recipe(const ForeignWeights& weights) const = 0;

  /// Adds a mistake for each option of the model that the format cannot represent.
  virtual void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const = 0;
  /// For a model that passes check(): adds the options for which the other program, set up by their
  /// config.json, would compute something else.
  virtual void check_export(const ModelToExport&, Mistakes&) const {}
  /// Lists the weights of a model that passes check().
  virtual std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>& task,
                                        const DataShape& data) const = 0;
  /// Text of their config.json for such a model.
  virtual std::string config(const ModelToExport& model) const = 0;
};

/// Throws Error (exit 12) that lists the model's weights without a name here, which belong to
/// options that check() should have refused.
void require_all_named(const std::vector<WeightName>& names, const StateList& model,
                       const std::string& hint = "");

/// Adds the weight and bias of a layer.
void add_layer(std::vector<WeightName>& names, const std::string& ours, const std::string& theirs);

}  // namespace shoal
