#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// A tensor in the saved state. `unit_ids` not empty, or `is_stacked`: dimension 0 stacks these
/// units, the name holds a `*`, and each unit becomes an entry of its own.
struct StateTensor {
  std::string name;
  torch::Tensor& value;
  bool is_stacked = false;
  std::vector<int64_t> unit_ids = {};
};

/// `value` has the shape of `parameter` and is saved beside it, stacked by unit where it is:
/// `optimizer.m.` + `blocks.0.experts.*.fc1.weight`.
inline StateTensor state_like(const std::string& prefix, const Parameter& parameter,
                              torch::Tensor& value) {
  return {prefix + parameter.name, value, parameter.is_stacked(), parameter.unit_ids};
}

/// Is called with everything that is saved. One visitor writes, another reads back in place.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void tensor(const StateTensor& entry) = 0;
  virtual void integer(const std::string& name, int64_t& value) = 0;
  virtual void real(const std::string& name, double& value) = 0;
  virtual void text(const std::string& name, std::string& value) = 0;
};

/// Whether a checkpoint has a tensor of this name.
using SavedNames = std::function<bool(const std::string& tensor)>;

/// Something whose state a checkpoint holds. One list of fields both saves and loads.
/// Names are logical and equal on all ranks; a rank lists its own units only.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void visit_state(StateVisitor& visitor) = 0;
  /// Before a checkpoint is read: a state whose tensors change while it is trained takes the form
  /// of the one that was saved.
  virtual void fit_to(const SavedNames& saved) { (void)saved; }
  /// After a checkpoint was read into the tensors that the last visit listed. Collective like
  /// loading: collective calls come before all that may throw on one rank alone.
  virtual void tensors_loaded() {}
};

}  // namespace shoal
