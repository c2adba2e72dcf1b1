#include "models/blocks/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <vector>

// B images  S tokens  C width  N heads  H head width = C / N
namespace shoal {

AttentionImpl::AttentionImpl(int64_t width, int64_t heads, const torch::TensorOptions& options,
                             const std::optional<Init>& init)
    : heads_(heads) {
  TORCH_CHECK(width % heads == 0, heads, " heads do not divide a width of ", width);
  const Init weight = init.value_or(Init::xavier_uniform(width, width));
  const Init bias = init.value_or(bias_init());
  qkv = register_module("qkv", Linear(width, 3 * width, options, weight, bias));
  proj = register_module("proj", Linear(width, width, options, weight, bias));
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x_BSC) const {
  const int64_t B = x_BSC.size(0), S = x_BSC.size(1), C = x_BSC.size(2);
  // chunk() on the last dimension: the gradients of all parts are joined by one copy.
  std::vector<torch::Tensor> part_BNSH = qkv->forward(x_BSC).chunk(3, /*dim=*/2);
  for (torch::Tensor& part : part_BNSH) {
    part = part.view({B, S, heads_, C / heads_}).transpose(1, 2);
  }
  const torch::Tensor y_BNSH =
      at::scaled_dot_product_attention(part_BNSH[0], part_BNSH[1], part_BNSH[2]);
  return proj->forward(y_BNSH.transpose(1, 2).reshape({B, S, C}));
}

void AttentionImpl::list_products(double rows, ProductList& list) const {
  list.visit(*qkv, rows);
  list.between(2 * rows * rows * static_cast<double>(proj->weight.size(1)));
  list.visit(*proj, rows);
}

}  // namespace shoal
