#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// How a tensor gets its first values; drawn from the stream keyed by (seed, logical name),
/// so that they depend neither on ranks nor on the order in which modules are built.
struct Init {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  /// kConstant: the value; kUniform: half width a of U(-a, a); kNormal: standard deviation.
  double scale = 0.0;

  static Init zeros() { return constant(0.0); }
  static Init ones() { return constant(1.0); }
  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init uniform(double half_width) { return {Kind::kUniform, half_width}; }
  static Init normal(double std_dev) { return {Kind::kNormal, std_dev}; }
  /// U(-a, a) with a = sqrt(6 / (fan_in + fan_out)), Glorot and Bengio 2010.
  static Init xavier_uniform(int64_t fan_in, int64_t fan_out);
};

/// One trainable tensor as optimizers, gradient sync and checkpoints see it.
///
/// `name` is logical and free of ranks: `blocks.0.token_mlp.fc1.weight`. A tensor that stacks one
/// matrix per unit, [u, ...], has a `*` where the unit's global id belongs,
/// `blocks.2.moe_s.experts.*.fc1.weight`; row i of it is unit `unit_ids[i]`, and on disk each unit
/// is an entry of its own. `stacked_dims` leading dimensions are such a stack (0 or 1): per-matrix
/// rules (LAMB's trust ratio, no weight decay for vectors) look at one matrix of the stack.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  int64_t stacked_dims = 0;
  std::vector<int64_t> unit_ids;
  Init init;
  /// Set if `tensor` is not a whole parameter but, flat, some elements of one matrix of it, whose
  /// name is `name`: those from `begin` on.
  struct Piece {
    std::string parameter;       ///< the name of the whole, with `*` for a stack
    std::vector<int64_t> sizes;  ///< of the matrix
    int64_t begin = 0;
  };
  std::optional<Piece> piece = std::nullopt;

  bool is_stacked() const { return stacked_dims > 0; }
  /// Dimensions of one matrix; weight decay and trust ratios apply from 2 on.
  int64_t matrix_dims() const {
    return piece ? static_cast<int64_t>(piece->sizes.size()) : tensor.dim() - stacked_dims;
  }
  /// Whether there are more pieces of the matrix.
  bool is_cut() const { return piece && tensor.numel() < c10::multiply_integers(piece->sizes); }
};

/// The name with its `*` replaced by a unit id; unchanged without `*`.
std::string name_of_unit(const std::string& name, int64_t unit_id);

/// Fills every tensor in place: tensor by tensor, unit by unit, from the stream of its name.
void initialise(const std::vector<Parameter>& parameters, uint64_t seed);

}  // namespace shoal
