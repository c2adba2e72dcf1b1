#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// Compares an evaluation's routing with that of the one before: which of this rank's validation
/// tokens keep their first unit. A rank must evaluate the same samples in the same order each time.
/// Holds one small integer per token and layer, of this process only: a resumed run has nothing to
/// compare its first evaluation with.
class RouterAgreement {
 public:
  struct Counts {
    int64_t same = 0;      ///< tokens with an equal first unit, summed over layers
    int64_t compared = 0;  ///< those that have a unit, or had one; 0 in the first evaluation
  };
  void begin_evaluation();
  /// The next batch. Layers without first units are passed over. TORCH_CHECK if the batch is not
  /// the one that the last evaluation had here.
  void add(const std::vector<MoeStats>& layers);
  /// Since begin_evaluation.
  Counts counts() const;

 private:
  std::vector<torch::Tensor> unit_T_;  ///< batch by batch, layer by layer; what is behind `next_`
                                       ///< is of the evaluation before
  size_t next_ = 0;
  torch::Tensor counts_;  ///< int64: same, compared; where the units are, undefined before any
};

}  // namespace shoal
