#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

// T tokens  m outputs  n inputs
namespace shoal {

/// Permutations of a sparse matrix's inputs and outputs: products use P S Q in place of S, where
/// (Q x)_i = x_{inputs(i)} and (P z)_j = z_{outputs(j)}. An undefined tensor is the identity.
struct SparseOrder {
  torch::Tensor inputs;   ///< int64 [n]
  torch::Tensor outputs;  ///< int64 [m]
};

/// Storage of a sparse matrix [m, n], and its products with tokens in float32 or float64, on the
/// device of the mask. Values are the stored weights, in the layout's own order; pack() takes them
/// from the dense matrix S, the trained parameter.
///
/// CPU products use at::parallel_for, and their results are independent of the number of threads.
/// GPU products are queued on the current stream (gpu_layout.h), with deterministic results.
class SparseLayout {
 public:
  explicit SparseLayout(const torch::Tensor& mask_mn)
      : rows_(mask_mn.size(0)),
        columns_(mask_mn.size(1)),
        num_weights_(mask_mn.sum().item<int64_t>()),
        device_(mask_mn.device()) {}
  virtual ~SparseLayout() = default;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t num_weights() const { return num_weights_; }
  /// The device of the mask and of all tensors.
  const torch::Device& device() const { return device_; }

  /// Gathers the values from a contiguous S [m, n].
  virtual torch::Tensor pack(const torch::Tensor& weight_mn) const = 0;
  /// Scatters values into a dense [m, n], zero elsewhere.
  virtual torch::Tensor unpack(const torch::Tensor& values) const = 0;

  /// x (P S Q)ᵀ + b: contiguous x [T, n], and b [m] or undefined -> [T, m].
  torch::Tensor multiply(const torch::Tensor& x_Tn, const torch::Tensor& values,
                         const torch::Tensor& bias_m) const {
    return product(x_Tn, values, bias_m, /*is_transposed=*/false);
  }
  /// dy P S Q: contiguous dy [T, m] -> [T, n].
  torch::Tensor multiply_transposed(const torch::Tensor& dy_Tm, const torch::Tensor& values) const {
    return product(dy_Tm, values, {}, /*is_transposed=*/true);
  }
  /// Gradient of the values, in the order of the values, from x [T, n] and dy [T, m].
  virtual torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                                       const torch::Tensor& dy_Tm) const = 0;

 protected:
  /// multiply() or, if is_transposed, multiply_transposed(), whose bias is undefined.
  virtual torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                                const torch::Tensor& bias, bool is_transposed) const = 0;

 private:
  int64_t rows_, columns_, num_weights_;
  torch::Device device_;
};

using SparseLayoutPtr = std::shared_ptr<const SparseLayout>;

/// CSR layout for any mask, bool [m, n]. Permuting inputs and outputs costs nothing.
SparseLayoutPtr make_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
/// Diagonal layout; TORCH_CHECK that the mask consists of whole diagonals
/// (sparse/patterns/diagonal.h). No index per weight; permuting costs copies of inputs and outputs.
SparseLayoutPtr make_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
/// Block layout; TORCH_CHECK that the mask consists of whole blocks of size x size weights.
SparseLayoutPtr make_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                  const SparseOrder& order);
/// True if kernels support blocks of this side: a multiple of 16 (vectors), up to 2048 (GPU grid).
inline bool is_block_size(int64_t size) { return size > 0 && size % 16 == 0 && size <= 2048; }

}  // namespace shoal
