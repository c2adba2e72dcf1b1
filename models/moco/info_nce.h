#pragma once

#include <torch/types.h>

#include <cstdint>

#include "parallel/comm/communicator.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {

/// Rows of all ranks, in rank order, and the index of this rank's first.
struct GatheredRows {
  torch::Tensor rows;  ///< without gradients
  int64_t first = 0;
};

/// Gathers rows; a rank may have any number of them. Collective; the host waits for the numbers.
GatheredRows gather_rows(const torch::Tensor& rows, Communicator& world);

/// The rows divided by their L2 norms, in float32 or wider.
torch::Tensor unit_rows(const torch::Tensor& x_bD);

/// Cosines of each query with each key, over the temperature: [b, B]. Keys have norm 1; that of
/// query i is first + i.
torch::Tensor contrast(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                       double temperature);

/// Index of each query's own key: first, first + 1, … [b], int64.
torch::Tensor own_keys(const torch::Tensor& query_bD, const GatheredRows& key_BD);

/// 2 T times the cross entropy of each of this rank's queries with its own key among all keys,
/// summed: the published loss of one direction is the sum of this over ranks, divided by B. Source:
/// Chen, Xie and He 2021 (MoCo v3), equation 1 and its published code.
torch::Tensor info_nce_sum(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                           double temperature);

}  // namespace shoal
