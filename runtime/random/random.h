#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/random/random_stream.h"

/// Random tensors without a generator: numbers are keyed by a Stream (seed, purpose, layer, step),
/// with equal bits on CPU and GPU, for any number of threads or ranks. float64 tensors have
/// separate draws of 52 bits; bfloat16 and float16 ones are rounded float32 draws.
namespace shoal {

/// Fills `out` in place; value i in row-major order depends only on the stream, the dtype and i.
/// Floating dtype, any strides. No gradient.
void fill_uniform(const torch::Tensor& out, const Stream& stream);  ///< open interval (0, 1)
void fill_normal(const torch::Tensor& out, const Stream& stream);   ///< mean 0, deviation 1

/// Returns a row of `per_id` values for each id: [N, per_id] from id_N (int64 [N]), on its device.
/// Row n depends only on stream, dtype and id_N[n], and a larger per_id only appends values: noise
/// keyed by global token ids is equal however ranks share the tokens. Gumbel: -log(-log(uniform)).
torch::Tensor uniform_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                           at::ScalarType dtype);
torch::Tensor normal_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                          at::ScalarType dtype);
torch::Tensor gumbel_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                          at::ScalarType dtype);

}  // namespace shoal
