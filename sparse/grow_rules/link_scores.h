#pragma once

#include <torch/types.h>

#include <array>

#include "runtime/options/config.h"

// m rows, outputs  n columns, inputs
namespace shoal {

/// Scores by which the rules `cht` and `cht_s` choose missing links, weights that are off, to grow.
/// They predict links of a graph from its topology alone. The nodes are a mask's rows and columns;
/// the links are its weights that are on. A missing link of row u and column v is likely if paths
/// of three links u - c - r - v exist whose nodes c and r have few links that lead elsewhere.
///
/// Path-based scores (L3p) add up a term for each path from u to v. Let i count a node's links to
/// other inner nodes (c or r) of these paths, and e its links that leave these paths:
///
///     CH3:  1 / sqrt((1 + e_c) (1 + e_r))
///     CH2:  sqrt((1 + i_c) (1 + i_r) / ((1 + e_c) (1 + e_r)))
///
/// Node-based scores (L3n) are the sum of pair(u, b) over the rows b linked to v, plus the sum of
/// pair(v, c) over the columns c linked to u. If nodes a and b have C > 0 common neighbours, then
///
///     CH3:  pair(a, b) = 1 / max(links(b) - C, 1)
///     CH2:  pair(a, b) = (1 + C) / max(links(b) - C, 1)
///
/// and without common neighbours pair(a, b) = 0.
///
/// Source: Zhang et al. 2024 (Cannistraci-Hebb training, CHT) for L3p, 2025 (CHTs) for L3n.
enum class LinkScore { kCh3L3p, kCh2L3p, kCh3L3n, kCh2L3n };

template <>
inline constexpr std::array kEnumWords<LinkScore>{"ch3_l3p", "ch2_l3p", "ch3_l3n", "ch2_l3n"};

/// Returns the scores of the missing links of a mask, bool [m, n] -> float64 [m, n], >= 0; zero
/// where a link exists. Factors are rounded so that sums are exact, whatever the number of threads.
///
/// Cost in multiply-adds: L3n 2 m n (m + n); L3p m n (m + n) + d² m² n² at density d, of which the
/// second term is min(m, n) matrix products.
torch::Tensor link_scores(const torch::Tensor& mask_mn, LinkScore kind);

}  // namespace shoal
