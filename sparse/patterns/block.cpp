#include <ATen/ops/linalg_vector_norm.h>

#include "sparse/patterns/pattern.h"

namespace shoal {
namespace {

/// Block sparsity: a cell is a block of B x B weights.
class Block : public Pattern {
 public:
  struct Options {
    int64_t size = 32;

    static constexpr auto fields() {
      return std::tuple{
          field("size", &Options::size, "side of a block", in_range(1, 1 << 16), unit("weights"))};
    }
  };
  Block(const Options& options, const Context& context) : Pattern(context), size_(options.size) {
    require_squares(size_, "blocks");
    num_on_ = share_of(num_cells());
  }
  bool limits_span() const override { return true; }
  MaskStorage storage() const override { return MaskStorage::kBlocks; }
  int64_t block_size() const override { return size_; }
  int64_t num_cells() const override { return rows() / size_ * (columns() / size_); }
  int64_t num_on() const override { return num_on_; }
  int64_t num_weights() const override { return num_on_ * size_ * size_; }
  torch::Tensor pool(const torch::Tensor& x_mn) const override {
    return at::linalg_vector_norm(in_blocks(x_mn), 2, at::IntArrayRef{1, 3}).reshape({-1});
  }
  torch::Tensor sum(const torch::Tensor& x_mn) const override {
    return in_blocks(x_mn).sum({1, 3}).reshape({-1});
  }
  torch::Tensor expand(const torch::Tensor& value_C) const override {
    return value_C.view({rows() / size_, 1, columns() / size_, 1})
        .expand({-1, size_, -1, size_})
        .reshape({rows(), columns()});
  }

 private:
  torch::Tensor in_blocks(const torch::Tensor& x_mn) const {
    return x_mn.reshape({rows() / size_, size_, columns() / size_, size_});
  }

  int64_t size_, num_on_ = 0;
};

const Registration<Pattern, Block> registered_block{"block", "square blocks of a grid"};

}  // namespace
}  // namespace shoal
