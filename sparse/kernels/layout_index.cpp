#include "sparse/kernels/layout_index.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

#include "sparse/patterns/diagonal.h"

// m outputs  n inputs  P diagonals  D weights of each  z blocks
namespace shoal {

torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn) {
  const Diagonals diagonals{mask_mn.size(0), mask_mn.size(1)};
  const torch::Tensor on_PD = mask_mn.reshape({-1})
                                  .index_select(0, diagonals.places(mask_mn.device()).view({-1}))
                                  .view({diagonals.count(), diagonals.length()});
  const torch::Tensor is_on_P = on_PD.any(1);
  TORCH_CHECK(is_on_P.equal(on_PD.all(1)), "sparse layout: a mask of ", mask_mn.sizes(),
              " weights is not made of whole diagonals");
  return is_on_P.nonzero().view({-1});
}

BlockIndex::BlockIndex(const torch::Tensor& mask_mn, int64_t size) {
  TORCH_CHECK(is_block_size(size) && mask_mn.size(0) % size == 0 && mask_mn.size(1) % size == 0,
              "sparse layout: blocks of ", size, " do not fit ", mask_mn.sizes(), " weights");
  const torch::Tensor grid =
      mask_mn.view({mask_mn.size(0) / size, size, mask_mn.size(1) / size, size});
  const torch::Tensor is_on = grid.any(3).any(1);
  TORCH_CHECK(is_on.equal(grid.all(3).all(1)), "sparse layout: a mask of ", mask_mn.sizes(),
              " weights is not made of whole blocks of ", size);
  const torch::Tensor places = is_on.nonzero();
  row_z = places.select(1, 0).contiguous();
  column_z = places.select(1, 1).contiguous();
  by_output = {starts_of(row_z, is_on.size(0)), column_z.to(torch::kInt32),
               at::arange(row_z.size(0), row_z.options().dtype(torch::kInt32))};
  const torch::Tensor block = column_z.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  by_input = {starts_of(column_z.index_select(0, block), is_on.size(1)),
              row_z.index_select(0, block).to(torch::kInt32), block.to(torch::kInt32)};
}

SparsePlaces::SparsePlaces(const SparseOrder& order, const torch::Device& device) {
  const auto as_index = [&](const torch::Tensor& places) {
    return places.to(device, torch::kInt32).contiguous();
  };
  if (order.inputs.defined()) input_at = as_index(order.inputs);
  if (order.outputs.defined()) output_at = as_index(order.outputs.argsort());
}

torch::Tensor in_order(const torch::Tensor& x, const torch::Tensor& at) {
  return at.defined() ? x.index_select(-1, at) : x;
}

torch::Tensor starts_of(const torch::Tensor& ascending, int64_t count) {
  return at::searchsorted(ascending, at::arange(count + 1, ascending.options()),
                          /*out_int32=*/true);
}

}  // namespace shoal
