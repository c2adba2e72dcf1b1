#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/extended_weights.h"
#include "runtime/module/products.h"

// m outputs  n inputs  r rank
namespace shoal {

/// Gated low-rank term added to a sparse weight S: y = (1 - g) S x + g U V x, with a gate g =
/// sigmoid(w x + b) per token. Source: Chen et al. 2022 (Pixelated Butterfly), section 3 and code.
///
/// Parameters: u [m, r] and v [r, n], normal, such that U V has the variance of Glorot-uniform
/// weights; gate_weight [n] and gate_bias [1], zeros, such that g = 1/2.
class LowRankBranch : public LinearBranch, public CountsProducts {
 public:
  LowRankBranch(int64_t rows, int64_t columns, int64_t rank, const torch::TensorOptions& options);
  /// Returns y without bias from x [..., n] and product = x Sᵀ [..., m].
  torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const override;
  /// Lists nothing: products with S are counted with a density that includes U's and V's weights.
  void list_products(double /*rows*/, ProductList& /*list*/) const override {}

  torch::Tensor u, v, gate_weight, gate_bias;
};

}  // namespace shoal
