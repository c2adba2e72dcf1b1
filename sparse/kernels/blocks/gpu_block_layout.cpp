#include <ATen/ops/arange.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "runtime/device/operator.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/mask_cells.h"

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

using MaybeIndex = std::optional<torch::Tensor>;

/// Block layout on a GPU, stored by rows and, for the gradient of x, also by columns.
class GpuBlockLayout : public GpuLayout {
 public:
  GpuBlockLayout(const torch::Tensor& mask_mn, int64_t size, const SparseOrder& order)
      : GpuLayout(mask_mn), size_(size), places_(order, device()) {
    const torch::Tensor places = blocks_that_are_on(mask_mn, size).nonzero();
    row_z_ = places.select(1, 0).contiguous();
    column_z_ = places.select(1, 1).contiguous();
    by_output_ = {starts_of(row_z_, rows() / size), column_z_.to(torch::kInt32),
                  at::arange(row_z_.size(0), row_z_.options().dtype(torch::kInt32))};
    row_of_block_ = row_z_.to(torch::kInt32);
    const torch::Tensor block = column_z_.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    by_input_ = {starts_of(column_z_.index_select(0, block), columns() / size),
                 row_of_block_.index_select(0, block), block.to(torch::kInt32)};
  }

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    return grid_of(weight_mn).index({row_z_, column_z_}).reshape({-1});
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    grid_of(dense).index_put_({row_z_, column_z_}, by_block(values));
    return dense;
  }

 protected:
  torch::Tensor product(const torch::Tensor& x_Tn, const torch::Tensor& values) const override {
    return multiply_op()(x_Tn, by_block(values), by_output_, optional_of(places_.input_at),
                         optional_of(places_.output_at), /*is_transposed=*/false);
  }
  torch::Tensor transposed_product(const torch::Tensor& dy_Tm,
                                   const torch::Tensor& values) const override {
    return multiply_op()(dy_Tm, by_block(values), by_input_, optional_of(places_.output_at),
                         optional_of(places_.input_at), /*is_transposed=*/true);
  }
  torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const override {
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&,
                                        const torch::Tensor&, const torch::Tensor&, int64_t)>
        op("shoal::sparse_block_dots");
    return op(in_order(dy_Tm, places_.output_at), in_order(x_Tn, places_.input_at), row_of_block_,
              by_output_[1], size_)
        .sum(0)
        .view({-1});
  }

 private:
  using MultiplyOperator =
      Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&, at::TensorList,
                             const MaybeIndex&, const MaybeIndex&, bool)>;

  static const MultiplyOperator& multiply_op() {
    static const MultiplyOperator op("shoal::sparse_block_multiply");
    return op;
  }
  /// View [m / b, n / b, b, b] of a matrix.
  torch::Tensor grid_of(const torch::Tensor& weight_mn) const {
    return weight_mn.view({rows() / size_, size_, columns() / size_, size_}).transpose(1, 2);
  }
  torch::Tensor by_block(const torch::Tensor& values) const {
    return values.view({row_z_.size(0), size_, size_});
  }

  int64_t size_;
  GpuPlaces places_;
  torch::Tensor row_z_, column_z_;                   ///< int64
  torch::Tensor row_of_block_;                       ///< row_z_ as int32
  std::vector<torch::Tensor> by_output_, by_input_;  ///< as sparse_block_multiply takes blocks
};

}  // namespace

SparseLayoutPtr make_gpu_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                      const SparseOrder& order) {
  return std::make_shared<GpuBlockLayout>(mask_mn, size, order);
}

}  // namespace shoal
