#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/model/sparse_layers.h"

namespace shoal {

/// Work of a model for one training sample, all its views, by the shapes of its parameters.
struct ModelWork {
  /// Of a forward pass, of all encoders. A MoE layer counts the units that a token is routed to,
  /// dropped ones too; a sparse layer its weights that are on; attention as it is masked.
  double multiply_adds = 0;
  /// Two a multiply-add of the forward pass; two more where a trained weight gets a gradient, and
  /// two more where the gradient goes on to something trained below. So layers below the first
  /// trained one count 2, frozen ones above it 4, the first trained one 4, and all others 6. A
  /// product between activations, such as attention's, counts 6 if something trained comes before
  /// it, else 2. Of the first block with something trained, layers side by side, such as a router
  /// and its experts, count as one behind the other.
  /// What train.recompute computes again is not counted: it is no work of the model.
  double training_flops = 0;
  /// What of training_flops routed units are, by the path of their MoE layer: where choices are
  /// dropped, their share of it is not computed.
  std::map<std::string, double> routed_training_flops = {};
  /// Numbers in the rows that units get, over all MoE layers and choices.
  double routed_numbers = 0;
};

/// Nothing where a backbone does not list its products (CountsProducts). The task lists those of
/// its head; a task that does not has a head of modules with one row each. The model may be on
/// `meta`; `sparse` as describe_sparse.
std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse);

}  // namespace shoal
