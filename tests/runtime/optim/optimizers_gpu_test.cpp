#include <limits>

#include "runtime/optim/adamw.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/sgd.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

namespace shoal {
namespace {

using testing::some_numbers;

/// A vector, matrices of more than one chunk and of odd sizes, and a stack.
std::vector<Parameter> some_parameters(at::ScalarType type, const at::Device& device) {
  const auto some = [&](std::string name, at::IntArrayRef sizes, int64_t stacked_dims) {
    const auto seed = static_cast<int64_t>(name.size());
    torch::Tensor tensor = some_numbers(sizes, seed, type).to(device).requires_grad_();
    return Parameter{std::move(name), tensor, stacked_dims, {}, {}};
  };
  return {some("bias", {37}, 0), some("matrix", {300, 333}, 0), some("experts", {3, 7, 11}, 1),
          some("an_even_one", {64, 64}, 0)};
}

void set_gradients(const std::vector<Parameter>& parameters, int64_t step) {
  for (const Parameter& parameter : parameters) {
    const torch::Tensor grad =
        some_numbers(parameter.tensor.sizes(), 100 + step, parameter.tensor.scalar_type());
    parameter.tensor.mutable_grad() = grad.to(parameter.tensor.device());
  }
}

class OptimizersGpu : public testing::OnGpu {
 protected:
  /// Ten steps on both devices.
  template <class Kind>
  void expect_cpu(const typename Kind::Options& options) const {
    for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
      const auto expected = some_parameters(type, torch::kCPU), found = some_parameters(type, gpu_);
      Kind on_cpu(options, expected), on_gpu(options, found);
      for (int64_t step = 0; step < 10; ++step) {
        for (const auto* parameters : {&expected, &found}) set_gradients(*parameters, step);
        on_cpu.step(0.01);
        on_gpu.step(0.01);
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        expect_close(expected[i].tensor, found[i].tensor, 64);
      }
    }
  }
};

TEST_F(OptimizersGpu, LambEqualsTheCpu) {
  Lamb::Options options;
  options.weight_decay = 0.1;
  expect_cpu<Lamb>(options);
  options.trust_clip = options.always_adapt = true;
  expect_cpu<Lamb>(options);
}

TEST_F(OptimizersGpu, AdamWEqualsTheCpu) {
  AdamW::Options options;
  options.weight_decay = 0.1;
  expect_cpu<AdamW>(options);
  options.entry_steps = true;
  expect_cpu<AdamW>(options);
}

TEST_F(OptimizersGpu, SgdEqualsTheCpu) {
  Sgd::Options options;
  options.momentum = 0.9;
  expect_cpu<Sgd>(options);
}

TEST_F(OptimizersGpu, SquareSumsEqualTheCpu) {
  const auto expected = some_parameters(torch::kFloat32, torch::kCPU);
  const auto found = some_parameters(torch::kFloat32, gpu_);
  for (const auto* parameters : {&expected, &found}) set_gradients(*parameters, 0);
  // Sums in double of at most 1e5 squares.
  expect_close(square_sums(expected), square_sums(found), 1e4);
  expected[2].tensor.mutable_grad()[1][2][3] = std::numeric_limits<float>::infinity();
  found[2].tensor.mutable_grad()[1][2][3] = std::numeric_limits<float>::infinity();
  expect_same(square_sums(expected).isfinite(), square_sums(found).isfinite());
}

}  // namespace
}  // namespace shoal
