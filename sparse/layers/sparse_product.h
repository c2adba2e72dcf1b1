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

/// Computes the products of one sparse layer by sparse kernels. Follows the layer's mask and its
/// permutation, whose order the kernels take in; while that is soft the layer is left to a dense
/// product, and so are numbers of tokens for which this is faster.
class SparseProduct : public LinearProduct {
 public:
  /// A layer and how its masks may be stored, which is not MaskStorage::kNone.
  struct Layer {
    MaskStorage storage = MaskStorage::kRows;
    int64_t block_size = 1;
    std::shared_ptr<const Permutation> permutation = nullptr;  ///< may be null
    BreakEven break_even = {};
  };
  /// Densities below which it is always taken.
  static constexpr BreakEven kAlways{2.0, 2.0, 2.0};

  explicit SparseProduct(const Layer& layer);

  /// bool [m, n, ...]: the weights that are on from now on.
  void set_mask(const torch::Tensor& mask);
  /// Without a mask the layer is left to a dense product.
  void clear_mask() { is_ever_faster_ = false; }
  /// Values that were kept of the weights are taken anew.
  void weights_changed() { kept_values_ = torch::Tensor(); }
  /// Whether the layer is left to a dense product for now.
  void set_dense(bool is_dense) { is_dense_ = is_dense; }

  /// Whether there are numbers of tokens for which sparse kernels run it, with the mask and the
  /// permutation it has now.
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

  // Made when they are needed, of what was set.
  mutable SparseLayoutPtr layout_;
  mutable torch::Tensor index_of_layout_;  ///< the permutation's
  mutable torch::Tensor kept_values_, kept_of_;
  mutable const void* kept_data_ = nullptr;
  mutable uint32_t kept_version_ = 0;
};

}  // namespace shoal
