#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/staging.h"
#include "runtime/device/device.h"
#include "tests/parallel/checkpoint/checkpoint_fixture.h"
#include "tests/support/gpu_probe.h"
#include "tests/support/on_gpu.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::ToyState;

// ---- saves

class CheckpointGpu : public testing::CheckpointTest {
 protected:
  /// A state whose tensors are on the GPU, but for one that stays on the CPU.
  ToyState state_on_gpu(int64_t rank, int64_t expert_ranks) const {
    ToyState state(rank, expert_ranks, 1);
    for (torch::Tensor* tensor : {&state.weight, &state.transposed, &state.bias, &state.mask,
                                  &state.empty, &state.experts, &state.moments}) {
      *tensor = tensor->to(gpu_);
    }
    return state;
  }
  CheckpointWriter::Options elsewhere() const {
    CheckpointWriter::Options result = options();
    result.folder = scratch_.file("of_gpu");
    result.warn = [](const std::string& text) { ADD_FAILURE() << text; };
    return result;
  }

  const at::Device gpu_ = resolve_device("cuda").device;
};

TEST_F(CheckpointGpu, HoldsTheBytesThatACpuSavesAlsoIfTheStateChangesBeforeTheyAreWritten) {
  const std::string expected = save(2, 2);
  const std::string found = elsewhere().folder + "/" + step_folder(10);
  run_ranks(2, [&](Communicator& world) {
    ToyState state = state_on_gpu(world.rank(), 2);
    CheckpointWriter writer(elsewhere(), world, posix_);
    writer.begin(state, {10, 80, std::nullopt});
    for (torch::Tensor* tensor : {&state.weight, &state.transposed, &state.bias, &state.mask,
                                  &state.experts, &state.moments}) {
      tensor->zero_();
    }
    EXPECT_EQ(writer.commit().error, "");
  });
  for (const std::string& shard : {shard_name(0, 2), shard_name(1, 2)}) {
    EXPECT_EQ(read_file(found + "/" + shard), read_file(expected + "/" + shard)) << shard;
  }
  EXPECT_EQ(content_digest(CheckpointReader(found)), content_digest(CheckpointReader(expected)));
}

TEST_F(CheckpointGpu, MakesTheHostWaitOnceAndNotBeforeTheWriter) {
  run_ranks(1, [&](Communicator& world) {
    const testing::GpuProbe probe;
    ToyState state = state_on_gpu(0, 1);
    CheckpointWriter writer(elsewhere(), world, posix_);
    for (const int64_t step : {10, 20}) {
      const int64_t waits = probe.count_waits([&] {
        probe.refuse_waits([&] { writer.begin(state, {step, step * 8, std::nullopt}); });
        EXPECT_EQ(writer.commit().error, "");
      });
      EXPECT_EQ(waits, 1) << step;
    }
  });
}

TEST_F(CheckpointGpu, GoesThroughPageableMemoryWhereThereIsLittle) {
  run_ranks(1, [&](Communicator& world) {
    ToyState state = state_on_gpu(0, 1);
    std::vector<std::string> warnings;
    CheckpointWriter::Options options = elsewhere();
    options.warn = [&](const std::string& text) { warnings.push_back(text); };
    options.available_bytes = [] { return 16; };
    CheckpointWriter writer(options, world, posix_);
    EXPECT_EQ(writer.save(state, {10, 80, std::nullopt}).error, "");
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("16 are left for this rank")));
  });
}

// ---- memory

class StagingGpu : public testing::OnGpu {
 protected:
  static constexpr int64_t kBytes = 132;
  /// Tensors of `kBytes`, one behind the other; the last one is the CPU's.
  std::vector<Staging::Part> some_parts(int64_t seed) const {
    const torch::Tensor numbers = torch::arange(12).view({4, 3}) + seed;
    return {{numbers.to(gpu_).t(), 0},
            {numbers.slice(0, 0, 2).to(gpu_, torch::kBFloat16), 96},
            {numbers[0].remainder(2).to(gpu_, torch::kBool), 108},
            {torch::tensor(seed).to(gpu_, torch::kFloat32), 112},
            {torch::tensor({1.5f, 2.5f, 3.5f, -4.5f}), 116}};
  }
  /// Copies and waits; expects the parts' bytes in the memory.
  static void expect_staged(Staging& staging, const std::vector<Staging::Part>& parts) {
    std::vector<std::string> expected;  // read first, since that waits for the GPU
    for (const Staging::Part& part : parts) {
      const torch::Tensor value = part.value.cpu().contiguous();
      expected.emplace_back(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
    }
    staging.copy(parts, kBytes);
    const char* memory = staging.wait();
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(std::string_view(memory + parts[i].begin, expected[i].size()), expected[i]) << i;
    }
  }
};

TEST_F(StagingGpu, KeepsOneBlockOfPinnedMemory) {
  int64_t blocks = 0;
  Staging staging([](const std::string& text) { ADD_FAILURE() << text; },
                  [&](int64_t bytes) {
                    ++blocks;
                    return torch::empty(
                        {bytes}, at::device(torch::kCPU).dtype(torch::kByte).pinned_memory(true));
                  });
  for (const int64_t seed : {1, 2, 3}) expect_staged(staging, some_parts(seed));
  EXPECT_EQ(blocks, 1);
}

TEST_F(StagingGpu, TakesPageableMemoryAfterAWarningIfThereIsNotEnoughPinnedMemory) {
  std::vector<std::string> warnings;
  Staging staging(
      [&](const std::string& text) { warnings.push_back(text); },
      [](int64_t) -> torch::Tensor { TORCH_CHECK(false, "CUDA error: out of memory"); });
  for (const int64_t seed : {1, 2}) expect_staged(staging, some_parts(seed));
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("copy 132 bytes"), HasSubstr("pageable memory"),
                                          HasSubstr("CUDA error: out of memory"))));
}

}  // namespace
}  // namespace shoal
