// The emulated GPU finds work that no wait orders, and says what hosts give it to do.
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/device/device_copy.h"
#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"

namespace emulated_gpu {
namespace {

using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getStreamFromPool;
using torch::Tensor;

Tensor ones() { return torch::ones({100}, torch::kCUDA); }

/// to[i] = from[i] + 1, by a kernel on the current stream.
void add_one(const Tensor& from, const Tensor& to) {
  const float* in = from.data_ptr<float>();
  float* out = to.data_ptr<float>();
  launch("add_one_kernel", {4, 25, 0, getCurrentCUDAStream().stream()}, [&] {
    const unsigned i = blockIdx.x * 25 + threadIdx.x;
    out[i] = in[i] + 1;
  });
}

/// Makes `later` wait for what `earlier` has been given.
void order(const CUDAStream& earlier, const CUDAStream& later) {
  c10::Event event(c10::kCUDA);
  event.record(earlier);
  event.block(later);
}

void on(const CUDAStream& stream, const std::function<void()>& body) {
  const CUDAStreamGuard guard(stream);
  body();
}

/// The faults of `second` on another stream behind `first` on the current one, in the two ways
/// that they may follow each other.
struct Pair {
  std::string with_a_wait, without;
};
Pair faults_of(const std::function<void()>& first, const std::function<void()>& second) {
  Pair found;
  for (const bool has_wait : {true, false}) {
    const CUDAStream main = getCurrentCUDAStream(), other = getStreamFromPool();
    const Faults faults;
    first();
    if (has_wait) order(main, other);
    on(other, second);
    (has_wait ? found.with_a_wait : found.without) = faults.text();
    finish_all_work();
  }
  return found;
}

void expect_fault(const Pair& found, const std::vector<std::string>& texts) {
  EXPECT_EQ(found.with_a_wait, "");
  for (const std::string& text : texts) {
    EXPECT_NE(found.without.find(text), std::string::npos) << text << ": " << found.without;
  }
}

// ---- work on two streams

TEST(EmulatedGpuStreams, ReadsHaveToWaitForWrites) {
  getStreamFromPool();
  const Tensor x = ones(), y = ones();
  finish_all_work();
  expect_fault(faults_of([&] { x.add_(1); }, [&] { y.add_(x); }),
               {"aten::add on stream", "reads", "that aten::add on stream 0"});
  expect_fault(faults_of([&] { add_one(y, x); }, [&] { y.sub_(x); }),
               {"aten::sub", "reads", "add_one_kernel"});
  expect_fault(faults_of([&] { x.mul_(2); }, [&] { add_one(x, y); }),
               {"add_one_kernel", "reads", "aten::mul"});
}

TEST(EmulatedGpuStreams, WritesHaveToWaitForReadsAndWrites) {
  getStreamFromPool();
  const Tensor x = ones(), y = ones(), z = ones();
  finish_all_work();
  expect_fault(faults_of([&] { y.add_(x); }, [&] { x.fill_(3); }),
               {"aten::fill_", "writes", "aten::add", "reads"});
  expect_fault(faults_of([&] { add_one(x, y); }, [&] { add_one(z, x); }),
               {"add_one_kernel", "writes", "reads"});
  expect_fault(faults_of([&] { add_one(x, y); }, [&] { add_one(z, y); }),
               {"add_one_kernel", "writes", "that add_one_kernel on stream 0 writes"});
}

TEST(EmulatedGpuStreams, ReadsNeedNotWaitForReads) {
  getStreamFromPool();
  const Tensor x = ones(), y = ones(), z = ones();
  finish_all_work();
  EXPECT_EQ(faults_of([&] { add_one(x, y); }, [&] { add_one(x, z); }).without, "");
  EXPECT_EQ(faults_of([&] { y.add_(x); }, [&] { z.add_(x); }).without, "");
}

TEST(EmulatedGpuStreams, EachOfTheWaitsOrders) {
  const CUDAStream main = getCurrentCUDAStream(), other = getStreamFromPool();
  const auto faults_with = [&](const std::function<void()>& wait) {
    const Tensor x = ones(), y = ones();
    finish_all_work();
    const Faults faults;
    on(other, [&] { x.add_(1); });
    wait();
    y.add_(x);
    const std::string text = faults.text();
    finish_all_work();
    return text;
  };
  c10::Event event(c10::kCUDA);
  EXPECT_NE(faults_with([] {}), "");
  EXPECT_EQ(faults_with([&] { order(other, main); }), "");
  EXPECT_EQ(faults_with([&] { other.synchronize(); }), "");
  EXPECT_NE(faults_with([&] { main.synchronize(); }), "");
  EXPECT_NE(faults_with([&] { order(main, other); }), "");
  EXPECT_NE(faults_with([&] { event.record(other); }), "");
  EXPECT_EQ(faults_with([&] {
              event.record(other);
              event.synchronize();
            }),
            "");
  EXPECT_EQ(faults_with([&] {
              event.record(other);
              while (!event.query()) continue;
            }),
            "");
}

TEST(EmulatedGpuStreams, KernelsRunOnTheStreamThatTheyAreGiven) {
  const CUDAStream other = getStreamFromPool();
  const Tensor x = ones();
  finish_all_work();
  const Faults faults;
  on(other, [&] {
    x.add_(1);
    launch("forgets_its_stream_kernel", {1, 1}, [first = x.data_ptr<float>()] { *first = 5; });
  });
  EXPECT_TRUE(faults.has({"forgets_its_stream_kernel on stream 0 writes", "aten::add"}))
      << faults.text();
}

TEST(EmulatedGpuStreams, WorkBeforeTheFirstOtherStreamCounts) {
  const Tensor x = ones();
  const CUDAStream other = getStreamFromPool();
  const Faults faults;
  on(other, [&] { x.add_(1); });
  EXPECT_TRUE(faults.has({"aten::add", "earlier work on stream 0"})) << faults.text();
  finish_all_work();
}

// ---- memory

TEST(EmulatedGpuStreams, MemoryIsNotFreedWhileOtherStreamsUseIt) {
  const CUDAStream main = getCurrentCUDAStream(), other = getStreamFromPool();
  const auto faults_with = [&](const std::function<void(const Tensor&)>& before) {
    Tensor x = ones();
    const Tensor y = ones();
    order(main, other);
    const Faults faults;
    on(other, [&] { y.add_(x); });
    before(x);
    x.reset();
    const std::string text = faults.text();
    finish_all_work();
    return text;
  };
  EXPECT_NE(faults_with([](const Tensor&) {}).find("is freed before aten::add"), std::string::npos);
  EXPECT_EQ(faults_with([&](const Tensor&) { order(other, main); }), "");
  EXPECT_EQ(faults_with([&](const Tensor& x) { x.record_stream(other); }), "");
}

TEST(EmulatedGpuStreams, TheHostDoesNotUseMemoryOfTheGpu) {
  const Tensor x = ones(), y = ones();
  watch_memory();
  {
    const Faults faults;
    EXPECT_EQ(x.data_ptr<float>()[3], 1);
    EXPECT_TRUE(faults.has({"the host uses GPU memory of 400 bytes"})) << faults.text();
  }
  x.add_(1);
  add_one(x, y);
  EXPECT_EQ(y[99].item<float>(), 3);
}

TEST(EmulatedGpuStreams, KernelsUseNoMoreBlocksThanAreNoted) {
  std::vector<Tensor> blocks;
  for (int i = 0; i < 4100; ++i) blocks.push_back(torch::ones({1}, torch::kCUDA));
  watch_memory();
  for (const size_t used : {size_t{4096}, blocks.size()}) {
    const Faults faults;
    std::vector<float*> first;
    for (size_t i = 0; i < used; ++i) first.push_back(blocks[i].data_ptr<float>());
    launch("many_blocks_kernel", {1, 1, 0, getCurrentCUDAStream().stream()}, [&] {
      for (float* each : first) *each = 5;
    });
    EXPECT_EQ(faults.has({"uses more blocks"}), used == blocks.size()) << faults.text();
  }
}

TEST(EmulatedGpuStreams, TheHostWaitsForCopiesBeforeItReads) {
  const Tensor x = ones();
  const auto copied = [&] { return x.to(torch::kCPU, /*non_blocking=*/true); };
  {
    const Faults faults;
    const Tensor host = copied();
    EXPECT_NE(host.data_ptr<float>()[3], 1);
    EXPECT_TRUE(faults.has({"has not waited for"})) << faults.text();
    finish_all_work();
  }
  // A wait for another stream is none.
  {
    const CUDAStream other = getStreamFromPool();
    const Faults faults;
    set_schedule_seed(1);
    const Tensor host = copied();
    other.synchronize();
    EXPECT_NE(host.data_ptr<float>()[3], 1);
    EXPECT_TRUE(faults.has({"has not waited for"})) << faults.text();
    finish_all_work();
  }
  const Tensor host = copied();
  getCurrentCUDAStream().synchronize();
  EXPECT_EQ(host.data_ptr<float>()[3], 1);
  shoal::HostCopy copy(x);
  EXPECT_EQ(copy.wait().data_ptr<float>()[3], 1);
}

// Two copies to one page: the one that has arrived may be read.
TEST(EmulatedGpuStreams, CopiesToOnePageArriveOneByOne) {
  const Tensor x = ones();
  const Tensor ring = torch::empty({200}, torch::TensorOptions().pinned_memory(true));
  ring.slice(0, 0, 100).copy_(x, /*non_blocking=*/true);
  c10::Event first(c10::kCUDA);
  first.record(getCurrentCUDAStream());
  const Tensor second = ring.slice(0, 100);
  second.copy_(x, /*non_blocking=*/true);
  first.synchronize();
  EXPECT_EQ(ring[3].item<float>(), 1);
  finish_all_work();
  EXPECT_EQ(ring[103].item<float>(), 1);
}

TEST(EmulatedGpuStreams, TheHostKeepsPinnedMemoryUntilItIsCopied) {
  const Tensor host = torch::ones({100}).pin_memory();
  ASSERT_TRUE(host.is_pinned());
  for (const bool waits : {true, false}) {
    const Faults faults;
    const Tensor x = host.to(torch::kCUDA, /*non_blocking=*/true);
    if (waits) getCurrentCUDAStream().synchronize();
    host.add_(1);
    finish_all_work();
    EXPECT_EQ(faults.has({"pinned memory is written"}), !waits) << faults.text();
  }
}

// ---- schedules

TEST(EmulatedGpuStreams, SchedulesDiffer) {
  const Tensor x = ones();
  int num_early = 0, num_late = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    set_schedule_seed(seed);
    const Faults faults;
    const Tensor host = x.to(torch::kCPU, /*non_blocking=*/true);
    for (int i = 0; i < 6; ++i) x.add_(0);
    (host.data_ptr<float>()[0] == 1 ? num_early : num_late) += 1;
    finish_all_work();
  }
  EXPECT_GT(num_early, 0);
  EXPECT_GT(num_late, 0);
}

// Staging: values leave on a stream of their own while the next ones are computed.
TEST(EmulatedGpuStreams, StagedCopiesHoldTheirValuesUnderEachSchedule) {
  for_schedules([] {
    const CUDAStream main = getCurrentCUDAStream(), staging = getStreamFromPool();
    const Tensor x = torch::zeros({100}, torch::kCUDA);
    std::vector<shoal::HostCopy> copies;
    for (int round = 0; round < 8; ++round) {
      x.add_(1);
      order(main, staging);
      on(staging, [&] { copies.emplace_back(x); });
      order(staging, main);
      if (round % 3 == 2) {
        EXPECT_EQ(copies[static_cast<size_t>(round - 1)].wait()[99].item<float>(), round);
      }
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(copies[i].wait()[0].item<float>(), static_cast<float>(i + 1));
    }
  });
}

TEST(EmulatedGpuStreams, QueriesOfAnEventAreFalseAtTimes) {
  const Tensor x = ones();
  int num_done = 0;
  for (int i = 0; i < 40; ++i) {
    x.add_(1);
    c10::Event event(c10::kCUDA);
    event.record(getCurrentCUDAStream());
    num_done += event.query() ? 1 : 0;
    event.synchronize();
    EXPECT_TRUE(event.query());
  }
  EXPECT_GT(num_done, 0);
  EXPECT_LT(num_done, 40);
}

// ---- counts

TEST(EmulatedGpuCounts, AreOfLaunchesCopiesAndWaits) {
  const Tensor x = ones(), y = ones();
  const Tensor pinned = torch::ones({50}).pin_memory();
  const Counts made = counts_of([&] {
    add_one(x, y);
    y.view({10, 10}).add_(x.view({10, 10}).t()).sum().item<float>();
    pinned.to(torch::kCUDA, /*non_blocking=*/true);
    torch::ones({3}).to(torch::kCUDA);
    shoal::HostCopy(x).wait();
    torch::empty({7}, torch::kCUDA).resize_({9});
    getCurrentCUDAStream().synchronize();
  });
  const std::map<std::string, int64_t> launches{
      {"add_one_kernel", 1}, {"aten::add", 1}, {"aten::sum", 1}};
  EXPECT_EQ(made.launches, launches) << table_of({{"found", made}});
  EXPECT_EQ(made.to_gpu_pinned, (Copies{1, 200}));
  EXPECT_EQ(made.to_gpu, (Copies{1, 12}));
  EXPECT_EQ(made.to_host_pinned, (Copies{1, 400}));
  EXPECT_EQ(made.to_host.number, 1);  // item
  EXPECT_EQ(made.waits, 4);           // item, the copy from pageable memory, HostCopy, the stream
  EXPECT_EQ(made.without({"aten::sum"}).num_launches(), 2);
}

TEST(EmulatedGpuCounts, AreOfOneGpu) {
  const Counts made = counts_of([&] {
    const c10::DeviceGuard guard({c10::kCUDA, 1});
    torch::zeros({3}, torch::kCUDA).add_(1);
    EXPECT_GE(counts().launches.at("aten::add"), 1);
  });
  EXPECT_EQ(made.num_launches(), 0);
  EXPECT_THROW(torch::zeros({3}, at::Device("cuda:0")) + torch::zeros({3}, at::Device("cuda:1")),
               c10::Error);
}

}  // namespace
}  // namespace emulated_gpu
