#include <torch/library.h>

#include "runtime/device/cpu_clones.h"
#include "runtime/kernels/matrix_chunks.h"

namespace shoal {
namespace {

/// Eight sums side by side: the order is fixed, whatever the width of vectors.
template <class Real>
[[gnu::always_inline]] inline double sum_squares(const Real* values, int64_t size) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  const int64_t whole = size - size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (int64_t i = whole; i < size; ++i) {
    const double value = values[i];
    sums[i - whole] += value * value;
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

SHOAL_CPU_CLONES double square_sum(const float* values, int64_t size) {
  return sum_squares(values, size);
}

SHOAL_CPU_CLONES double square_sum(const double* values, int64_t size) {
  return sum_squares(values, size);
}

at::Tensor square_sums_cpu(at::TensorList tensors) {
  const MatrixChunks chunks(tensors);
  std::vector<double> parts(chunks.size());
  chunks.for_each([&](size_t i) {
    const at::Tensor& tensor = tensors[chunks[i].tensor];
    parts[i] = tensor.scalar_type() == at::kDouble
                   ? square_sum(tensor.const_data_ptr<double>() + chunks[i].begin, chunks[i].size)
                   : square_sum(tensor.const_data_ptr<float>() + chunks[i].begin, chunks[i].size);
  });
  at::Tensor sums = at::zeros({std::ssize(tensors)}, at::kDouble);
  double* sum = sums.mutable_data_ptr<double>();
  for (size_t i = 0; i < chunks.size(); ++i) sum[chunks[i].tensor] += parts[i];
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("square_sums", &square_sums_cpu); }

}  // namespace shoal
