#pragma once

#include <torch/types.h>

#include <cstdint>

#include "sparse/kernels/sparse_layout.h"

// T tokens  m outputs  n inputs
namespace shoal {

/// Base of SparseLayouts, sparse matrices with their products, on a GPU. LibTorch operators compute
/// the index tensors once, on the GPU; orders may be on any device. Values are contiguous
/// [num_weights()]. Products call operators of the CUDA plug-in, except without tokens or weights.
class GpuLayout : public SparseLayout {
 public:
  using SparseLayout::SparseLayout;

  torch::Tensor pack(const torch::Tensor& weight_mn) const override;
  torch::Tensor unpack(const torch::Tensor& values) const override;
  torch::Tensor value_gradient(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const final;

 protected:
  torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                        const torch::Tensor& bias, bool is_transposed) const final;
  /// x (P S Q)ᵀ or, if is_transposed, x P S Q, for at least one token and weight.
  virtual torch::Tensor plain_product(const torch::Tensor& x, const torch::Tensor& values,
                                      bool is_transposed) const = 0;
  /// Gradient of the values, for at least one token and weight.
  virtual torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const = 0;

  torch::Tensor place_;  ///< flat index in S of each value, int64; undefined where not needed

 private:
  bool has_work(const torch::Tensor& tokens) const { return tokens.size(0) * num_weights() > 0; }
};

// GPU versions of the functions in sparse_layout.h.
SparseLayoutPtr make_gpu_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
SparseLayoutPtr make_gpu_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
SparseLayoutPtr make_gpu_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                      const SparseOrder& order);

}  // namespace shoal
