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
  torch::Tensor multiply(const torch::Tensor& x_Tn, const torch::Tensor& values,
                         const torch::Tensor& bias_m) const final;
  torch::Tensor multiply_transposed(const torch::Tensor& dy_Tm,
                                    const torch::Tensor& values) const final;
  torch::Tensor value_gradient(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const final;

 protected:
  /// x (P S Q)ᵀ and dy P S Q, for at least one token and weight.
  virtual torch::Tensor product(const torch::Tensor& x_Tn, const torch::Tensor& values) const = 0;
  virtual torch::Tensor transposed_product(const torch::Tensor& dy_Tm,
                                           const torch::Tensor& values) const = 0;
  /// Gradient of the values, for at least one token and weight.
  virtual torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const = 0;

  torch::Tensor place_;  ///< flat index in S of each value, int64; undefined where not needed

 private:
  bool has_work(const torch::Tensor& tokens) const { return tokens.size(0) * num_weights() > 0; }
};

/// Column of x for each input of S, and column of y for each output, in a permuted product P S Q:
/// int32 on a device; undefined: not permuted.
struct GpuPlaces {
  GpuPlaces(const SparseOrder& order, const torch::Device& device);

  torch::Tensor input_at, output_at;
};

/// Returns x with its last dimension permuted into the order of S; `at`: a tensor of GpuPlaces.
torch::Tensor in_order(const torch::Tensor& x, const torch::Tensor& at);

/// Returns where each number from 0 to `count` begins in a sorted list: int32 [count + 1].
torch::Tensor starts_of(const torch::Tensor& ascending, int64_t count);

// GPU versions of the functions in sparse_layout.h.
SparseLayoutPtr make_gpu_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
SparseLayoutPtr make_gpu_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
SparseLayoutPtr make_gpu_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                      const SparseOrder& order);

}  // namespace shoal
