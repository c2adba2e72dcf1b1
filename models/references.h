#pragma once

#include <cstdint>

#include "runtime/data/batch.h"

namespace shoal {

/// What a task keeps of training samples while it is evaluated, such as the neighbours that an
/// evaluation's samples are compared with.
class References {
 public:
  virtual ~References() = default;
  /// Training samples that are kept at most; 0: none are read.
  virtual int64_t most_samples() const = 0;
  /// Forgets those of the evaluation before.
  virtual void clear() = 0;
  /// Training samples of this rank, as evaluation reads them, with labels. Collective, b may be 0.
  virtual void add(const Batch& batch) = 0;
};

}  // namespace shoal
