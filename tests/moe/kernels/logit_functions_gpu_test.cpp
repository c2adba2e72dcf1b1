#include "moe/kernels/logit_functions.h"

#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

namespace shoal {
namespace {

using testing::some_numbers;

class LogitFunctionsGpu : public testing::OnGpu {};

TEST_F(LogitFunctionsGpu, EqualTheCpuForwardAndBackward) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t rows : {0, 1, 77}) {
      for (const auto& function : {logit_sigmoid, logit_softplus}) {
        const torch::Tensor logits =
            (some_numbers({rows, 13}, 1, type) * 30).set_requires_grad(true);
        const torch::Tensor upstream = some_numbers({rows, 13}, 2, type);
        const torch::Tensor other = on_gpu(logits);
        const torch::Tensor expected = function(logits), found = function(other);
        expect_same(expected, found);
        expected.backward(upstream);
        found.backward(on_gpu(upstream));
        expect_close(logits.grad(), other.grad(), 4);
      }
    }
  }
}

TEST_F(LogitFunctionsGpu, RowLogsumexpEqualsTheCpuAndGivesEqualRowsEqualBits) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t columns : {1, 3, 32, 255, 1001}) {
      const torch::Tensor x = some_numbers({19, columns}, 3, type) * 9;
      expect_close(row_logsumexp(x), row_logsumexp(on_gpu(x)), 4);
      const torch::Tensor row = on_gpu(x).narrow(0, 0, 1);
      EXPECT_TRUE(
          torch::equal(row_logsumexp(row.expand({19, columns})), row_logsumexp(row).expand({19})));
    }
  }
}

}  // namespace
}  // namespace shoal
