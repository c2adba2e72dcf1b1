#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "runtime/module/extended_weights.h"
#include "sparse/kernels/break_even.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/patterns/pattern.h"
#include "sparse/permutations/permutation.h"

// T tokens  m outputs  n inputs
namespace shoal {

/// Runs one sparse layer by sparse kernels, with its current mask and hard permutation (an index
/// that reorders inputs or outputs). The layer uses a dense product while the permutation is soft
/// (a trained matrix), and for numbers of tokens for which the dense product is faster (BreakEven).
class SparseProduct : public LinearProduct {
 public:
  /// The layer's permutation and mask storage: rows, diagonals or blocks, not kNone (Pattern).
  struct Layer {
    MaskStorage storage = MaskStorage::kRows;
    int64_t block_size = 1;
    std::shared_ptr<const Permutation> permutation = nullptr;  ///< may be null
    BreakEven break_even = {};  ///< densities below which kernels run: 1, 2 to 64, more tokens
  };
  /// Always runs sparse kernels: break-even densities above 1, for 1, 2 to 64 and more tokens.
  static constexpr BreakEven kAlways{2.0, 2.0, 2.0};

  explicit SparseProduct(const Layer& layer);

  /// Sets the mask, bool [m, n, ...] with trailing dimensions flattened into n. Undefined: removes
  /// it, so that the layer uses dense products.
  void set_mask(const torch::Tensor& mask);
  /// Drops the cached packed weights. Call after changes that autograd's version counter misses.
  void weights_changed() { kept_values_ = torch::Tensor(); }
  void set_dense(bool is_dense) { is_dense_ = is_dense; }  ///< true: forces dense products

  /// True if kernels run for some numbers of tokens: with a mask whose density is below a
  /// break-even density, and without a soft permutation. For logs; a layer asks is_on().
  bool uses_sparse_kernels() const { return is_ever_faster_ && !is_soft(); }
  /// True if the layer must call multiply(): uses_sparse_kernels(), unless set_dense(true) holds.
  bool is_on() const override { return uses_sparse_kernels() && !is_dense_; }
  /// x [..., n], stored weight [m, n], not permuted yet, and bias [m] or undefined -> [..., m].
  /// Uses the dense product for numbers of tokens for which it is faster.
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

  // Caches, built on demand from the state above.
  mutable SparseLayoutPtr layout_;
  mutable torch::Tensor index_of_layout_;  ///< the permutation that layout_ was built for
  mutable torch::Tensor kept_values_, kept_of_;
  mutable const void* kept_data_ = nullptr;
  mutable uint32_t kept_version_ = 0;
};

}  // namespace shoal
