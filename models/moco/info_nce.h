#pragma once

#include <torch/types.h>

#include <cstdint>

#include "parallel/comm/communicator.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {

/// Rows of all ranks, in rank order: keys that this rank's queries are compared with, for example.
struct GatheredRows {
  torch::Tensor rows;  ///< [B, ...], detached
  int64_t first = 0;   ///< index in `rows` of this rank's first row
};

/// All-gathers rows, whose number may differ between ranks. Collective; the host waits for counts.
GatheredRows gather_rows(const torch::Tensor& rows, Communicator& world);

/// Divides each row by its Euclidean norm, in float32 or wider.
torch::Tensor unit_rows(const torch::Tensor& x_bD);

/// Returns contrastive logits [b, B]: cosine of each query of this rank with each key of all ranks,
/// divided by the temperature. Keys must have norm 1. The positive key of query i is first + i.
torch::Tensor contrast(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                       double temperature);

/// Returns the index of each query's positive key: first, first + 1, …; int64 [b].
torch::Tensor own_keys(const torch::Tensor& query_bD, const GatheredRows& key_BD);

/// Returns the InfoNCE loss summed over this rank's queries: 2 T times the cross entropy of the
/// positive key among all keys, T the temperature. The sum over ranks divided by B is the published
/// loss of one direction (queries of one view, keys of the other). Source: Chen, Xie and He 2021
/// (MoCo v3), equation 1 and its published code.
torch::Tensor info_nce_sum(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                           double temperature);

}  // namespace shoal
