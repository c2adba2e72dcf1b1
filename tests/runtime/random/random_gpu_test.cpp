#include <gtest/gtest.h>
#include <torch/types.h>

#include "runtime/device/device.h"
#include "runtime/random/random.h"

namespace shoal {
namespace {

// N rows  P values per row

constexpr Stream kStream{.seed = 11, .purpose = Purpose::kTest, .layer = 3, .step = 5};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16};

using Fill = void (*)(const torch::Tensor&, const Stream&);
constexpr Fill kFills[] = {&fill_uniform, &fill_normal};
using Rows = torch::Tensor (*)(const Stream&, const torch::Tensor&, int64_t, at::ScalarType);
constexpr Rows kRows[] = {&uniform_rows, &normal_rows, &gumbel_rows};

class RandomGpu : public ::testing::Test {
 protected:
  static void expect_same_bits(const torch::Tensor& expected, const torch::Tensor& on_gpu) {
    ASSERT_TRUE(on_gpu.is_cuda());
    EXPECT_TRUE(torch::equal(expected, on_gpu.cpu()))
        << expected.scalar_type() << " " << expected.sizes();
  }
  const at::Device gpu_ = resolve_device("cuda").device;
};

TEST_F(RandomGpu, FillsHaveTheBitsOfTheCpu) {
  for (const Fill fill : kFills) {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t count : {0, 1, 3, 4, 5, 1023, 100'003, 1'000'001}) {
        const torch::Tensor expected = torch::empty({count}, type);
        const torch::Tensor on_gpu = torch::empty({count}, at::device(gpu_).dtype(type));
        fill(expected, kStream);
        fill(on_gpu, kStream);
        expect_same_bits(expected, on_gpu);
      }
    }
  }
}

TEST_F(RandomGpu, FillsThatStartBetweenVectorsHaveTheBitsOfTheCpu) {
  const torch::Tensor expected = torch::empty({1001});
  fill_normal(expected, kStream);
  const torch::Tensor whole = torch::zeros({1003}, at::device(gpu_));
  fill_normal(whole.slice(0, 1, 1002), kStream);
  expect_same_bits(expected, whole.slice(0, 1, 1002));
  EXPECT_EQ(whole[0].item<float>(), 0);
  EXPECT_EQ(whole[1002].item<float>(), 0);
}

TEST_F(RandomGpu, RowsHaveTheBitsOfTheCpu) {
  const torch::Tensor id_N = torch::tensor({7L, 0L, 7L, (1L << 40) + 3, 123456789012345L});
  for (const Rows rows : kRows) {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t per_id : {0, 1, 4, 7, 1000}) {
        expect_same_bits(rows(kStream, id_N, per_id, type),
                         rows(kStream, id_N.to(gpu_), per_id, type));
      }
    }
  }
}

TEST_F(RandomGpu, ManyRowsHaveTheBitsOfTheCpu) {
  const torch::Tensor id_N = torch::arange(300'000L);
  expect_same_bits(normal_rows(kStream, id_N, 8, at::kFloat),
                   normal_rows(kStream, id_N.to(gpu_), 8, at::kFloat));
}

// 2^24 threads are the most that there are.
TEST_F(RandomGpu, ThreadsThatTakeSeveralBlocksOfNumbersHaveTheBitsOfTheCpu) {
  constexpr int64_t kThreads = int64_t{1} << 24, kMore = 1001;
  const torch::Tensor expected = torch::empty({2 * kThreads + kMore}, at::kDouble);
  const torch::Tensor on_gpu = torch::empty(expected.sizes(), expected.options().device(gpu_));
  fill_uniform(expected, kStream);
  fill_uniform(on_gpu, kStream);
  expect_same_bits(expected, on_gpu);
  const torch::Tensor id_N = torch::arange(kThreads + kMore);
  expect_same_bits(uniform_rows(kStream, id_N, 1, at::kFloat),
                   uniform_rows(kStream, id_N.to(gpu_), 1, at::kFloat));
}

}  // namespace
}  // namespace shoal
