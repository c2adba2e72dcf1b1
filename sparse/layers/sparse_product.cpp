#include "sparse/layers/sparse_product.h"

#include <ATen/ops/linear.h>

#include <algorithm>

#include "sparse/kernels/sparse_linear.h"

// T tokens  m outputs  n inputs
namespace shoal {

SparseProduct::SparseProduct(const Layer& layer) : layer_(layer) {
  TORCH_CHECK(layer.storage != MaskStorage::kNone, "sparse product: the pattern has no kernel");
}

void SparseProduct::set_mask(const torch::Tensor& mask) {
  is_ever_faster_ = false;
  if (!mask.defined()) return;
  mask_mn_ = mask.view({mask.size(0), -1});
  density_ = static_cast<double>(mask_mn_.sum().item<int64_t>()) /
             static_cast<double>(std::max<int64_t>(1, mask_mn_.numel()));
  const auto is_faster = [&](int64_t tokens) {
    return layer_.break_even.is_faster(density_, tokens);
  };
  is_ever_faster_ = is_faster(1) || is_faster(2) || is_faster(BreakEven::kFewTokens + 1);
  layout_.reset();
  weights_changed();
}

SparseOrder SparseProduct::order() const {
  if (layer_.permutation == nullptr) return {};
  const torch::Tensor index_n = layer_.permutation->index()[0];
  const bool are_inputs = layer_.permutation->place().axis == PermutationAxis::kInputs;
  return are_inputs ? SparseOrder{index_n, {}} : SparseOrder{{}, index_n};
}

const SparseLayoutPtr& SparseProduct::layout() const {
  const torch::Tensor index =
      layer_.permutation == nullptr ? torch::Tensor() : layer_.permutation->index();
  if (layout_ != nullptr && index.is_same(index_of_layout_)) return layout_;
  index_of_layout_ = index;
  kept_values_ = torch::Tensor();
  const torch::Tensor mask_mn = mask_mn_.contiguous();
  if (layer_.storage == MaskStorage::kDiagonals) {
    layout_ = make_diagonal_layout(mask_mn, order());
  } else if (layer_.storage == MaskStorage::kBlocks) {
    layout_ = make_block_layout(mask_mn, layer_.block_size, order());
  } else {
    layout_ = make_csr_layout(mask_mn, order());
  }
  return layout_;
}

torch::Tensor SparseProduct::packed(const torch::Tensor& weight_mn) const {
  // Weight averaging swaps a weight's data without a new version.
  const bool is_kept = kept_values_.defined() && kept_of_.is_same(weight_mn) &&
                       kept_data_ == weight_mn.const_data_ptr() &&
                       kept_version_ == weight_mn._version();
  if (!is_kept) {
    kept_values_ = layout_->pack(weight_mn.contiguous());
    kept_of_ = weight_mn;
    kept_data_ = weight_mn.const_data_ptr();
    kept_version_ = weight_mn._version();
  }
  return kept_values_;
}

torch::Tensor SparseProduct::multiply(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias) const {
  const torch::Dtype dtype = x.scalar_type();
  const torch::Tensor b = bias.defined() ? bias.to(dtype) : bias;
  const int64_t tokens = x.numel() / std::max<int64_t>(1, x.size(-1));
  if (!layer_.break_even.is_faster(density_, tokens)) {
    return at::linear(x, formed(weight, layer_.permutation.get()).to(dtype), b);
  }
  const SparseLayoutPtr& own = layout();
  const torch::Tensor weight_mn = weight.to(dtype);
  if (at::GradMode::is_enabled()) return sparse_linear(x, weight_mn, b, own);
  if (dtype != weight.scalar_type()) {
    return sparse_linear_packed(x, own->pack(weight_mn.contiguous()), b, *own);
  }
  return sparse_linear_packed(x, packed(weight), b, *own);
}

}  // namespace shoal
