#include <ATen/ops/argsort.h>
#include <torch/library.h>

#include "runtime/device/operator.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/layout_index.h"
#include "sparse/kernels/rows/gpu_csr_matrix.h"

// T tokens  r rows of a matrix  c its columns  z weights

// multiply: x [T, c] times the rows of a matrix with these values, [T, r]. dots: products of dy [T,
// r] and x [T, c] summed over tokens for each weight, [z]. T and z are positive.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.class_<shoal::GpuCsrMatrix>("CsrMatrix");
  m.def(
      "sparse_csr_multiply(__torch__.torch.classes.shoal.CsrMatrix matrix, Tensor values, Tensor "
      "x) -> Tensor");
  m.def(
      "sparse_csr_dots(__torch__.torch.classes.shoal.CsrMatrix matrix, Tensor dy, Tensor x) -> "
      "Tensor");
}

namespace shoal {
namespace {

using GpuCsrMatrixPtr = c10::intrusive_ptr<GpuCsrMatrix>;
using CsrOperator =
    Operator<torch::Tensor(const GpuCsrMatrixPtr&, const torch::Tensor&, const torch::Tensor&)>;

/// Makes a matrix from the rows, ascending, and columns of its weights.
GpuCsrMatrixPtr make_csr_matrix(const torch::Tensor& row, const torch::Tensor& column,
                                int64_t num_rows, int64_t num_columns) {
  auto matrix = c10::make_intrusive<GpuCsrMatrix>();
  matrix->start = starts_of(row, num_rows);
  matrix->column = column.to(torch::kInt32).contiguous();
  matrix->num_columns = num_columns;
  return matrix;
}

/// CSR layout of P S Q on a GPU for any mask, by rows and, for the gradient of x, by columns.
class GpuCsrLayout : public GpuLayout {
 public:
  GpuCsrLayout(const torch::Tensor& mask_mn, const SparseOrder& order) : GpuLayout(mask_mn) {
    torch::Tensor ordered = mask_mn, row_of_S, column_of_S;
    if (order.outputs.defined()) {
      row_of_S = order.outputs.to(device());
      ordered = ordered.index_select(0, row_of_S);
    }
    if (order.inputs.defined()) {
      column_of_S = order.inputs.to(device()).argsort();
      ordered = ordered.index_select(1, column_of_S);
    }
    const torch::Tensor places = ordered.nonzero();
    const torch::Tensor row = places.select(1, 0).contiguous(),
                        column = places.select(1, 1).contiguous();
    by_output_ = make_csr_matrix(row, column, rows(), columns());
    value_of_transpose_ = column.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    by_input_ = make_csr_matrix(column.index_select(0, value_of_transpose_),
                                row.index_select(0, value_of_transpose_), columns(), rows());
    const torch::Tensor own_row = row_of_S.defined() ? row_of_S.index_select(0, row) : row;
    const torch::Tensor own_column =
        column_of_S.defined() ? column_of_S.index_select(0, column) : column;
    place_ = own_row * columns() + own_column;
  }

 protected:
  torch::Tensor plain_product(const torch::Tensor& x, const torch::Tensor& values,
                              bool is_transposed) const override {
    static const CsrOperator op("shoal::sparse_csr_multiply");
    if (!is_transposed) return op(by_output_, values, x);
    return op(by_input_, values.index_select(0, value_of_transpose_), x);
  }
  torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const override {
    static const CsrOperator op("shoal::sparse_csr_dots");
    return op(by_output_, dy_Tm, x_Tn);
  }

 private:
  GpuCsrMatrixPtr by_output_, by_input_;
  torch::Tensor value_of_transpose_;  ///< of each weight of by_input_, int64
};

}  // namespace

SparseLayoutPtr make_gpu_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order) {
  return std::make_shared<GpuCsrLayout>(mask_mn, order);
}

}  // namespace shoal
