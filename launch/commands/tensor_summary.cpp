#include "launch/commands/tensor_summary.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace shoal {
namespace {

template <typename T>
T load(const char* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

double decode(Dtype dtype, const char* bytes) {
  switch (dtype) {
    case Dtype::kF64:
      return load<double>(bytes);
    case Dtype::kF32:
      return load<float>(bytes);
    case Dtype::kBF16:
      return load<c10::BFloat16>(bytes);
    case Dtype::kF16:
      return load<c10::Half>(bytes);
    case Dtype::kI64:
      return static_cast<double>(load<int64_t>(bytes));
    case Dtype::kI32:
      return load<int32_t>(bytes);
    case Dtype::kU8:
    case Dtype::kBool:
      return load<uint8_t>(bytes);
  }
  return 0.0;
}

}  // namespace

std::vector<double> decode_numbers(Dtype dtype, std::string_view bytes) {
  const size_t size = dtype_bytes(dtype);
  std::vector<double> numbers(bytes.size() / size);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = decode(dtype, bytes.data() + i * size);
  return numbers;
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
