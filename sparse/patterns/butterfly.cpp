#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "runtime/base/exact_share.h"
#include "sparse/patterns/pattern.h"

// k blocks across and down  f factors
namespace shoal {
namespace {

/// Flat block butterfly: in a grid of k x k blocks, k a power of two, block (i, j) is on if i xor j
/// is 0, 1, 2, 4, ... or 2^(f - 1). The mask is fixed. A dense low-rank product may take a share of
/// the density. Source: Chen et al. 2022 (Pixelated Butterfly), section 3.
class Butterfly : public Pattern {
 public:
  struct Options {
    std::optional<int64_t> grid;
    int64_t size = 1;
    double low_rank = 0.0;

    static constexpr auto fields() {
      return std::tuple{
          field("grid", &Options::grid,
                "blocks per row and column (k), a power of two; auto: the one with the highest "
                "density that does not exceed the requested one; among equals, the largest",
                in_range(2, 1 << 16), unset_word("auto")),
          field("size", &Options::size,
                "side of the squares of weights that hardware processes at once: a square that the "
                "butterfly touches is unmasked as a whole",
                in_range(1, 1 << 16), unit("weights")),
          field("low_rank", &Options::low_rank,
                "fraction of the density assigned to a low-rank product U V; a gate per token "
                "weights the two parts",
                in_range(0.0, below(1.0)))};
    }
    void validate(Problems& problems) const {
      if (grid && !std::has_single_bit(static_cast<uint64_t>(*grid))) {
        problems.add("grid", fmt::format("{} is not a power of two", *grid));
      }
    }
  };
  /// Chooses the largest f whose density (f + 1) / k fits into the density left by low_rank.
  Butterfly(const Options& options, const Context& context) : Pattern(context), options_(options) {
    if (options.grid) check_grid(*options.grid);
    require_squares(options.size, "squares");
    const int64_t weights = share_of(rows() * columns());
    rank_ = chosen_rank(weights);
    const int64_t left = weights - rank_ * (rows() + columns());
    grid_ = options.grid ? *options.grid : nearest_grid(left);
    factors_ = most_factors(grid_, left);
    if (factors_ < 1) {
      const std::string less = rank_ > 0 ? fmt::format(" less a product of rank {}", rank_) : "";
      refuse(fmt::format(
          "a density of {}{} is less than one factor of a butterfly of {} blocks, {}; {}",
          context.density, less, grid_, 2.0 / static_cast<double>(grid_),
          options.grid ? "use a larger grid"
                       : "raise it, or leave the layer out of sparsity.layers"));
    }
  }
  int64_t low_rank() const override { return rank_; }
  bool limits_span() const override { return true; }
  MaskStorage storage() const override {
    return options_.size > 1 || rows() == columns() ? MaskStorage::kBlocks : MaskStorage::kRows;
  }
  int64_t block_size() const override { return options_.size > 1 ? options_.size : rows() / grid_; }
  bool can_change() const override { return false; }
  int64_t num_on() const override { return mask().sum().item<int64_t>(); }
  bool holds(const torch::Tensor& is_on_C) const override {
    return is_on_C.equal(choose(is_on_C.to(torch::kFloat32)));
  }
  torch::Tensor choose(const torch::Tensor& score_C) const override {
    return mask().view({-1}).to(score_C.device());
  }

 private:
  void check_grid(int64_t grid) const {
    if (rows() % grid == 0 && columns() % grid == 0) return;
    refuse(fmt::format("a grid of {0} x {0} does not divide {1} x {2} weights", grid, rows(),
                       columns()));
  }
  /// Largest f of a grid for so many weights, before blocks are made whole; below 1 if none fits.
  int64_t most_factors(int64_t grid, int64_t weights) const {
    const int64_t all = std::bit_width(static_cast<uint64_t>(grid)) - 1;
    return std::min(all, weights / (rows() * columns() / grid) - 1);
  }
  /// The best power of two that divides both sides into blocks of at least a square, or the
  /// largest.
  int64_t nearest_grid(int64_t weights) const {
    const uint64_t sides = static_cast<uint64_t>(rows() | columns());
    auto largest = static_cast<int64_t>(sides & (~sides + 1));
    while (largest > 2 && std::min(rows(), columns()) / largest < options_.size) largest /= 2;
    if (largest < 2) {
      refuse(fmt::format("no power of two divides {} x {} weights into a grid", rows(), columns()));
    }
    int64_t best = largest, most = 0;
    for (int64_t grid = largest; grid >= 2; grid /= 2) {
      const int64_t factors = most_factors(grid, weights);
      const int64_t on = factors < 1 ? 0 : (factors + 1) * (rows() * columns() / grid);
      if (on > most) best = grid, most = on;
    }
    return best;
  }
  int64_t chosen_rank(int64_t weights) const {
    if (options_.low_rank == 0.0) return 0;
    const int64_t share = floor_share(weights, decimal_of(options_.low_rank));
    const int64_t rank = share / (rows() + columns());
    if (rank < 1) {
      refuse(
          fmt::format("low_rank: {} of a density of {} is {} weights, and a product of rank 1 "
                      "has {}; set low_rank: 0, or at least {:.2g}",
                      options_.low_rank, context().density, share, rows() + columns(),
                      static_cast<double>(rows() + columns()) / static_cast<double>(weights)));
    }
    return rank;
  }

  torch::Tensor mask() const {
    const int64_t k = grid_, size = options_.size;
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
  int64_t rank_ = 0, grid_ = 0, factors_ = 0;
};

const Registration<Pattern, Butterfly> registered_butterfly{
    "butterfly", "a flat block butterfly (PixelatedBFly)"};

}  // namespace
}  // namespace shoal
