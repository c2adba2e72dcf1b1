#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/random/random_stream.h"

// u matrices of a stack  G groups of permuted inputs or outputs  s members of a group
// a, b the other dimension of a matrix
namespace shoal {

/// Family of soft permutations: relaxed permutation matrices P [s, s], differentiable in a
/// parameter, that training drives towards permutations, (P x)_i = x_{p(i)}. A weight matrix has
/// one P per group; parameters are stacked as [u, G, shape...].
class SoftFamily {
 public:
  /// Number of permuted inputs or outputs, and number of groups; `noun` is "inputs" or "outputs".
  struct Grouping {
    int64_t size, groups;
    std::string_view noun;
  };
  /// Position of P in a product: P X if is_left, else X P; with Pᵀ in place of P if is_transposed.
  struct Factor {
    bool is_left, is_transposed;
  };
  virtual ~SoftFamily() = default;

  /// Returns why the family does not support this grouping, and which it does; "" if it does.
  virtual std::string misfit(const Grouping& grouping) const = 0;
  /// Shape of the parameter of one group with `side` members.
  virtual std::vector<int64_t> shape(int64_t side) const = 0;
  /// Initialises one matrix's parameter [G, shape...] at random, with a share `mix` of I in P.
  virtual void fill(const torch::Tensor& parameter_G, double mix, const Stream& stream) const = 0;
  /// Default of `mix` for groups of `side` members.
  virtual double usual_mix(int64_t side) const = 0;

  /// P X for X [u, G, s, b], or X P for X [u, G, a, s]. Differentiable.
  virtual torch::Tensor product(const torch::Tensor& parameter_uG, const torch::Tensor& x_uG,
                                Factor factor) const = 0;

  /// Restores the parameter's constraints in place, after each update.
  virtual void project(const torch::Tensor& /*parameter_uG*/) const {}
  /// Distance of each P from a permutation, [u, G] in [0, 1]; training adds it to the loss.
  virtual torch::Tensor penalty(const torch::Tensor& parameter_uG) const = 0;
  /// Derivative of penalty() by each element of the parameter.
  virtual torch::Tensor penalty_gradient(const torch::Tensor& parameter_uG) const = 0;

  /// p [u, G, s] of the nearest permutations, with indices within the group.
  virtual torch::Tensor index(const torch::Tensor& parameter_uG) const = 0;
  /// ‖P - I‖_F² of each matrix, summed over its groups, in float64: [u].
  virtual torch::Tensor squared_distance(const torch::Tensor& parameter_uG) const = 0;
};

}  // namespace shoal
