#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// A tensor of a checkpoint. In a stack, dimension 0 holds the units (experts) `unit_ids`, the name
/// has a `*` for the id, and each unit is saved as an entry of its own. A tensor is a stack if it
/// has `unit_ids`, or, on a rank that holds none of the units, if `is_stacked`.
struct StateTensor {
  std::string name;
  torch::Tensor& value;
  bool is_stacked = false;
  std::vector<int64_t> unit_ids = {};
};

/// State entry for a `value` of the shape of `parameter`, saved beside it, by unit if it is
/// stacked: `optimizer.m.` + `blocks.0.experts.*.fc1.weight`.
inline StateTensor state_like(const std::string& prefix, const Parameter& parameter,
                              torch::Tensor& value) {
  return {prefix + parameter.name, value, parameter.is_stacked(), parameter.unit_ids};
}

/// Called with each value of a checkpoint: one visitor writes it, another reads it back in place.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void tensor(const StateTensor& entry) = 0;
  virtual void integer(const std::string& name, int64_t& value) = 0;
  virtual void real(const std::string& name, double& value) = 0;
  virtual void text(const std::string& name, std::string& value) = 0;
};

/// Visits a state with a row for each matrix of `parameter`, beside it: all rows of a stack, or the
/// one row without its dimension.
inline void visit_rows(StateVisitor& visitor, const std::string& prefix, const Parameter& parameter,
                       const torch::Tensor& rows) {
  torch::Tensor value = parameter.is_stacked() ? rows : rows[0];
  visitor.tensor(state_like(prefix, parameter, value));
}

/// True if a checkpoint has a tensor of this name.
using SavedNames = std::function<bool(const std::string& tensor)>;

/// An object whose state is saved in checkpoints. One list of fields both saves and loads. Names
/// are logical and equal on all ranks; a rank lists its own units only.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void visit_state(StateVisitor& visitor) = 0;
  /// Called before a checkpoint is read, for state whose set of tensors changes during training:
  /// creates and removes tensors so that they are those that the checkpoint has.
  virtual void fit_to(const SavedNames& saved) { (void)saved; }
  /// Called after a checkpoint was read into the tensors that the last visit listed. Collective,
  /// like loading: collective calls must come before anything that may throw on one rank alone.
  virtual void tensors_loaded() {}
};

}  // namespace shoal
