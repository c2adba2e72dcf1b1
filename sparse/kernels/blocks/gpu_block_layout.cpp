#include <torch/library.h>

#include "runtime/device/operator.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/layout_index.h"

// T tokens  m outputs  n inputs  b side of a block  z blocks

// multiply: x [T, n] times a matrix of blocks, values [z, b, b], or, if is_transposed, dy [T, m]
// times its transpose. `blocks`: start of each row of blocks, and column and index of each block.
// `at`: columns of either side in memory (null: the same). dots: products of dy and x summed over
// tokens for each weight of the blocks in these rows and columns, by token part: [parts, z, b, b].
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "sparse_block_multiply(Tensor from, Tensor values, Tensor[] blocks, Tensor? from_at, "
      "Tensor? to_at, bool is_transposed) -> Tensor");
  m.def("sparse_block_dots(Tensor dy, Tensor x, Tensor row, Tensor column, int size) -> Tensor");
}

namespace shoal {
namespace {

/// Block layout on a GPU.
class GpuBlockLayout : public GpuLayout {
 public:
  GpuBlockLayout(const torch::Tensor& mask_mn, int64_t size, const SparseOrder& order)
      : GpuLayout(mask_mn),
        size_(size),
        places_(order, device()),
        blocks_(mask_mn, size),
        row_of_block_(blocks_.row_z.to(torch::kInt32)) {}

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    return grid_of(weight_mn).index({blocks_.row_z, blocks_.column_z}).reshape({-1});
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    grid_of(dense).index_put_({blocks_.row_z, blocks_.column_z}, by_block(values));
    return dense;
  }

 protected:
  torch::Tensor plain_product(const torch::Tensor& x, const torch::Tensor& values,
                              bool is_transposed) const override {
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&, at::TensorList,
                                        const MaybeTensor&, const MaybeTensor&, bool)>
        op("shoal::sparse_block_multiply");
    return op(x, by_block(values), is_transposed ? blocks_.by_input : blocks_.by_output,
              optional_of(places_.from(is_transposed)), optional_of(places_.to(is_transposed)),
              is_transposed);
  }
  torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const override {
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&,
                                        const torch::Tensor&, const torch::Tensor&, int64_t)>
        op("shoal::sparse_block_dots");
    return op(in_order(dy_Tm, places_.output_at), in_order(x_Tn, places_.input_at), row_of_block_,
              blocks_.by_output[1], size_)
        .sum(0)
        .view({-1});
  }

 private:
  /// View [m / b, n / b, b, b] of a matrix.
  torch::Tensor grid_of(const torch::Tensor& weight_mn) const {
    return weight_mn.view({rows() / size_, size_, columns() / size_, size_}).transpose(1, 2);
  }
  torch::Tensor by_block(const torch::Tensor& values) const {
    return values.view({blocks_.row_z.size(0), size_, size_});
  }

  int64_t size_;
  SparsePlaces places_;
  BlockIndex blocks_;
  torch::Tensor row_of_block_;  ///< int32
};

}  // namespace

SparseLayoutPtr make_gpu_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                      const SparseOrder& order) {
  return std::make_shared<GpuBlockLayout>(mask_mn, size, order);
}

}  // namespace shoal
