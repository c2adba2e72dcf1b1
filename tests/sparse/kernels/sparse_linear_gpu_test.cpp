#include "sparse/kernels/sparse_linear.h"

#include <string>
#include <vector>

#include "tests/sparse/kernels/sparse_cases.h"
#include "tests/support/gpu_probe.h"
#include "tests/support/on_gpu.h"

// T tokens  m outputs  n inputs
namespace shoal {
namespace {

using testing::sparse_cases;
using testing::SparseCase;
using testing::SparseProblem;
using testing::unpermuted_sparse_cases;

class SparseLinearGpu : public testing::OnGpu {
 protected:
  using Results = std::vector<torch::Tensor>;

  static Results results(const SparseProblem& problem, const SparseLayoutPtr& layout) {
    return problem.results(sparse_linear(problem.x, problem.weight, problem.bias, layout));
  }

  /// Roundings of sums of up to 1,100 products in another order, and of tokens.
  void expect_cpu(const SparseCase& c, int64_t tokens, torch::Dtype dtype,
                  const SparseLayoutPtr& layout) const {
    SCOPED_TRACE(c.name + ", " + std::to_string(tokens) + " tokens");
    const SparseProblem problem(c, tokens, dtype);
    const Results expected = results(problem, c.layout());
    const Results found = results(problem.on(gpu_), layout);
    const std::vector<std::string> names{"gradient of x", "gradient of the weight",
                                         "gradient of the bias", "output"};
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(names[i]);
      expect_close(expected[i], found[i], 64);
    }
    EXPECT_FALSE((found[1].cpu() * ~c.mask_mn).any().item<bool>());
  }
};

TEST_F(SparseLinearGpu, EqualsTheCpuForwardAndBackward) {
  for (const SparseCase& c : sparse_cases()) {
    const SparseLayoutPtr layout = c.layout_on(gpu_);
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int64_t tokens : {0, 1, 3, 70}) expect_cpu(c, tokens, dtype, layout);
    }
  }
}

// So many that the gradient of the weights is summed in parts.
TEST_F(SparseLinearGpu, TakesManyTokens) {
  for (const SparseCase& c : unpermuted_sparse_cases()) {
    if (c.mask_mn.numel() > 3000) continue;
    expect_cpu(c, 600, torch::kFloat64, c.layout_on(gpu_));
  }
}

// What is prepared for a number of tokens is used again, and dropped once there are many others.
TEST_F(SparseLinearGpu, TakesManyNumbersOfTokens) {
  const SparseCase c = sparse_cases()[0];
  const SparseLayoutPtr layout = c.layout_on(gpu_);
  for (const int64_t tokens : {1, 2, 3, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 1, 2}) {
    expect_cpu(c, tokens, torch::kFloat64, layout);
  }
}

// x begins in the middle of a tensor, at no multiple of 16 bytes.
TEST_F(SparseLinearGpu, TakesTokensInAnyShapeAndNoBias) {
  for (const SparseCase& c : unpermuted_sparse_cases()) {
    const SparseProblem problem = SparseProblem(c, 26, torch::kFloat32).on(gpu_);
    const torch::Tensor x = problem.x.detach(), bias = problem.bias.detach();
    const SparseLayoutPtr layout = c.layout_on(gpu_);
    const torch::Tensor expected =
        sparse_linear(x, problem.weight.detach(), {}, layout).narrow(0, 1, 24);
    const torch::Tensor found =
        sparse_linear(x.narrow(0, 1, 24).view({2, 12, -1}), problem.weight, {}, layout).detach();
    expect_close(expected.cpu(), found.view({24, c.rows()}), 64);
    const torch::Tensor values = layout->pack(problem.weight.detach());
    const torch::Tensor packed = sparse_linear_packed(x, values, bias, *layout);
    expect_close((expected + bias).cpu(), packed.narrow(0, 1, 24), 64);
  }
}

TEST_F(SparseLinearGpu, GivesTheSameBitsAgain) {
  for (const SparseCase& c : sparse_cases()) {
    const SparseProblem problem = SparseProblem(c, 300, torch::kFloat32).on(gpu_);
    if (c.mask_mn.numel() > 3000) continue;
    const Results first = results(problem, c.layout_on(gpu_));
    const Results again = results(problem, c.layout_on(gpu_));
    for (size_t i = 0; i < first.size(); ++i) expect_same(first[i].cpu(), again[i]);
  }
}

TEST_F(SparseLinearGpu, TheHostWaitsForNothingButTheLayout) {
  const testing::GpuProbe probe;
  for (const SparseCase& c : sparse_cases()) {
    const SparseProblem problem = SparseProblem(c, 3, torch::kFloat32).on(gpu_);
    const SparseLayoutPtr layout = c.layout_on(gpu_);
    const torch::Tensor y_grad =
        torch::ones({3, c.rows()}, problem.x.options().requires_grad(false));
    EXPECT_NO_THROW(probe.refuse_waits([&] {
      sparse_linear(problem.x, problem.weight, problem.bias, layout).backward(y_grad);
    })) << c.name;
  }
}

TEST_F(SparseLinearGpu, RefusesTensorsOfAnotherDevice) {
  const SparseCase c = sparse_cases()[0];
  const SparseProblem problem(c, 3), other = problem.on(gpu_);
  const SparseLayoutPtr layout = c.layout_on(gpu_);
  EXPECT_THROW(sparse_linear(problem.x, problem.weight, problem.bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(other.x, problem.weight, other.bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(other.x, other.weight, problem.bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(other.x, other.weight, other.bias, c.layout()), c10::Error);
}

class SparseLayoutsGpu : public testing::OnGpu {};

TEST_F(SparseLayoutsGpu, RefuseMasksOfAnotherPattern) {
  const torch::Tensor mask = testing::mask_of_density(32, 32, 0.5, 1).to(gpu_);
  EXPECT_THROW(make_diagonal_layout(mask, {}), c10::Error);
  EXPECT_THROW(make_block_layout(mask, 16, {}), c10::Error);
  EXPECT_THROW(make_block_layout(torch::ones({24, 24}, mask.options()), 8, {}), c10::Error);
}

TEST_F(SparseLayoutsGpu, PackAndUnpackTheWeights) {
  for (const SparseCase& c : sparse_cases()) {
    const SparseProblem problem(c, 1, torch::kFloat32);
    const SparseLayoutPtr layout = c.layout_on(gpu_);
    const torch::Tensor weight = on_gpu(problem.weight).detach();
    EXPECT_EQ(layout->pack(weight).numel(), layout->num_weights());
    expect_same(problem.weight.detach() * c.mask_mn, layout->unpack(layout->pack(weight)));
  }
}

}  // namespace
}  // namespace shoal
