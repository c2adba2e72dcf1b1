#include "models/blocks/dropout.h"

#include <vector>

#include "runtime/device/autograd_function.h"
#include "runtime/device/real_types.h"
#include "runtime/random/random.h"

// b samples on this rank  R rows of a sample, in runs of S  C numbers of a row
namespace shoal {
namespace {

torch::Tensor drop(const torch::Tensor& x, const torch::Tensor& is_dropped, double scale) {
  return (x * scale).masked_fill_(is_dropped, 0);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& is_dropped, double scale) {
    ctx->save_for_backward({is_dropped});
    ctx->saved_data["scale"] = scale;
    return drop(x, is_dropped, scale);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    return {
        drop(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["scale"].toDouble()), {}, {}};
  }
};

}  // namespace

Dropout::Dropout(double rate, std::string_view path) : rate_(rate), layer_(hash_name(path)) {
  TORCH_CHECK(rate >= 0.0 && rate < 1.0, path, ": a dropout rate must be in [0, 1), got ", rate);
}

torch::Tensor Dropout::is_dropped(at::IntArrayRef sizes, const StepContext& step) const {
  const int64_t b = step.sample_b.size(0);
  TORCH_CHECK(sizes.size() >= 2 && sizes[0] == b, "dropout: x is ", sizes, ", the step has ", b,
              " samples");
  const Stream stream{step.seed, Purpose::kDropout, layer_, static_cast<uint64_t>(step.step)};
  const int64_t R = c10::multiply_integers(sizes.slice(1, sizes.size() - 2));
  const int64_t S = sizes.size() > 2 ? sizes[sizes.size() - 2] : 1;
  const torch::Tensor draw =
      uniform_rows(stream, row_ids(step, S, R / S), sizes.back(), torch::kFloat32);
  return (draw < rate_).view(sizes);
}

torch::Tensor Dropout::forward(const torch::Tensor& x, const StepContext& step) const {
  if (!is_active(step)) return x;
  return DropoutFunction::apply(x, is_dropped(x.sizes(), step), 1.0 / (1.0 - rate_));
}

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
