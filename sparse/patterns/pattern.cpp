#include "sparse/patterns/pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/exact_share.h"
#include "runtime/base/integers.h"
#include "sparse/patterns/best_cells.h"

namespace shoal {
namespace {

/// The least density of two digits that leaves one of `count`.
std::string least_share(int64_t count) {
  const double least = 1.0 / static_cast<double>(count);
  const std::string rounded = fmt::format("{:.2g}", least);
  if (floor_share(count, decimal_of(std::stod(rounded))) >= 1) return rounded;
  const double last_digit = std::pow(10.0, std::floor(std::log10(least)) - 1.0);
  return fmt::format("{:.2g}", least + last_digit);
}

}  // namespace

bool Pattern::holds(const torch::Tensor& is_on_C) const {
  return is_on_C.sum().item<int64_t>() == num_on();
}

bool Pattern::fits(const torch::Tensor& mask_mn, bool may_exceed) const {
  const torch::Tensor is_on_C = pool(mask_mn.to(torch::kFloat32)) != 0;
  if (!expand(is_on_C).equal(mask_mn)) return false;
  const bool exceeds = may_exceed && can_exceed_density() && can_change() &&
                       is_on_C.sum().item<int64_t>() > num_on();
  return exceeds || holds(is_on_C);
}

torch::Tensor Pattern::choose(const torch::Tensor& score_C) const {
  return best_cells(score_C, num_on());
}

torch::Tensor Pattern::update(const CellUpdate& update) const {
  const torch::Tensor kept = prune(update);
  return kept | best_cells(grow_scores(update, kept), update.num_grow, ~kept);
}

int64_t Pattern::share_of(int64_t cells) const {
  const int64_t share = floor_share(cells, decimal_of(context_.density));
  if (share < 1) refuse_density(cells, "cells");
  return share;
}

void Pattern::refuse_density(int64_t count, std::string_view noun) const {
  refuse(
      fmt::format("a density of {:.4g} leaves none of {} {}; raise sparsity.density to at least "
                  "{}, or leave the layer out of sparsity.layers",
                  context_.density, count, noun, least_share(count)));
}

void Pattern::require_squares(int64_t side, std::string_view noun) const {
  if (rows() % side == 0 && columns() % side == 0) return;
  const std::vector<int64_t> sides = divisors(std::gcd(rows(), columns()));
  refuse(fmt::format("{0} of {1} x {1} do not divide {2} x {3} weights; {4}", noun, side, rows(),
                     columns(),
                     sides.size() == 1 ? "leave the layer out of sparsity.layers"
                                       : fmt::format("sizes that do: {}", fmt::join(sides, ", "))));
}

void Pattern::refuse(const std::string& what) const {
  throw ConfigError(fmt::format("{}: {}", context_.layer, what));
}

torch::Tensor prune(const CellUpdate& update) {
  const int64_t on = update.is_on_C.sum().item<int64_t>();
  return best_cells(update.keep_score_C, std::max<int64_t>(0, on - update.num_drop),
                    update.is_on_C);
}

torch::Tensor grow_scores(const CellUpdate& update, const torch::Tensor& is_kept_C) {
  const torch::Tensor& score_C = update.grow_score_C;
  if (!update.excludes_dropped) return score_C;
  const torch::Tensor is_dropped_C = update.is_on_C & ~is_kept_C;
  return score_C.where(~is_dropped_C, score_C - score_C.max() - 1.0);
}

}  // namespace shoal
