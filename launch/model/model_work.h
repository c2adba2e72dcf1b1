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
  /// Forward pass of all encoders and the head. In a MoE layer counts the units (such as experts)
  /// that a token is routed to, dropped choices included; in a sparse layer the weights that the
  /// mask keeps; in attention the pairs that are not masked.
  double multiply_adds = 0;
  /// A multiply-add counts 2 in the forward pass, 2 more if its weight is trained, and 2 more if a
  /// trained weight precedes it. So layers count 2 before the first trained one, which counts 4;
  /// later layers count 6 if trained, 4 if frozen. A product between activations, such as
  /// attention's, counts 6 after a trained weight, else 2. Parallel layers, such as a router and
  /// its experts, count as sequential: the second counts 2 too many if nothing trained precedes
  /// both. Recomputation (train.recompute) is not counted.
  double training_flops = 0;
  /// Part of training_flops in routed units, by the path of their MoE layer. Dropped choices are
  /// counted; MFU subtracts their share.
  std::map<std::string, double> routed_training_flops = {};
  /// Part of multiply_adds in each weight, by the name of its parameter.
  std::map<std::string, double> weight_multiply_adds = {};
  /// Elements of the rows that are dispatched to units: rows times width, summed over MoE layers.
  double routed_numbers = 0;
};

/// Computes the work; nullopt if a backbone does not list its products (CountsProducts). For a task
/// that does not list the products of its head, each layer of the head counts one row per sample.
/// The model may be on `meta`. `sparse`: its sparse layers, as SparseModel::describe returns them.
std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse);

}  // namespace shoal
