#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/random/random_stream.h"

// u matrices of a stack  G groups  s members of a group  a, b the other dimension of a matrix
namespace shoal {

/// Matrices P [s, s] that depend smoothly on a parameter and become permutations as it is trained:
/// then (P x)_i = x_{p(i)}. Each weight matrix has one P per group, and parameters are stacked as
/// [u, G, shape...].
class SoftFamily {
 public:
  /// Number of permuted rows or columns, and of groups; `noun` is "inputs" or "outputs".
  struct Grouping {
    int64_t size, groups;
    std::string_view noun;
  };
  /// Position of P in a product: P X if is_left, else X P, with Pᵀ in place of P if transposed.
  struct Factor {
    bool is_left, is_transposed;
  };
  virtual ~SoftFamily() = default;

  /// Why this family cannot permute such groups, and which would fit; "" if it can.
  virtual std::string misfit(const Grouping& grouping) const = 0;
  /// Shape of the parameter of one group.
  virtual std::vector<int64_t> shape(int64_t side) const = 0;
  /// Initialises one matrix's parameter [G, shape...] in place. `mix`: share of the identity in P;
  /// the rest is random.
  virtual void fill(const torch::Tensor& parameter_G, double mix, const Stream& stream) const = 0;
  /// Default of `mix`.
  virtual double usual_mix(int64_t side) const = 0;

  /// P X for X [u, G, s, b], or X P for X [u, G, a, s]. Differentiable.
  virtual torch::Tensor product(const torch::Tensor& parameter_uG, const torch::Tensor& x_uG,
                                Factor factor) const = 0;

  /// Restores the parameter's constraints after an update, in place. Default: there are none.
  virtual void project(const torch::Tensor& parameter_uG) const { (void)parameter_uG; }
  /// Distance of each P from a permutation, in [0, 1]: [u, G].
  virtual torch::Tensor penalty(const torch::Tensor& parameter_uG) const = 0;
  /// Derivative of penalty() by each element of the parameter.
  virtual torch::Tensor penalty_gradient(const torch::Tensor& parameter_uG) const = 0;

  /// p [u, G, s] of the permutations nearest to each P, counted within the group.
  virtual torch::Tensor index(const torch::Tensor& parameter_uG) const = 0;
  /// Sum of the squares of P - I over the groups of each matrix, in float64: [u].
  virtual torch::Tensor squared_distance(const torch::Tensor& parameter_uG) const = 0;
};

}  // namespace shoal
