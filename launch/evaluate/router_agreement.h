#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// Compares the routing of two successive evaluations: the share of this rank's validation tokens
/// that keep their first unit. A rank must evaluate the same samples in the same order each time.
/// Holds one small integer per token and layer, in this process only: the first evaluation of a
/// resumed run is not compared.
class RouterAgreement {
 public:
  struct Counts {
    int64_t same = 0;      ///< tokens with an equal first unit, summed over layers
    int64_t compared = 0;  ///< tokens with a unit in either evaluation; 0 in the first evaluation
  };
  void begin_evaluation();
  /// Adds the next batch. Layers without first units are skipped. TORCH_CHECK if the batch differs
  /// from the last evaluation's.
  void add(const std::vector<MoeStats>& layers);
  /// Counts since begin_evaluation.
  Counts counts() const;

 private:
  std::vector<torch::Tensor> unit_T_;  ///< batch by batch, layer by layer; entries from `next_` on
                                       ///< are of the evaluation before
  size_t next_ = 0;
  torch::Tensor counts_;  ///< int64: same, compared; on the units' device, undefined at first
};

}  // namespace shoal
