#include "runtime/device/flush_denormals.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

namespace shoal {
namespace {

/// How many of some denormals, which all threads of the pool compute, are not zero.
int64_t count_denormals() {
  const torch::Tensor smallest = torch::full({1 << 20}, std::numeric_limits<float>::min());
  return (smallest * 0.5).view(torch::kInt32).count_nonzero().item<int64_t>();
}

TEST(FlushDenormals, HoldsInEveryThread) {
  if (!at::Context::setFlushDenormal(false)) GTEST_SKIP() << "this processor has no such mode";
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  flush_denormals(false);
  EXPECT_EQ(count_denormals(), 1 << 20);
  flush_denormals();
  EXPECT_EQ(count_denormals(), 0);
  flush_denormals(false);
  EXPECT_EQ(count_denormals(), 1 << 20);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace shoal
