#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// R rows  D width  K keys of a unit  k keys chosen per row  u units
namespace shoal {

/// The tables of memory units: K learned keys and values each, stacked by unit.
struct MemoryTables {
  torch::Tensor keys;     ///< [u, K, D]
  torch::Tensor values;   ///< [u, K, D]
  torch::Tensor scale_u;  ///< [u], positive: multiplies a unit's scores; undefined is 1
};

/// Looks up rows (queries) in the tables of their memory units: returns, for each row, the sum of
/// the values of the k keys with the largest scores <query, key>, weighted by the softmax of these.
/// [R, D] -> [R, D]. Rows are sorted by unit, rows_u[i] for unit i. Ties go to the lower key.
///
/// The scores of all keys are never in memory together. Gradients of queries and keys flow through
/// the chosen keys only; those of the tables are dense, summed in the order of the rows for any
/// number of threads, and zero for keys never chosen. One autograd node. float32 or float64. NaN
/// scores are skipped; a row with fewer than k other scores becomes NaN, as do the gradients it
/// contributes to. TORCH_CHECK unless 1 <= k <= K, on sizes that do not fit, and on tables that are
/// not contiguous or of another dtype than the rows. Sources: Nexus layer of "OneSparse: A Unified
/// Framework for Sparse Activation Layers in Vision Models", algorithm A2; Lample et al. 2019.
torch::Tensor memory_lookup(const torch::Tensor& query_RD, const std::vector<int64_t>& rows_u,
                            const MemoryTables& tables, int64_t k);

}  // namespace shoal
