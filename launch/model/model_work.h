#pragma once

#include <optional>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/model/sparse_layers.h"

namespace shoal {

/// Work of a model for one training sample, all its views, by the shapes of its parameters.
struct ModelWork {
  /// Of a forward pass, of all encoders. A MoE layer counts the units that a token is routed to,
  /// dropped ones too; a sparse layer its weights that are on; attention as it is masked.
  double multiply_adds = 0;
  /// Two a multiply-add, and of what is trained twice that again for the backward pass. What
  /// train.recompute computes again is not counted: it is no work of the model.
  double training_flops = 0;
  /// Numbers in the rows that units get, over all MoE layers and choices.
  double routed_numbers = 0;
};

/// Nothing where a backbone's counts are not known (ProductCounts). The model may be on `meta`;
/// `sparse` as describe_sparse.
std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse);

}  // namespace shoal
