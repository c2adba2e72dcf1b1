#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <bit>

#include "runtime/base/exact_share.h"
#include "sparse/patterns/pattern.h"

// k blocks across and down  f factors
namespace shoal {
namespace {

/// Flat block butterfly: on a grid of k x k blocks, k a power of two, block (i, j) is on where
/// i xor j is 0, 1, 2, 4, ... or 2^(f - 1). Does not change.
/// Source: Chen et al. 2022 (Pixelated Butterfly), section 3.
class Butterfly : public Pattern {
 public:
  struct Options {
    int64_t grid = 16;
    int64_t size = 1;

    static constexpr auto fields() {
      return std::tuple{
          field("grid", &Options::grid, "blocks across and down (k), a power of two",
                in_range(2, 1 << 16)),
          field("size", &Options::size,
                "side of the squares of weights that hardware takes at once: one that the "
                "butterfly touches is on as a whole",
                in_range(1, 1 << 16), unit("weights"))};
    }
    void validate(Problems& problems) const {
      if (!std::has_single_bit(static_cast<uint64_t>(grid))) {
        problems.add("grid", fmt::format("{} is no power of two", grid));
      }
    }
  };
  /// The most factors of a density (f + 1) / k up to the one asked for.
  Butterfly(const Options& options, const Context& context) : Pattern(context), options_(options) {
    const int64_t k = options.grid;
    if (rows() % k != 0 || columns() % k != 0) {
      refuse(fmt::format("a grid of {0} x {0} does not divide {1} x {2} weights", k, rows(),
                         columns()));
    }
    if (rows() % options.size != 0 || columns() % options.size != 0) {
      refuse(fmt::format("squares of {0} x {0} do not divide {1} x {2} weights", options.size,
                         rows(), columns()));
    }
    const int64_t most = std::bit_width(static_cast<uint64_t>(k)) - 1;
    factors_ = std::min(most, floor_share(k, decimal_of(context.density)) - 1);
    if (factors_ < 1) {
      refuse(
          fmt::format("a density of {} is less than one factor of a butterfly of {} blocks, {}; "
                      "use a larger grid",
                      context.density, k, 2.0 / static_cast<double>(k)));
    }
  }
  bool limits_span() const override { return true; }
  MaskStorage storage() const override {
    return options_.size > 1 || rows() == columns() ? MaskStorage::kBlocks : MaskStorage::kRows;
  }
  int64_t block_size() const override {
    return options_.size > 1 ? options_.size : rows() / options_.grid;
  }
  bool can_change() const override { return false; }
  int64_t num_on() const override { return mask().sum().item<int64_t>(); }
  torch::Tensor choose(const torch::Tensor& score_C) const override {
    return mask().view({-1}).to(score_C.device());
  }

 private:
  torch::Tensor mask() const {
    const int64_t k = options_.grid, size = options_.size;
    torch::Tensor is_on_kk = at::zeros({k, k}, torch::kBool);
    auto* is_on = is_on_kk.mutable_data_ptr<bool>();
    for (int64_t i = 0; i < k; ++i) {
      is_on[i * k + i] = true;
      for (int64_t f = 0; f < factors_; ++f) is_on[i * k + (i ^ (int64_t{1} << f))] = true;
    }
    const torch::Tensor is_on_mn =
        is_on_kk.repeat_interleave(rows() / k, 0).repeat_interleave(columns() / k, 1);
    if (size == 1) return is_on_mn;
    return is_on_mn.view({rows() / size, size, columns() / size, size})
        .any(3, /*keepdim=*/true)
        .any(1, /*keepdim=*/true)
        .expand({-1, size, -1, size})
        .reshape({rows(), columns()});
  }

  Options options_;
  int64_t factors_ = 0;
};

const Registration<Pattern, Butterfly> registered_butterfly{
    "butterfly", "a flat block butterfly (PixelatedBFly)"};

}  // namespace
}  // namespace shoal
