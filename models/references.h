#pragma once

#include <cstdint>

#include "runtime/data/batch.h"

namespace shoal {

/// Training samples that a task keeps during an evaluation for comparison, such as the references
/// of a nearest-neighbour classifier.
class References {
 public:
  virtual ~References() = default;
  /// Maximum number of training samples kept; 0: none are read.
  virtual int64_t most_samples() const = 0;
  /// Removes the samples of the previous evaluation.
  virtual void clear() = 0;
  /// Adds labelled training samples of this rank, without augmentation. Collective, b may be 0.
  virtual void add(const Batch& batch) = 0;
};

}  // namespace shoal
