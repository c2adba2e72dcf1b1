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
/// (P x)_i = x_{p(i)} then. A matrix has one P for each of its groups, and parameters are stacked
/// as [u, G, shape...].
class SoftFamily {
 public:
  /// The size of what is permuted, and its groups; `noun` is "inputs" or "outputs".
  struct Grouping {
    int64_t size, groups;
    std::string_view noun;
  };
  /// Where P stands in a product: P X or X P, with Pᵀ in place of P if it is transposed.
  struct Factor {
    bool is_left, is_transposed;
  };
  virtual ~SoftFamily() = default;

  /// Why the groups have no such matrices, and what fits; "" if they have.
  virtual std::string misfit(const Grouping& grouping) const = 0;
  /// Of the parameter of one group.
  virtual std::vector<int64_t> shape(int64_t side) const = 0;
  /// First values of one matrix's parameter [G, shape...], in place. `mix`: the share of the
  /// identity in P, the rest is random.
  virtual void fill(const torch::Tensor& parameter_G, double mix, const Stream& stream) const = 0;
  /// The share that is taken unless the recipe has another.
  virtual double usual_mix(int64_t side) const = 0;

  /// X [u, G, s, b] from the right of P, X [u, G, a, s] from its left. Differentiable.
  virtual torch::Tensor product(const torch::Tensor& parameter_uG, const torch::Tensor& x_uG,
                                Factor factor) const = 0;

  /// After each update: puts back what must hold of the parameter. In place.
  virtual void project(const torch::Tensor& parameter_uG) const { (void)parameter_uG; }
  /// How far each P is from a permutation, in [0, 1]. [u, G].
  virtual torch::Tensor penalty(const torch::Tensor& parameter_uG) const = 0;
  /// Its derivative by each number of the parameter.
  virtual torch::Tensor penalty_gradient(const torch::Tensor& parameter_uG) const = 0;

  /// p [u, G, s], counted within the group, of the permutations that the P are nearest to.
  virtual torch::Tensor index(const torch::Tensor& parameter_uG) const = 0;
  /// The squares of P - I summed over the groups of each matrix, in float64. [u].
  virtual torch::Tensor squared_distance(const torch::Tensor& parameter_uG) const = 0;
};

}  // namespace shoal
