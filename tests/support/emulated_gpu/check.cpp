// The emulated GPU finds what it claims to find.
#include <ATen/ops/_grouped_mm.h>
#include <cuda_runtime.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace emulated_gpu {
namespace {

constexpr unsigned kAll = 0xffffffffu;

/// What a launch of so many threads fails with; empty if it does not.
std::string failure(const Launch& of, const std::function<void()>& thread) {
  try {
    launch("check_kernel", of, thread);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

void expect_failure(const std::string& text, const std::function<void()>& thread) {
  const std::string found = failure({1, 64}, thread);
  EXPECT_NE(found.find(text), std::string::npos) << text << ": " << found;
}

/// Thread 0's sum of 256 ones, with or without barriers.
double sum_of_ones(bool has_barriers) {
  double sum = 0;
  launch("sum_kernel", {1, 256}, [&] {
    auto& part = shared<double[256]>();
    const unsigned thread = threadIdx.x;
    part[thread] = 1;
    for (unsigned distance = 128; distance > 0; distance /= 2) {
      if (has_barriers) __syncthreads();
      if (thread < distance) part[thread] += part[thread + distance];
    }
    if (thread == 0) sum = part[0];
  });
  return sum;
}

TEST(EmulatedGpu, ShowsThatABarrierIsMissing) {
  for (int time = 0; time < 100; ++time) EXPECT_EQ(sum_of_ones(true), 256);
  int num_right = 0;
  for (int time = 0; time < 100; ++time) num_right += sum_of_ones(false) == 256 ? 1 : 0;
  EXPECT_EQ(num_right, 0);
}

TEST(EmulatedGpu, WarpsBeginTogetherOrFarApart) {
  int num_apart = 0;
  for (int time = 0; time < 40; ++time) {
    bool has_ended[2] = {}, is_apart = false;
    launch("check_kernel", {1, 64}, [&] {
      const unsigned warp = threadIdx.x / 32;
      is_apart = is_apart || has_ended[1 - warp];
      for (int i = 0; i < 20; ++i) __syncwarp();
      has_ended[warp] = true;
    });
    num_apart += is_apart ? 1 : 0;
  }
  EXPECT_GT(num_apart, 0);
  EXPECT_LT(num_apart, 40);
}

TEST(EmulatedGpu, BlocksRunSideBySide) {
  int num_mixed = 0;
  for (int time = 0; time < 40; ++time) {
    int last_block = -1, num_turns = 0;
    launch("check_kernel", {2, 32}, [&] {
      const int block = static_cast<int>(blockIdx.x);
      for (int i = 0; i < 20; ++i) {
        __syncthreads();
        num_turns += last_block == block ? 0 : 1;
        last_block = block;
      }
    });
    num_mixed += num_turns > 2 ? 1 : 0;
  }
  EXPECT_GT(num_mixed, 0);
  EXPECT_LT(num_mixed, 40);
}

TEST(EmulatedGpu, ThreadsMayEndWhereOthersWait) {
  EXPECT_EQ(failure({3, 64},
                    [] {
                      if (threadIdx.x > 5) __syncthreads();
                    }),
            "");
}

TEST(EmulatedGpu, RefusesBarriersThatDiffer) {
  expect_failure("others at", [] {
    if (threadIdx.x == 7) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  expect_failure("that do not come", [] {
    if (threadIdx.x == 7) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  });
}

TEST(EmulatedGpu, RefusesLanesThatHaveEnded) {
  expect_failure("check_kernel, block (0, 0, 0)", [] {
    if (threadIdx.x != 40) __shfl_xor_sync(kAll, 1.0, 1);
  });
  expect_failure("outside the mask", [] {
    if (threadIdx.x < 4) __shfl_sync(0xfu, 1.0, 5);
  });
}

TEST(EmulatedGpu, RefusesLaunchesThatAGpuRefuses) {
  const std::function<void()> nothing = [] {};
  EXPECT_NE(failure({0, 64}, nothing), "");
  EXPECT_NE(failure({1, {64, 32}}, nothing), "");
  EXPECT_NE(failure({{1, 1 << 16}, 64}, nothing), "");
  EXPECT_NE(failure({1, 64, 49'153}, nothing), "");
  EXPECT_EQ(failure({1, {32, 32}, 49'152}, nothing), "");
  expect_failure("did not ask for", [] { dynamic_shared(); });
  expect_failure("__trap()", [] { __trap(); });
}

TEST(EmulatedGpu, LanesGiveEachOtherTheirValues) {
  std::vector<int> found(64);
  launch("check_kernel", {1, 64}, [&] {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int& own = found[threadIdx.x];
    own = __shfl_sync(kAll, lane, 3, 8) == (lane & ~7) + 3 ? 1 : 0;
    own += __shfl_xor_sync(kAll, lane, 5) == (lane ^ 5) ? 1 : 0;
    own += __match_any_sync(kAll, lane % 2) == (lane % 2 == 0 ? 0x55555555u : 0xaaaaaaaau) ? 1 : 0;
    own += __reduce_add_sync(kAll, lane) == 31 * 16 ? 1 : 0;
  });
  EXPECT_EQ(found, std::vector<int>(64, 4));
}

TEST(EmulatedGpu, MemoryIsNotANumberUntilItIsWritten) {
  EXPECT_TRUE(torch::empty({1000}, torch::kCUDA).isnan().all().item<bool>());
  EXPECT_TRUE((torch::empty({1000}, at::device(torch::kCUDA).dtype(torch::kInt64)) == -1)
                  .all()
                  .item<bool>());
}

TEST(EmulatedGpu, SaysThatMemoryWasWrittenOutside) {
  EXPECT_NONFATAL_FAILURE(torch::zeros({5}, torch::kCUDA).data_ptr<float>()[-1] = 1, "outside");
  EXPECT_NONFATAL_FAILURE(torch::zeros({5}, torch::kCUDA).data_ptr<float>()[5] = 1, "outside");
}

TEST(EmulatedGpu, OperatorsKeepViewsAndSizes) {
  torch::Tensor x = torch::arange(12, torch::kCUDA);
  const torch::Tensor row = x.view({3, 4})[1];
  row.fill_(-1);
  EXPECT_TRUE(
      torch::equal(x.cpu(), torch::tensor({0L, 1L, 2L, 3L, -1L, -1L, -1L, -1L, 8L, 9L, 10L, 11L})));
  x.resize_({20});
  EXPECT_EQ(x.sizes(), at::IntArrayRef({20}));
  EXPECT_EQ(x[11].item<int64_t>(), 11);
  EXPECT_THROW(x + torch::ones({20}), c10::Error);
}

TEST(EmulatedGpu, SaysWhereTheHostWaits) {
  const torch::Tensor x = torch::ones({3}, torch::kCUDA), is_positive = x > 0;
  refuse_waits(true);
  EXPECT_THROW(x[0].item<float>(), c10::Error);
  EXPECT_THROW(x.cpu(), c10::Error);
  EXPECT_THROW(torch::ones({3}).to(torch::kCUDA), c10::Error);
  EXPECT_THROW(x.index({is_positive}), c10::Error);
  EXPECT_NO_THROW(x.where(is_positive, 0).sum());
  refuse_waits(false);
}

TEST(EmulatedGpu, GroupedProductsLeaveOutWhatNoGroupWrites) {
  const auto ones = [](at::IntArrayRef sizes) {
    return torch::ones(sizes, at::device(torch::kCUDA).dtype(torch::kBFloat16));
  };
  const torch::Tensor end = torch::tensor({1, 1, 3}, torch::kInt32).to(torch::kCUDA);
  const torch::Tensor rows = at::_grouped_mm(ones({4, 8}), ones({3, 8, 8}), end);
  EXPECT_EQ(rows.isnan().sum(1).cpu().eq(torch::tensor({0, 0, 0, 8})).sum().item<int64_t>(), 4);
  EXPECT_EQ(rows[2][7].item<float>(), 8);
  const torch::Tensor outer = at::_grouped_mm(ones({4, 8}).t(), ones({4, 8}), end);
  EXPECT_TRUE(outer[1].isnan().all().item<bool>());
  EXPECT_EQ(outer[2][7][7].item<float>(), 2);
}

}  // namespace
}  // namespace emulated_gpu
