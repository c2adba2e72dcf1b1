#include "runtime/device/tensor_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

namespace shoal {
namespace {

/// Pages that the system had to hand out while a tensor of that many floats was filled.
int64_t faults_of_a_tensor(int64_t numel) {
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  torch::empty({numel}, torch::kFloat).fill_(1.0f);
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

class TensorMemoryTest : public ::testing::Test {
 protected:
  TensorMemoryTest() { recycle_tensor_memory(); }
};

TEST_F(TensorMemoryTest, HandsOutTheSamePagesAgain) {
  const int64_t numel = 12 << 20;  // 48 MB: malloc would give it back to the system
  faults_of_a_tensor(numel);
  for (int i = 0; i < 4; ++i) EXPECT_LT(faults_of_a_tensor(numel), 12) << "of 24 huge pages";
  EXPECT_LT(faults_of_a_tensor(numel - 1000), 12);  // same size class
}

TEST_F(TensorMemoryTest, HandsOutTheSamePagesToSizesThatVary) {
  // Two tensors at once, as large as the rows of two experts that share them differently each step.
  const auto reused_in_a_step = [](int64_t more) {
    const int64_t before = tensor_memory().reused;
    const torch::Tensor one = torch::empty({(4 << 20) - more}, torch::kFloat);
    const torch::Tensor other = torch::empty({(4 << 20) + more}, torch::kFloat);
    return tensor_memory().reused - before;
  };
  for (int64_t step = 0; step < 40; ++step) {
    const int64_t reused = reused_in_a_step(step * 7919 % (1 << 19));
    if (step >= 10) {
      EXPECT_EQ(reused, 2) << "step " << step;
    }
  }
}

TEST_F(TensorMemoryTest, BeginsItsPeaksAnewOnceWhatIsKeptIsReleased) {
  torch::empty({8 << 20}, torch::kFloat);
  const torch::Tensor held = torch::empty({1 << 20}, torch::kFloat);
  release_tensor_memory();
  const TensorMemory memory = tensor_memory();
  EXPECT_EQ(memory.cached_bytes, 0);
  EXPECT_EQ(memory.peak_bytes, memory.used_bytes);
  EXPECT_EQ(memory.held_peak_bytes, memory.used_bytes);
  torch::empty({2 << 20}, torch::kFloat);  // 8 MiB, kept from then on
  torch::empty({3 << 20}, torch::kFloat);  // 12 MiB, too large for them
  EXPECT_EQ(tensor_memory().held_peak_bytes - memory.used_bytes, int64_t{20} << 20);
}

TEST_F(TensorMemoryTest, CountsWhatIsUsedAndKept) {
  const TensorMemory before = tensor_memory();
  constexpr int64_t kBytes = 1 << 20;
  {
    const torch::Tensor tensor = torch::empty({kBytes}, torch::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
    EXPECT_GE(tensor_memory().used_bytes, before.used_bytes + kBytes);
    EXPECT_LE(tensor_memory().used_bytes, before.used_bytes + kBytes * 5 / 4);
    EXPECT_GE(tensor_memory().peak_bytes, tensor_memory().used_bytes);
  }
  EXPECT_EQ(tensor_memory().used_bytes, before.used_bytes);
  const torch::Tensor again = torch::empty({kBytes}, torch::kByte);
  EXPECT_GE(tensor_memory().reused, before.reused + 1);
  EXPECT_LE(tensor_memory().cached_bytes, tensor_memory().peak_bytes);
}

TEST_F(TensorMemoryTest, KeepsNoMoreThanWasEverInUse) {
  // One tensor at a time, each of another size class.
  for (int64_t bytes = 1 << 20; bytes < 100 << 20; bytes += bytes / 4) {
    torch::empty({bytes}, torch::kByte);
    const TensorMemory memory = tensor_memory();
    EXPECT_LE(memory.cached_bytes, memory.peak_bytes);
  }
}

TEST_F(TensorMemoryTest, CountsNothingForATensorThatCannotBeMade) {
  torch::empty({1 << 20}, torch::kByte);
  const int64_t used = tensor_memory().used_bytes;
  EXPECT_THROW(torch::empty({int64_t{1} << 60}, torch::kByte), c10::Error);
  EXPECT_EQ(tensor_memory().used_bytes, used);
  EXPECT_EQ(tensor_memory().cached_bytes, 0) << "all is given back before an allocation fails";
  EXPECT_LT(tensor_memory().peak_bytes, int64_t{1} << 60);
}

TEST_F(TensorMemoryTest, TakesNoMemoryThatIsNotItsOwn) {
  const TensorMemory before = tensor_memory();
  std::vector<float> values(1 << 20, 2.0f);
  bool is_freed = false;
  {
    const torch::Tensor foreign = torch::from_blob(
        values.data(), {1 << 20}, [&](void*) { is_freed = true; }, torch::kFloat);
    EXPECT_EQ(foreign[7].item<float>(), 2.0f);
  }
  EXPECT_TRUE(is_freed);
  EXPECT_EQ(tensor_memory().cached_bytes, before.cached_bytes);
}

TEST_F(TensorMemoryTest, ServesThreadsAndEmptyTensors) {
  const int64_t used = tensor_memory().used_bytes;
  std::vector<std::thread> threads;
  for (int64_t id = 0; id < 4; ++id) {
    threads.emplace_back([id] {
      for (int64_t round = 0; round < 200; ++round) {
        const torch::Tensor tensor = torch::full({30'000 + round * 7}, id, torch::kFloat);
        EXPECT_EQ(tensor[-1].item<float>(), static_cast<float>(id));
        EXPECT_EQ(tensor[0].item<float>(), static_cast<float>(id));
        EXPECT_EQ(torch::empty({0}, torch::kFloat).numel(), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tensor_memory().used_bytes, used);
}

TEST_F(TensorMemoryTest, GrowsAStorageInPlaceOfAnother) {
  torch::Tensor tensor = torch::arange(100, torch::kLong);
  tensor.resize_({200'000});
  EXPECT_TRUE(at::equal(tensor.slice(0, 0, 100), torch::arange(100, torch::kLong)));
}

}  // namespace
}  // namespace shoal
