#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Work of a model for one training sample with all its views, computed from the shapes of its
/// parameters. Model FLOPs utilisation (MFU) is based on it.
struct ModelWork {
  /// Forward pass of all encoders and the head. Of a MoE layer, counts the units that a token is
  /// routed to, also if it is dropped; of a sparse layer, the weights that the mask keeps; of
  /// attention, the pairs that are not masked.
  double multiply_adds = 0;
  /// A multiply-add counts 2 in the forward pass, 2 more if a trained weight gets a gradient, and 2
  /// more if the gradient continues to something trained below. So layers below the first trained
  /// one count 2, frozen ones above it 4, the first trained one 4, and all others 6. A product
  /// between activations, such as attention's, counts 6 if something trained precedes it, else 2.
  /// In the first block with something trained, parallel layers, such as a router and its experts,
  /// count as sequential. Recomputation (train.recompute) is not counted.
  double training_flops = 0;
  /// Part of training_flops in routed units, by the path of their MoE layer. Dropped choices are
  /// counted; MFU subtracts their share.
  std::map<std::string, double> routed_training_flops = {};
  /// Elements of the rows that are dispatched to units: rows times width, summed over MoE layers.
  double routed_numbers = 0;
};

/// Computes the work; nullopt if a backbone does not list its products (CountsProducts). A task
/// lists the products of its head; else each layer of the head counts one row a sample. The model
/// may be on `meta`; `sparse`: its sparse layers, by SparseModel::describe.
std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse);

}  // namespace shoal
