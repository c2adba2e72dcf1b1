#pragma once

#include <torch/types.h>

#include <array>
#include <utility>

#include "runtime/options/config.h"

// m rows, outputs  n columns, inputs
namespace shoal {

/// Scores by which the rules `cht` and `cht_s` choose missing links, weights that are off, to grow.
/// They predict links of a graph from its topology alone; here the nodes are a mask's rows and
/// columns, and its weights are links. A missing link of row u and column v is likely if paths of
/// three links u - c - r - v exist whose nodes c and r have few links that lead elsewhere.
///
/// Score of a path, where e counts the external links of a node, and i the internal ones, which
/// lead to other nodes of the paths between u and v:
///
///     L3p, CH3:  1 / sqrt((1 + e_c) (1 + e_r))
///     L3p, CH2:  sqrt((1 + i_c) (1 + i_r) / ((1 + e_c) (1 + e_r)))
///
/// L3n scores pairs of rows, and of columns, in place of paths. Two nodes a and b with C(a, b) > 0
/// common neighbours have, not symmetrically,
///
///     1 + e = max(links(b) - C(a, b), 1);  pair(a, b) = 1 / (1 + e)  or  (1 + C(a, b)) / (1 + e)
///
/// for CH3 and CH2, and the score of (u, v) is the sum of pair(u, b) over the rows b linked to v,
/// plus the sum of pair(v, c) over the columns c linked to u.
///
/// Source: Zhang et al. 2024 (Cannistraci-Hebb training, CHT) for L3p, 2025 (CHTs) for L3n.
enum class LinkScore { kCh3L3p, kCh2L3p, kCh3L3n, kCh2L3n };

template <>
struct EnumNames<LinkScore> {
  static constexpr std::array names{
      std::pair{LinkScore::kCh3L3p, "ch3_l3p"}, std::pair{LinkScore::kCh2L3p, "ch2_l3p"},
      std::pair{LinkScore::kCh3L3n, "ch3_l3n"}, std::pair{LinkScore::kCh2L3n, "ch2_l3n"}};
};

/// Returns the scores of the missing links of a mask, bool [m, n] -> float64 [m, n], >= 0; zero
/// where a link exists. Sums of products are exact: bits are independent of the number of threads.
///
/// Cost in multiply-adds: L3n 2 m n (m + n); L3p m n (m + n) + d² m² n² at density d, of which the
/// second term is min(m, n) matrix products.
torch::Tensor link_scores(const torch::Tensor& mask_mn, LinkScore kind);

}  // namespace shoal
