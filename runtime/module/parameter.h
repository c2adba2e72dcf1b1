#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Initialisation of a tensor. Random values are keyed by (seed, name of the tensor), so they are
/// independent of ranks and of the order in which modules are built.
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
  /// U(-a, a) with a = 1 / sqrt(fan_in), as torch.nn initialises linear layers and convolutions.
  static Init fan_in_uniform(int64_t fan_in);
};

/// One trainable tensor, for optimizers, gradient sync and checkpoints.
///
/// `name` is logical and independent of ranks: `blocks.0.token_mlp.fc1.weight`. A tensor that
/// stacks one matrix per unit (expert or memory unit) of this rank, [u, ...], has a `*` in place of
/// the unit's global id, `blocks.2.moe_s.experts.*.fc1.weight`. Row i belongs to unit
/// `unit_ids[i]`; checkpoints store each unit as an entry of its own. `stacked_dims` is 1 for such
/// a stack, else 0. Optimizers treat each unit's row as a tensor: LAMB has a trust ratio per unit,
/// and a stack of biases [u, n] counts as vectors, which by default do not decay.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  int64_t stacked_dims = 0;
  std::vector<int64_t> unit_ids;
  Init init;
  /// Set if optimizer state is sharded (ZeRO-1): `tensor` is then a flat piece of one matrix, the
  /// elements from `begin` on, and `name` is the name of this matrix.
  struct Piece {
    std::string parameter;       ///< name of the whole parameter, with `*` for a stack
    std::vector<int64_t> sizes;  ///< shape of the matrix
    int64_t begin = 0;
  };
  std::optional<Piece> piece = std::nullopt;

  bool is_stacked() const { return stacked_dims > 0; }
  /// Number of dimensions of one matrix, without a stack's. By default, weight decay and trust
  /// ratios apply only if it is 2 or more.
  int64_t matrix_dims() const {
    return piece ? std::ssize(piece->sizes) : tensor.dim() - stacked_dims;
  }
  /// True if the piece does not cover the whole matrix.
  bool is_cut() const { return piece && tensor.numel() < c10::multiply_integers(piece->sizes); }
};

/// The name with its `*` replaced by a unit id; unchanged without `*`.
std::string name_of_unit(const std::string& name, int64_t unit_id);
/// The name of a stack's matrix `row`, with its unit's id; else the parameter's name.
std::string name_of_row(const Parameter& parameter, int64_t row);

/// Initialises every tensor in place, unit by unit, from the stream of its name.
void initialise(const std::vector<Parameter>& parameters, uint64_t seed);

}  // namespace shoal
