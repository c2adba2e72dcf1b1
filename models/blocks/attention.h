#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/module/products.h"

// B images  S tokens  C width  N heads  H head width = C / N
namespace shoal {

/// Multi-head self-attention over all tokens of an image: proj(softmax(q kᵀ / sqrt(H)) v).
/// Source: Vaswani et al. 2017, section 3.2; Dosovitskiy et al. 2021, eq. 5 to 8.
///
/// Parameters: qkv.weight [3C, C], rows of q, then k, then v, heads one after another in each;
/// proj.weight [C, C]; both with biases. The three parts of qkv are drawn as matrices of their own,
/// Glorot-uniform. The true gradient of the keys' biases is zero: they move all logits of a query
/// alike.
class AttentionImpl : public ModuleBase, public CountsProducts {
 public:
  /// TORCH_CHECK unless `heads` divides `width`.
  AttentionImpl(int64_t width, int64_t heads, const torch::TensorOptions& options);
  /// All weights and biases from `init`.
  AttentionImpl(int64_t width, int64_t heads, const torch::TensorOptions& options,
                const Init& init);
  /// [B, S, C] -> [B, S, C]. B may be 0. An image's result does not depend on its batch,
  /// but for rounding.
  torch::Tensor forward(const torch::Tensor& x_BSC) const;
  void list_products(double rows, ProductList& list) const override;

  Linear qkv{nullptr}, proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(Attention);

}  // namespace shoal
