#include <torch/library.h>

#include "runtime/device/operator.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/layout_index.h"
#include "sparse/patterns/diagonal.h"

// T tokens  m outputs  n inputs  D weights of a diagonal  K diagonals

// multiply: product from one side of the matrix to the other, of `to_width` elements, with values
// [K, D]; `at`: columns of either side in memory (null: the same). dots: products of shorter [T, D]
// and longer [T, P] summed over tokens for each weight, in parts of the tokens, [parts, K, D].
// sparse/kernels/diagonals/diagonal_program.h defines the elements that a weight links.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "sparse_diagonal_multiply(Tensor from, Tensor values, Tensor offset, Tensor? from_at, "
      "Tensor? to_at, int to_width, bool to_longer) -> Tensor");
  m.def("sparse_diagonal_dots(Tensor shorter, Tensor longer, Tensor offset) -> Tensor");
}

namespace shoal {
namespace {

/// Diagonal layout on a GPU.
class GpuDiagonalLayout : public GpuLayout {
 public:
  GpuDiagonalLayout(const torch::Tensor& mask_mn, const SparseOrder& order)
      : GpuLayout(mask_mn), is_tall_(rows() >= columns()), places_(order, device()) {
    const torch::Tensor offsets = offsets_that_are_on(mask_mn);
    offset_K_ = offsets.to(torch::kInt32);
    place_ = Diagonals{rows(), columns()}.places(device()).index_select(0, offsets).view({-1});
  }

 protected:
  torch::Tensor plain_product(const torch::Tensor& x, const torch::Tensor& values,
                              bool is_transposed) const override {
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&,
                                        const torch::Tensor&, const MaybeTensor&,
                                        const MaybeTensor&, int64_t, bool)>
        op("shoal::sparse_diagonal_multiply");
    return op(x, values.view({offset_K_.size(0), -1}), offset_K_,
              optional_of(places_.from(is_transposed)), optional_of(places_.to(is_transposed)),
              is_transposed ? columns() : rows(), is_tall_ != is_transposed);
  }
  torch::Tensor dots(const torch::Tensor& x_Tn, const torch::Tensor& dy_Tm) const override {
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&,
                                        const torch::Tensor&)>
        op("shoal::sparse_diagonal_dots");
    const torch::Tensor x = in_order(x_Tn, places_.input_at),
                        dy = in_order(dy_Tm, places_.output_at);
    return op(is_tall_ ? x : dy, is_tall_ ? dy : x, offset_K_).sum(0).view({-1});
  }

 private:
  bool is_tall_;  ///< then inputs are the shorter side, else outputs
  SparsePlaces places_;
  torch::Tensor offset_K_;  ///< int32
};

}  // namespace

SparseLayoutPtr make_gpu_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order) {
  return std::make_shared<GpuDiagonalLayout>(mask_mn, order);
}

}  // namespace shoal
