#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/checkpoint/checkpoint_reader.h"

namespace shoal {

/// Statistics of a tensor's finite values, computed in float64.
struct TensorSummary {
  double min = 0.0, max = 0.0;  ///< 0 if no value is finite
  double norm = 0.0;            ///< Euclidean norm
  int64_t num_not_finite = 0;
};

/// Reads a tensor of a checkpoint. Throws CheckpointError, StorageError.
TensorSummary summarise(const CheckpointReader& reader, const ManifestTensor& tensor);

/// Difference of two tensors a and b of one dtype and shape; values with equal bits are equal.
struct TensorDifference {
  int64_t num_different = 0;
  double max_abs = 0.0;     ///< largest finite |a - b|
  double norm_ratio = 0.0;  ///< norm of a - b over norm of a; 0 if both are 0
};

TensorDifference compare(const CheckpointReader& reader, const ManifestTensor& tensor,
                         const CheckpointReader& other, const ManifestTensor& other_tensor);

/// Decodes little-endian values of a dtype. The size of `bytes` must be a multiple of the dtype's.
std::vector<double> decode_numbers(Dtype dtype, std::string_view bytes);

}  // namespace shoal
