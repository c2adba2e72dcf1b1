#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/module/products.h"

// B images  S tokens  C width  N heads  H head width = C / N
namespace shoal {

/// Multi-head self-attention over all tokens of an image: proj(softmax(q kᵀ / sqrt(H)) v).
/// Source: Vaswani et al. 2017, section 3.2; Dosovitskiy et al. 2021, eq. 5 to 8.
///
/// Parameters: qkv.weight [3C, C], rows of q, k, v in turn, each head by head; proj.weight [C, C];
/// both with biases. Each third of qkv.weight is drawn Glorot-uniform as a matrix of its own.
/// The exact gradient of the key biases is zero: they shift all logits of a query by one value.
class AttentionImpl : public ModuleBase, public CountsProducts {
 public:
  /// `init`: of all weights and biases. TORCH_CHECK unless `heads` divides `width`.
  AttentionImpl(int64_t width, int64_t heads, const torch::TensorOptions& options,
                const std::optional<Init>& init = {});
  /// [B, S, C] -> [B, S, C]. B may be 0. Up to rounding, images do not affect each other.
  torch::Tensor forward(const torch::Tensor& x_BSC) const;
  /// Lists the products of one sample of `rows` rows, by which multiply-adds are counted.
  void list_products(double rows, ProductList& list) const override;

  Linear qkv{nullptr}, proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(Attention);

}  // namespace shoal
