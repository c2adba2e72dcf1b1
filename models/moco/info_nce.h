#pragma once

#include <torch/types.h>

#include <cstdint>

#include "parallel/comm/communicator.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {

/// Rows of all ranks, concatenated in rank order, and the index of this rank's first row.
struct GatheredRows {
  torch::Tensor rows;  ///< without gradients
  int64_t first = 0;
};

/// All-gathers rows, whose number may differ between ranks. Collective; the host waits for counts.
GatheredRows gather_rows(const torch::Tensor& rows, Communicator& world);

/// Divides each row by its Euclidean norm, in float32 or wider.
torch::Tensor unit_rows(const torch::Tensor& x_bD);

/// Contrastive logits [b, B]: cosine of each query with each key, divided by the temperature. Keys
/// must have norm 1. The positive key of query i is first + i.
torch::Tensor contrast(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                       double temperature);

/// Index of each query's positive key: first, first + 1, …; int64 [b].
torch::Tensor own_keys(const torch::Tensor& query_bD, const GatheredRows& key_BD);

/// InfoNCE loss summed over this rank's queries: 2 T times the cross entropy of the positive key
/// among all keys. The sum over ranks divided by B is the published loss of one direction.
/// Source: Chen, Xie and He 2021 (MoCo v3), equation 1 and its published code.
torch::Tensor info_nce_sum(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                           double temperature);

}  // namespace shoal
