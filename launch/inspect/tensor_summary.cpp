#include "launch/inspect/tensor_summary.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "parallel/checkpoint/state_list.h"

namespace shoal {

std::vector<double> decode_numbers(Dtype dtype, std::string_view bytes) {
  // Bytes of a bool are read as numbers, since they may be neither 0 nor 1.
  const torch::ScalarType type = dtype == Dtype::kBool ? torch::kUInt8 : scalar_type(dtype);
  const auto count = static_cast<int64_t>(bytes.size() / dtype_bytes(dtype));
  const torch::Tensor packed = torch::empty({count}, type);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(packed.data_ptr()));
  const torch::Tensor numbers = packed.to(torch::kFloat64);
  const double* begin = numbers.const_data_ptr<double>();
  return {begin, begin + count};
}

TensorSummary summarise(const CheckpointReader& reader, const ManifestTensor& tensor) {
  TensorSummary summary;
  bool is_any = false;
  double squares = 0.0;
  reader.stream(tensor, [&](std::string_view piece) {
    for (const double number : decode_numbers(tensor.dtype, piece)) {
      if (!std::isfinite(number)) {
        ++summary.num_not_finite;
        continue;
      }
      summary.min = is_any ? std::min(summary.min, number) : number;
      summary.max = is_any ? std::max(summary.max, number) : number;
      is_any = true;
      squares += number * number;
    }
  });
  summary.norm = std::sqrt(squares);
  return summary;
}

TensorDifference compare(const CheckpointReader& reader, const ManifestTensor& tensor,
                         const CheckpointReader& other, const ManifestTensor& other_tensor) {
  std::string bytes(tensor.bytes, '\0'), other_bytes(tensor.bytes, '\0');
  reader.read(tensor, bytes.data());
  other.read(other_tensor, other_bytes.data());
  const std::vector<double> a = decode_numbers(tensor.dtype, bytes);
  const std::vector<double> b = decode_numbers(tensor.dtype, other_bytes);
  const size_t size = dtype_bytes(tensor.dtype);
  TensorDifference difference;
  double squares = 0.0, own_squares = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (bytes.compare(i * size, size, other_bytes, i * size, size) != 0) {
      ++difference.num_different;
    }
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    difference.max_abs = std::max(difference.max_abs, std::abs(a[i] - b[i]));
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    own_squares += a[i] * a[i];
  }
  if (squares > 0) difference.norm_ratio = std::sqrt(squares / own_squares);
  return difference;
}

}  // namespace shoal
