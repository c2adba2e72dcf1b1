#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "runtime/module/linear_product.h"
#include "sparse/kernels/break_even.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/patterns/pattern.h"
#include "sparse/permutations/permutation.h"

// T tokens  m outputs  n inputs
namespace shoal {

/// Computes the products of one sparse layer by sparse kernels, with the layer's current mask and
/// permutation. Leaves the layer to a dense product while the permutation is soft, and for numbers
/// of tokens where dense is faster.
class SparseProduct : public LinearProduct {
 public:
  /// A layer and the storage of its masks, which is not MaskStorage::kNone.
  struct Layer {
    MaskStorage storage = MaskStorage::kRows;
    int64_t block_size = 1;
    std::shared_ptr<const Permutation> permutation = nullptr;  ///< may be null
    BreakEven break_even = {};
  };
  /// Break-even densities with which sparse kernels are always used.
  static constexpr BreakEven kAlways{2.0, 2.0, 2.0};

  explicit SparseProduct(const Layer& layer);

  /// Sets the mask, bool [m, n, ...]: the weights that are on.
  void set_mask(const torch::Tensor& mask);
  /// Removes the mask, so that the layer uses dense products.
  void clear_mask() { is_ever_faster_ = false; }
  /// Discards the packed values; call when the weights have changed.
  void weights_changed() { kept_values_ = torch::Tensor(); }
  /// Forces a dense product, or allows sparse ones again.
  void set_dense(bool is_dense) { is_dense_ = is_dense; }

  /// True if sparse kernels run the layer for some number of tokens, with its current mask and
  /// permutation.
  bool is_taken() const { return is_ever_faster_ && !is_soft(); }
  bool is_on() const override;
  torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) const override;

 private:
  bool is_soft() const { return layer_.permutation != nullptr && layer_.permutation->is_soft(); }
  const SparseLayoutPtr& layout() const;
  SparseOrder order() const;
  torch::Tensor packed(const torch::Tensor& weight_mn) const;

  Layer layer_;
  bool is_dense_ = false, is_ever_faster_ = false;
  double density_ = 1.0;
  torch::Tensor mask_mn_;

  // Computed on first use from the mask, the permutation and the weights.
  mutable SparseLayoutPtr layout_;
  mutable torch::Tensor index_of_layout_;  ///< the permutation's index it was made from
  mutable torch::Tensor kept_values_, kept_of_;
  mutable const void* kept_data_ = nullptr;
  mutable uint32_t kept_version_ = 0;
};

}  // namespace shoal
