#pragma once

#include <cstdint>

#include "runtime/data/batch.h"

namespace shoal {

/// Training samples that a task keeps during an evaluation, such as the neighbours to compare the
/// evaluated samples with.
class References {
 public:
  virtual ~References() = default;
  /// Maximal number of training samples to keep; 0: none are read.
  virtual int64_t most_samples() const = 0;
  /// Removes the samples of the evaluation before.
  virtual void clear() = 0;
  /// Adds this rank's training samples, loaded as for evaluation, with labels. Collective, b may be
  /// 0.
  virtual void add(const Batch& batch) = 0;
};

}  // namespace shoal
