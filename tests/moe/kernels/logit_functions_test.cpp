#include "moe/kernels/logit_functions.h"

#include <gtest/gtest.h>

#include <ATen/ops/softplus.h>

#include <cmath>
#include <functional>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;
using Function = std::function<torch::Tensor(const torch::Tensor&)>;

const struct {
  const char* name;
  Function ours, torchs;
} kFunctions[] = {
    {"sigmoid", logit_sigmoid, [](const torch::Tensor& x) { return x.sigmoid(); }},
    {"softplus", logit_softplus, [](const torch::Tensor& x) { return at::softplus(x); }},
};

TEST(LogitFunctions, EqualTorchs) {
  const torch::Tensor logits =
      torch::cat({torch::linspace(-50, 50, 10001, torch::kFloat64), some_numbers({3000}, 1) * 1e-3,
                  torch::tensor({-700.0, -300.0, 0.0, 20.0, 20.5, 1e30}, torch::kFloat64)});
  for (const auto& [name, ours, torchs] : kFunctions) {
    SCOPED_TRACE(name);
    // A few roundings of LibTorch's exp and log1p.
    EXPECT_TRUE(torch::allclose(ours(logits), torchs(logits), 1e-15, 0));
    const torch::Tensor narrow = logits.to(torch::kFloat32);
    const torch::Tensor exact = ours(narrow.to(torch::kFloat64)).to(torch::kFloat32);
    EXPECT_TRUE(torch::equal(ours(narrow), exact));
  }
}

TEST(LogitFunctions, GradientsAreThoseOfFiniteDifferences) {
  torch::Tensor logits = (some_numbers({7, 5}, 2) * 4).set_requires_grad(true);
  torch::Tensor large = torch::tensor({21.0, 300.0}, torch::kFloat64).set_requires_grad(true);
  for (const auto& [name, ours, torchs] : kFunctions) {
    SCOPED_TRACE(name);
    const Function& function = ours;
    EXPECT_LT(gradient_error([&] { return function(logits); }, {logits}), 1e-8);
    EXPECT_LT(gradient_error([&] { return function(large); }, {large}), 1e-8);
  }
}

TEST(LogitFunctions, EqualLogitsGiveEqualBitsAnywhere) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const torch::Tensor logits = (some_numbers({5003}, 3) * 9).to(dtype);
    for (const auto& [name, ours, torchs] : kFunctions) {
      SCOPED_TRACE(name);
      const torch::Tensor all = ours(logits);
      for (const int64_t first : {0, 1, 3, 6, 7, 2500}) {
        for (const int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 70, 1001}) {
          EXPECT_TRUE(
              torch::equal(ours(logits.narrow(0, first, count)), all.narrow(0, first, count)))
              << first << " + " << count;
        }
      }
    }
  }
}

TEST(LogitFunctions, KeepWhatIsNoNumber) {
  const torch::Tensor nan = torch::full({3}, std::nan(""), torch::kFloat64);
  for (const auto& [name, ours, torchs] : kFunctions) {
    EXPECT_TRUE(ours(nan).isnan().all().item<bool>()) << name;
  }
}

TEST(RowLogsumexp, EqualsTorchs) {
  for (const int64_t columns : {1, 2, 9, 255, 256, 257, 1000}) {
    const torch::Tensor x = some_numbers({6, columns}, 4) * 30;
    EXPECT_TRUE(torch::allclose(row_logsumexp(x), x.logsumexp(1), 1e-14, 1e-14));
    EXPECT_TRUE(torch::allclose(row_logsumexp(x.to(torch::kFloat32)),
                                x.logsumexp(1).to(torch::kFloat32), 1e-6, 1e-5));
  }
}

TEST(RowLogsumexp, EqualRowsGiveEqualBitsAnywhere) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t columns : {1, 6, 64, 300, 1001}) {
      const torch::Tensor row = (some_numbers({1, columns}, 5) * 9).to(dtype);
      for (const int64_t rows : {1, 2, 5, 8, 33}) {
        const torch::Tensor sums = row_logsumexp(row.expand({rows, columns}));
        EXPECT_TRUE(torch::equal(sums, row_logsumexp(row).expand({rows})));
      }
    }
  }
}

TEST(RowLogsumexp, FiniteValuesFarApartStayFinite) {
  const torch::Tensor x = torch::tensor({{3.3e38f, -3.3e38f}, {-3.3e38f, -3.3e38f}});
  EXPECT_TRUE(torch::equal(row_logsumexp(x), torch::tensor({3.3e38f, -3.3e38f})));
}

}  // namespace
}  // namespace shoal
