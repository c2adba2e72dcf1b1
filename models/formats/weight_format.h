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

/// One weight under its two names, in Shoal and in the other program's files. Both have the same
/// elements in the same order, unless `is_transposed`.
struct WeightName {
  std::string ours, theirs;
  /// The shape in the other program's file, if it differs from ours. With fewer rows than ours, our
  /// other rows are padding: zero after an import, left out by an export.
  std::vector<int64_t> shape = {};
  bool is_transposed = false;  ///< a matrix, theirs is the transpose of ours
  /// A repetition of a weight that has its own line: not exported; where it is stored, it must be
  /// equal.
  bool is_copy = false;
  bool has_prefix = true;  ///< WeightFormat::prefix stands before `theirs`

  /// The shape of theirs for one of ours.
  std::vector<int64_t> shape_of_theirs(std::vector<int64_t> shape_of_ours) const;
  /// Ours of this shape and dtype from theirs. Throws Error (exit 12) that names the tensor where
  /// a number is too large for the dtype; so does to_theirs().
  torch::Tensor to_ours(torch::Tensor value, const std::vector<int64_t>& shape_of_ours,
                        torch::Dtype dtype) const;
  /// Theirs in this dtype, contiguous, from ours.
  torch::Tensor to_theirs(torch::Tensor value, torch::Dtype dtype) const;
};

/// The sections of a recipe that follow from weights and config.json.
struct ModelRecipe {
  /// A key that neither determines.
  struct Key {
    std::string key, why;
  };

  Choice<Backbone> backbone;
  Choice<Task> task;
  Choice<DataSource> data;
  std::vector<Key> required_keys = {};  ///< which the user has to set, each with the reason
  /// Which are set here, as in the one published model of these sizes; each with its value.
  std::vector<Key> assumed_keys = {};
};

/// A model to export.
struct ModelToExport {
  const Choice<Backbone>& backbone;
  const Choice<Task>& task;
  DataShape data;
  std::optional<ImageTransform> images = {};  ///< what becomes of its images
  std::string dtype = "float32";              ///< of the exported numbers
};

/// How another program names and lays out the weights of a kind of model. Registered under the name
/// that `shoal import --as` takes. A format lists each weight once, for both directions.
class WeightFormat {
 public:
  struct Context {};
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "weight format";

  virtual ~WeightFormat() = default;
  /// What `shoal export --to` calls the program: hf, timm. Of its formats, one fits a backbone with
  /// a task.
  virtual std::string_view program() const = 0;
  /// The registered name of the backbone whose weights it lays out.
  virtual std::string_view backbone() const = 0;
  /// That of the task whose head it lays out.
  virtual std::string_view task() const = 0;

  /// What their tensors' names begin with, and may lack where they are read.
  virtual std::string_view prefix() const { return ""; }
  /// Patterns of their tensors that are no weights, such as masks.
  virtual std::vector<std::string> ignored() const { return {}; }
  /// The recipe of a model with these weights. Throws Error (exit 12) that lists what of it Shoal
  /// does not compute, or the first size that cannot be told.
  virtual ModelRecipe recipe(const ForeignWeights& weights) const = 0;

  /// Adds the model's options that the format cannot represent.
  virtual void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const = 0;
  /// Adds the options of a model that passes check() with which the program, as their config.json
  /// sets it up, would not compute what the model computes.
  virtual void check_export(const ModelToExport&, Mistakes&) const {}
  /// The weights of a model that passes check().
  virtual std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>& task,
                                        const DataShape& data) const = 0;
  /// Their config.json for such a model.
  virtual std::string config(const ModelToExport& model) const = 0;
};

/// Throws Error (exit 12) that lists the weights of the model that have no name here: those of
/// options that check() should have refused.
void require_all_named(const std::vector<WeightName>& names, const StateList& model,
                       const std::string& hint = "");

/// The weight and bias of a layer.
void add_layer(std::vector<WeightName>& names, const std::string& ours, const std::string& theirs);

}  // namespace shoal
