#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// R rows  D width  K keys of a unit  k keys chosen per row  u units
namespace shoal {

/// Stacked key-value tables.
struct MemoryTables {
  torch::Tensor keys;     ///< [u, K, D]
  torch::Tensor values;   ///< [u, K, D]
  torch::Tensor scale_u;  ///< [u], positive: multiplies a unit's scores; undefined is 1
};

/// Key-value lookup: for each row, the sum of the values of the k keys with the largest <query,
/// key> in its unit's table, weighted by the softmax over these k scores. Rows are sorted by unit,
/// and rows_u[i] of them belong to unit i. [R, D] -> [R, D]. Ties go to the lower key.
///
/// The scores of all keys are never in memory together. Gradients of queries and keys flow through
/// the chosen keys only; those of the tables are dense, each written once, summed in the order of
/// the rows for any number of threads, and exactly zero for keys that no row chose. One node of the
/// autograd graph. float32 or float64. NaN scores are skipped; a row with fewer than k others
/// becomes NaN, as do the gradients it contributes to. TORCH_CHECK on sizes that do not fit, unless
/// 1 <= k <= K, and on tables that are not contiguous or of another dtype than the rows. Source:
/// Nexus layer, algorithm A2; Lample et al. 2019.
torch::Tensor memory_lookup(const torch::Tensor& query_RD, const std::vector<int64_t>& rows_u,
                            const MemoryTables& tables, int64_t k);

}  // namespace shoal
