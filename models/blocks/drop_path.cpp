#include "models/blocks/drop_path.h"

#include <vector>

#include "runtime/device/real_types.h"
#include "runtime/random/random.h"

// b samples on this rank
namespace shoal {

DropPath::DropPath(double rate, std::string_view path) : rate_(rate), layer_(hash_name(path)) {
  TORCH_CHECK(rate >= 0.0 && rate < 1.0, path, ": a drop path rate must be in [0, 1), got ", rate);
}

torch::Tensor DropPath::forward(const torch::Tensor& x, const StepContext& step) const {
  if (!step.training || rate_ == 0.0) return x;
  TORCH_CHECK(x.size(0) == step.sample_b.size(0), "drop path: x is ", x.sizes(), ", the step has ",
              step.sample_b.size(0), " samples");
  const Stream stream{step.seed, Purpose::kDropout, layer_, static_cast<uint64_t>(step.step)};
  const torch::Tensor id_b = row_ids(step, /*S=*/1);
  const torch::Tensor draw_b = uniform_rows(stream, id_b, 1, torch::kFloat64).squeeze(1);
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  // The divisor would be rounded in bfloat16, for all samples in the same way.
  const torch::Dtype dtype = wide_dtype(x.scalar_type());
  return (x * ((draw_b >= rate_).to(dtype) / (1.0 - rate_)).view(sizes)).to(x.scalar_type());
}

double drop_path_rate(double last, int64_t block, int64_t depth) {
  if (depth < 2) return last;
  return last * static_cast<double>(block) / static_cast<double>(depth - 1);
}

}  // namespace shoal
