#include <ATen/Dispatch.h>

#include <vector>

#include "runtime/device/real_types.h"
#include "sparse/kernels/blocks/block_program.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/layout_index.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/kernels/work_split.h"

// T tokens  m outputs  n inputs  b side of a block  z blocks
namespace shoal {
namespace {

/// Tokens per piece of work. Products: as many as share the weights in the first-level cache.
/// Gradients: as many as keep x and dy in the second-level cache.
constexpr int64_t kBlockTokens = 64, kDotTokens = 256;

torch::Tensor multiply_by_blocks(const BlockProgram& program, const torch::Tensor& x,
                                 const torch::Tensor& values, const torch::Tensor& bias) {
  const int64_t T = x.size(0), outputs = program.num_block_rows * program.size;
  torch::Tensor y = torch::empty({T, outputs}, x.options());
  const int64_t tiles = divide_up(T, kBlockTokens);
  const int64_t ranges = ranges_beside(tiles, program.num_block_rows, 1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_linear", [&] {
    const TokenRows<const scalar_t> from{x.const_data_ptr<scalar_t>(), x.size(1), x.size(1), T};
    const TokenRows<scalar_t> to{y.mutable_data_ptr<scalar_t>(), outputs, outputs, T};
    at::parallel_for(0, tiles * ranges, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i / ranges * kBlockTokens, tokens = std::min(kBlockTokens, T - begin);
        const IndexRange rows = piece_of(program.num_block_rows, ranges, i % ranges, 1);
        multiply_blocks<scalar_t>({program, values.const_data_ptr<scalar_t>(),
                                   const_data_or_null<scalar_t>(bias), rows.begin, rows.end},
                                  from.part(begin, tokens), to.part(begin, tokens));
      }
    });
  });
  return y;
}

/// Block layout.
class BlockLayout : public SparseLayout {
 public:
  BlockLayout(const torch::Tensor& mask_mn, int64_t size, const SparseOrder& order)
      : SparseLayout(mask_mn), size_(size), places_(order, device()), blocks_(mask_mn, size) {
    place_z_ = (blocks_.row_z * columns() + blocks_.column_z) * size;
    value_z_ = blocks_.by_output[2].to(torch::kInt64) * (size * size);
    value_of_transpose_z_ = blocks_.by_input[2].to(torch::kInt64) * (size * size);
  }

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    const torch::Tensor values = torch::empty({num_weights()}, weight_mn.options());
    copy_transposed({weight_mn, place_z_, columns()}, {values, value_z_, size_});
    return values;
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    const torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    copy_transposed({values, value_z_, size_}, {dense, place_z_, columns()});
    return dense;
  }
  torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                               const torch::Tensor& dy_Tm) const override {
    const torch::Tensor dy = in_order(dy_Tm, places_.output_at);
    const int64_t T = x_Tn.size(0), parts = gradient_parts(T);
    const int64_t ranges = ranges_beside(parts, program().num_block_rows, 1);
    torch::Tensor sums = torch::zeros({parts, num_weights()}, x_Tn.options());
    AT_DISPATCH_FLOATING_TYPES(x_Tn.scalar_type(), "sparse_linear", [&] {
      const TokenRows<const scalar_t> inputs{x_Tn.const_data_ptr<scalar_t>(), columns(), columns(),
                                             T};
      const TokenRows<const scalar_t> outputs{dy.const_data_ptr<scalar_t>(), rows(), rows(), T};
      auto* gradient = sums.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, parts * ranges, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const IndexRange part = piece_of(T, parts, i / ranges, kDotTokens);
          const IndexRange block_rows = piece_of(program().num_block_rows, ranges, i % ranges, 1);
          for (int64_t t = part.begin; t < part.end; t += kDotTokens) {
            const int64_t tokens = std::min(kDotTokens, part.end - t);
            add_block_dots<scalar_t>({program(), inputs.part(t, tokens), outputs.part(t, tokens)},
                                     block_rows.begin, block_rows.end,
                                     gradient + i / ranges * num_weights());
          }
        }
      });
    });
    return sum_of_parts(sums);
  }

 protected:
  torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                        const torch::Tensor& bias, bool is_transposed) const override {
    if (!is_transposed) return multiply_by_blocks(program(), x, values, bias);
    const torch::Tensor transposed = torch::empty_like(values);
    copy_transposed({values, value_of_transpose_z_, size_}, {transposed, value_z_, size_});
    return multiply_by_blocks(program(/*is_transposed=*/true), x, transposed, bias);
  }

 private:
  /// Blocks in a buffer: block z begins at element at_z[z], and its rows are `stride` apart.
  struct Blocks {
    const torch::Tensor &data, &at_z;
    int64_t stride;
  };

  BlockProgram program(bool is_transposed = false) const {
    const std::vector<torch::Tensor>& blocks = is_transposed ? blocks_.by_input : blocks_.by_output;
    return {size_,
            blocks[0].size(0) - 1,
            blocks[0].const_data_ptr<int32_t>(),
            blocks[1].const_data_ptr<int32_t>(),
            const_data_or_null<int32_t>(places_.from(is_transposed)),
            const_data_or_null<int32_t>(places_.to(is_transposed))};
  }
  /// Copies all blocks, transposing each.
  void copy_transposed(const Blocks& from, const Blocks& to) const {
    const auto *from_at = from.at_z.const_data_ptr<int64_t>(),
               *to_at = to.at_z.const_data_ptr<int64_t>();
    AT_DISPATCH_FLOATING_TYPES(from.data.scalar_type(), "sparse_linear", [&] {
      const auto* source = from.data.const_data_ptr<scalar_t>();
      auto* target = to.data.mutable_data_ptr<scalar_t>();
      for (int64_t z = 0; z < to.at_z.size(0); ++z) {
        transpose_matrix<scalar_t>(
            {source + from_at[z], from.stride, size_, size_, target + to_at[z], to.stride});
      }
    });
  }

  int64_t size_;
  SparsePlaces places_;
  BlockIndex blocks_;
  /// First element of each block in S and in the values, in either order; int64.
  torch::Tensor place_z_, value_z_, value_of_transpose_z_;
};

}  // namespace

SparseLayoutPtr make_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                  const SparseOrder& order) {
  if (mask_mn.is_cuda()) return make_gpu_block_layout(mask_mn.contiguous(), size, order);
  return std::make_shared<BlockLayout>(mask_mn.contiguous(), size, order);
}

}  // namespace shoal
