#pragma once

#include <torch/types.h>

#include <cstdint>

#include "sparse/kernels/sparse_layout.h"

// T tokens  m outputs  n inputs
namespace shoal {

/// Base of layouts on a GPU: a layout stores the values, the weights of a sparse S that are on, as
/// contiguous [num_weights()], and multiplies tokens by P S Q. SparseOrder has P (outputs) and Q
/// (inputs) as index tensors, on any device. A subclass applies P and Q. It makes its own indices
/// once, by LibTorch operators, for operators of the CUDA plug-in. This class adds the bias, and
/// returns zeros without tokens or weights.
class GpuLayout : public SparseLayout {
 public:
  using SparseLayout::SparseLayout;

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {  ///< gathers values from S
    return weight_mn.view({-1}).index_select(0, place_);
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {  ///< scatters them to S
    return torch::zeros({rows() * columns()}, values.options())
        .index_copy_(0, place_, values)
        .view({rows(), columns()});
  }
  torch::Tensor value_gradient(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const final {
    return has_work(x_Tn) ? dots(x_Tn, dy_Tm) : torch::zeros({num_weights()}, x_Tn.options());
  }

 protected:
  torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                        const torch::Tensor& bias, bool is_transposed) const final {
    const int64_t width = is_transposed ? columns() : rows();
    torch::Tensor y = has_work(x) ? plain_product(x, values, is_transposed)
                                  : torch::zeros({x.size(0), width}, x.options());
    return bias.defined() ? y.add_(bias) : y;
  }
  /// x (P S Q)ᵀ [T, m] or, if is_transposed, x P S Q [T, n], for at least one token and weight.
  virtual torch::Tensor plain_product(const torch::Tensor& x, const torch::Tensor& values,
                                      bool is_transposed) const = 0;
  /// Gradient of the values, for at least one token and weight. x and dy are not permuted yet.
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
