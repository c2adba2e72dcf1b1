#include "sparse/training/chain_removal.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace shoal {

bool LayerChain::is_soft() const {
  return std::ranges::any_of(sides, [](const Side& side) {
    return side.permutation != nullptr && side.permutation->is_soft();
  });
}

torch::Tensor row_of_neurons(const LayerChain::Side& side, int64_t matrix) {
  if (side.permutation == nullptr) return {};
  const torch::Tensor index_h = side.permutation->index()[matrix];
  // Output i is row p(i) of S; input p(i) is column i of it.
  return side.takes_in ? index_h.argsort(/*stable=*/true, 0, /*descending=*/false) : index_h;
}

void remove_chains(const std::vector<NeuronLinks>& matrices) {
  torch::Tensor is_linked_h;
  for (const NeuronLinks& matrix : matrices) {
    torch::Tensor has_any_h = matrix.is_on.any(1);
    if (matrix.row_of_h.defined()) has_any_h = has_any_h.index_select(0, matrix.row_of_h);
    is_linked_h = is_linked_h.defined() ? is_linked_h & has_any_h : has_any_h;
  }
  for (const NeuronLinks& matrix : matrices) {
    if (!matrix.may_change) continue;
    torch::Tensor stays = is_linked_h;
    if (matrix.row_of_h.defined()) {
      stays = at::empty_like(is_linked_h).index_copy_(0, matrix.row_of_h, is_linked_h);
    }
    torch::Tensor is_on = matrix.is_on;
    is_on.logical_and_(stays.unsqueeze(1));
  }
}

}  // namespace shoal
