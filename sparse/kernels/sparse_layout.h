#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

// T tokens  m outputs  n inputs
namespace shoal {

/// Orders of a product's inputs and outputs relative to those of a sparse matrix S, as in a
/// Permutation; undefined: unchanged. The product is then with P S Q, where (Q x)_i = x_{inputs(i)}
/// and (P z)_j = z_{outputs(j)}.
struct SparseOrder {
  torch::Tensor inputs;   ///< int64 [n]
  torch::Tensor outputs;  ///< int64 [m]
};

/// The storage format of a sparse matrix S [m, n] and its products with tokens, in float32 or
/// float64, on the device of its mask. Values are the weights in the layout's own order, packed
/// from the dense S, which is what is trained.
///
/// On the CPU products use at::parallel_for, and results are independent of the number of threads.
/// On a GPU they are queued on the current stream (gpu_layout.h) and reproducible from run to run.
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

  /// Packs the values of a contiguous S [m, n].
  virtual torch::Tensor pack(const torch::Tensor& weight_mn) const = 0;
  /// The dense matrix [m, n] with these values, zero elsewhere.
  virtual torch::Tensor unpack(const torch::Tensor& values) const = 0;

  /// x (P S Q)ᵀ + b: contiguous x [T, n] and b [m] (or undefined) -> [T, m].
  virtual torch::Tensor multiply(const torch::Tensor& x_Tn, const torch::Tensor& values,
                                 const torch::Tensor& bias_m) const = 0;
  /// dy P S Q: contiguous dy [T, m] -> [T, n].
  virtual torch::Tensor multiply_transposed(const torch::Tensor& dy_Tm,
                                            const torch::Tensor& values) const = 0;
  /// The gradient of the values, from contiguous x [T, n] and dy [T, m].
  virtual torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                                       const torch::Tensor& dy_Tm) const = 0;

 private:
  int64_t rows_, columns_, num_weights_;
  torch::Device device_;
};

using SparseLayoutPtr = std::shared_ptr<const SparseLayout>;

/// Compressed sparse rows, for any mask, bool [m, n]. Orders cost nothing.
SparseLayoutPtr make_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
/// Whole diagonals (sparse/patterns/diagonal.h), else TORCH_CHECK. Products read no index per
/// weight; orders copy inputs and outputs.
SparseLayoutPtr make_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order);
/// Whole blocks of size x size weights, else TORCH_CHECK.
SparseLayoutPtr make_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                  const SparseOrder& order);
/// True if the block kernels support this side: whole vectors, and tiles that fit a GPU's grid.
inline bool is_block_size(int64_t size) { return size > 0 && size % 16 == 0 && size <= 2048; }

}  // namespace shoal
