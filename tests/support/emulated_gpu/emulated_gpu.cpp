#undef _FORTIFY_SOURCE  // its longjmp knows one stack only
#include "tests/support/emulated_gpu/emulated_gpu.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/random/philox.h"
#include "tests/support/emulated_gpu/accesses.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_gpu {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedBytes = 48 << 10;  // more has to be asked for before the launch
constexpr int kPoison = 0xff;              // NaN and -1
constexpr size_t kMostBlocks = 3;          // side by side

/// Numbers that differ from launch to launch.
class Draws {
 public:
  explicit Draws(uint64_t launch)
      : key_(shoal::philox::stream_key(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)), 0, 0,
                                       launch)) {}
  size_t below(size_t count) {
    if (next_ % 4 == 0) words_ = shoal::philox::words_at(key_, 0, next_ / 4);
    return static_cast<size_t>(words_.w[next_++ % 4] * uint64_t{count} >> 32);
  }

 private:
  shoal::philox::StreamKey key_;
  shoal::philox::Words words_{};
  uint32_t next_ = 0;
};

/// What ASan is told of a change of stacks, before and after it.
struct StackChange {
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* kept = nullptr;

#ifdef __SANITIZE_ADDRESS__
  void leave_for(const StackChange& other) {
    __sanitizer_start_switch_fiber(&kept, other.bottom, other.bytes);
  }
  void arrive_from(StackChange& other) const {
    __sanitizer_finish_switch_fiber(kept, &other.bottom, &other.bytes);
  }
#else
  void leave_for(const StackChange&) {}
  void arrive_from(StackChange&) const {}
#endif
};

struct Block;

/// A stack on which threads run. One that waits keeps its fiber until it has ended.
struct Fiber {
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  StackChange change{stack.get(), kStackBytes};
  ucontext_t start;
  jmp_buf place;
  bool is_started = false;
  Block* block = nullptr;
  int thread = 0;
};

/// Where threads wait for each other.
struct Barrier {
  Place place;
  std::vector<Fiber*> waiting;
};

struct Warp {
  Barrier barrier;
  unsigned mask = 0, ended = 0;
  int turn = 0;  ///< of values, so that a lane may be one call ahead of those that still read
  std::byte values[2][kWarp][8];
};

/// Memory that one declaration has been given.
struct Shared {
  Place place;
  size_t first, bytes;
};

/// One block, while it runs.
struct Block {
  Index index{};
  std::vector<int> order;  ///< of its threads
  bool are_warps_apart = false;
  size_t begun = 0;     ///< threads of `order`
  size_t num_live = 0;  ///< threads that have not ended
  std::vector<Fiber*> ready;
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<Shared> shared;
  size_t shared_used = 0;
  int shared_poison = kPoison;
  alignas(16) std::array<std::byte, kSharedBytes> memory;

  /// Threads that may begin now.
  size_t num_waiting_to_begin() const {
    return are_warps_apart && !ready.empty() ? 0 : order.size() - begun;
  }
};

std::string text_of(const Place& place) {
  return std::string(place.file_name()) + ":" + std::to_string(place.line());
}

bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

/// One launch, while it runs.
class Runner {
 public:
  Runner(const char* kernel, const Launch& launch, const std::function<void()>& thread);
  ~Runner();
  void run();

  [[noreturn]] void fail(const std::string& what) const;
  void* shared(size_t bytes, const Place& place);
  void* dynamic_shared();
  void wait_for_block(const Place& place);
  Lanes exchange(unsigned mask, uint64_t value, const Place& place);
  int own_lane() const { return current_->thread % kWarp; }

 private:
  void check_sizes() const;
  void begin_block(uint64_t number);
  void order_threads(Block& block);
  [[noreturn]] void fail_waiting();
  void resume(Fiber* fiber);
  void leave();
  void wait(Barrier& barrier, const Place& place);
  void release(Barrier& barrier);
  Fiber* choose();
  Fiber* choose_from(Block& block);
  Fiber* idle_fiber();
  void begin_thread(Fiber* fiber);
  void end_thread();
  void move_to(Fiber* fiber);
  static void run_threads();
  Block& own_block() { return *current_->block; }
  Warp& own_warp() { return own_block().warps[static_cast<size_t>(current_->thread / kWarp)]; }
  void* shared_of(Block& block, size_t bytes, const Place& place) const;

  const char* kernel_;
  const Launch& launch_;
  const std::function<void()>& thread_;
  Draws draws_;
  std::vector<Block*> running_, free_;
  std::vector<Fiber*> idle_;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  StackChange scheduler_change_;
  std::exception_ptr error_;
};

Runner* running = nullptr;

// Of all launches.
uint64_t num_launches = 0;
std::vector<std::unique_ptr<Fiber>> fibers;
std::array<Block, kMostBlocks> blocks;

Runner::Runner(const char* kernel, const Launch& launch, const std::function<void()>& thread)
    : kernel_(kernel), launch_(launch), thread_(thread), draws_(num_launches++) {
  running = this;
  for (const auto& fiber : fibers) {
    fiber->is_started = false;
    fiber->change.kept = nullptr;
    idle_.push_back(fiber.get());
  }
  const size_t side_by_side = 1 + draws_.below(kMostBlocks);
  for (size_t i = 0; i < side_by_side; ++i) free_.push_back(&blocks[i]);
}

Runner::~Runner() { running = nullptr; }

void Runner::check_sizes() const {
  const Extent &grid = launch_.grid, &block = launch_.block;
  if (grid.count() == 0 || block.count() == 0) fail("launch of no threads");
  if (block.count() > 1024 || block.z > 64) fail("more threads in a block than there may be");
  if (grid.x > INT32_MAX || grid.y > UINT16_MAX || grid.z > UINT16_MAX) {
    fail("more blocks than there may be");
  }
}

void Runner::run() {
  check_sizes();
  blockDim = launch_.block;
  gridDim = launch_.grid;
  const uint64_t num_blocks = launch_.grid.count();
  const bool backwards = draws_.below(2) == 1;
  uint64_t begun = 0;
  for (;;) {
    for (; begun < num_blocks && !free_.empty(); ++begun) {
      begin_block(backwards ? num_blocks - 1 - begun : begun);
    }
    if (running_.empty()) return;
    Fiber* next = choose();
    if (next == nullptr) fail_waiting();
    resume(next);
    if (error_) std::rethrow_exception(error_);
    if (own_block().num_live > 0) continue;
    free_.push_back(&own_block());
    running_.erase(std::find(running_.begin(), running_.end(), &own_block()));
  }
}

void Runner::begin_block(uint64_t number) {
  Block& block = *free_.back();
  free_.pop_back();
  running_.push_back(&block);
  block.index = {static_cast<unsigned>(number % gridDim.x),
                 static_cast<unsigned>(number / gridDim.x % gridDim.y),
                 static_cast<unsigned>(number / gridDim.x / gridDim.y)};
  const auto size = static_cast<size_t>(launch_.block.count());
  block.order.resize(size);
  std::iota(block.order.begin(), block.order.end(), 0);
  block.begun = 0;
  block.num_live = size;
  block.ready.clear();
  block.barrier.waiting.clear();
  block.warps.resize((size + kWarp - 1) / kWarp);
  for (Warp& warp : block.warps) {
    warp.ended = 0;
    warp.barrier.waiting.clear();
  }
  const size_t last = size % kWarp;
  if (last != 0) block.warps.back().ended = ~0u << last;  // lanes that are not there
  order_threads(block);
  block.shared.clear();
  block.shared_used = 0;
  block.shared_poison = draws_.below(4) == 0 ? 0 : kPoison;  // a flag may be wrong by being true
  if (launch_.shared_bytes > 0) shared_of(block, launch_.shared_bytes, Place());
}

// Half of the blocks begin a warp when those before it can go no further, half at any time.
void Runner::order_threads(Block& block) {
  std::vector<int>& order = block.order;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws_.below(i)]);
  block.are_warps_apart = draws_.below(2) == 1;
  if (!block.are_warps_apart) return;
  const auto first = static_cast<int>(draws_.below(block.warps.size()));
  const auto place = [&](int thread) { return (thread / kWarp) ^ first; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return place(a) < place(b); });
}

void Runner::fail_waiting() {
  const Block& block = *running_.front();
  blockIdx = block.index;
  std::string what = "threads wait for others that do not come:";
  if (!block.barrier.waiting.empty()) what += " a block at " + text_of(block.barrier.place);
  for (const Warp& warp : block.warps) {
    if (!warp.barrier.waiting.empty()) what += " a warp at " + text_of(warp.barrier.place);
  }
  fail(what);
}

// ---- fibers

Fiber* Runner::choose() {
  const size_t first = draws_.below(running_.size());
  for (size_t i = 0; i < running_.size(); ++i) {
    Fiber* fiber = choose_from(*running_[(first + i) % running_.size()]);
    if (fiber != nullptr) return fiber;
  }
  return nullptr;
}

Fiber* Runner::choose_from(Block& block) {
  std::vector<Fiber*>& ready = block.ready;
  const size_t count = ready.size() + block.num_waiting_to_begin();
  if (count == 0) return nullptr;
  const size_t choice = draws_.below(count);
  if (choice >= ready.size()) {
    Fiber* fiber = idle_fiber();
    fiber->block = &block;
    begin_thread(fiber);
    return fiber;
  }
  std::swap(ready[choice], ready.back());
  Fiber* fiber = ready.back();
  ready.pop_back();
  return fiber;
}

Fiber* Runner::idle_fiber() {
  if (idle_.empty()) {
    fibers.push_back(std::make_unique<Fiber>());
    return fibers.back().get();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Runner::move_to(Fiber* fiber) {
  current_ = fiber;
  const auto thread = static_cast<unsigned>(fiber->thread);
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
               thread / blockDim.x / blockDim.y};
  blockIdx = fiber->block->index;
}

void Runner::resume(Fiber* fiber) {
  move_to(fiber);
  if (_setjmp(scheduler_) != 0) return scheduler_change_.arrive_from(current_->change);
  scheduler_change_.leave_for(fiber->change);
  if (fiber->is_started) _longjmp(fiber->place, 1);
  fiber->is_started = true;
  getcontext(&fiber->start);
  fiber->start.uc_stack.ss_sp = fiber->stack.get();
  fiber->start.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->start, run_threads, 0);
  setcontext(&fiber->start);
}

/// From a fiber to the scheduler, which comes back here.
void Runner::leave() {
  if (_setjmp(current_->place) == 0) {
    current_->change.leave_for(scheduler_change_);
    _longjmp(scheduler_, 1);
  }
  current_->change.arrive_from(scheduler_change_);
}

void Runner::begin_thread(Fiber* fiber) {
  fiber->thread = fiber->block->order[fiber->block->begun++];
}

// On a fiber, and forever: threads one after the other, without the scheduler while nobody waits.
void Runner::run_threads() {
  running->current_->change.arrive_from(running->scheduler_change_);
  for (;;) {
    Runner& self = *running;
    try {
      for (;;) {
        self.thread_();
        self.end_thread();
        const Block& block = self.own_block();
        if (!block.ready.empty() || block.begun == block.order.size()) break;
        self.begin_thread(self.current_);
        self.move_to(self.current_);
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
    self.idle_.push_back(self.current_);
    self.leave();
  }
}

void Runner::end_thread() {
  Warp& warp = own_warp();
  warp.ended |= 1u << own_lane();
  if (!warp.barrier.waiting.empty() && (warp.mask >> own_lane() & 1) != 0) {
    fail("ends while its warp waits for it at " + text_of(warp.barrier.place));
  }
  Block& block = own_block();
  --block.num_live;
  if (block.num_live > 0 && block.barrier.waiting.size() == block.num_live) {
    release(block.barrier);
  }
}

// ---- barriers

void Runner::wait(Barrier& barrier, const Place& place) {
  if (barrier.waiting.empty()) barrier.place = place;
  if (!same(barrier.place, place)) {
    fail("waits at " + text_of(place) + ", others at " + text_of(barrier.place));
  }
  barrier.waiting.push_back(current_);
}

void Runner::release(Barrier& barrier) {
  std::vector<Fiber*>& ready = own_block().ready;
  ready.insert(ready.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}

void Runner::wait_for_block(const Place& place) {
  Block& block = own_block();
  wait(block.barrier, place);
  if (block.barrier.waiting.size() == block.num_live) release(block.barrier);
  leave();
}

Lanes Runner::exchange(unsigned mask, uint64_t value, const Place& place) {
  Warp& warp = own_warp();
  const auto lane = static_cast<size_t>(own_lane());
  if ((mask >> lane & 1) == 0) fail("is not in its mask at " + text_of(place));
  if ((mask & warp.ended) != 0) fail("waits for a lane that has ended, at " + text_of(place));
  if (warp.barrier.waiting.empty()) warp.mask = mask;
  if (warp.mask != mask) fail("another mask than that of other lanes, at " + text_of(place));
  wait(warp.barrier, place);
  const Lanes lanes(warp.values[warp.turn], mask);
  std::memcpy(warp.values[warp.turn][lane], &value, sizeof(value));
  if (warp.barrier.waiting.size() == static_cast<size_t>(__builtin_popcount(mask))) {
    warp.turn ^= 1;
    release(warp.barrier);
  }
  leave();
  return lanes;
}

// ---- memory and errors

void* Runner::shared(size_t bytes, const Place& place) {
  return shared_of(own_block(), bytes, place);
}

void* Runner::shared_of(Block& block, size_t bytes, const Place& place) const {
  for (const Shared& known : block.shared) {
    if (known.bytes == bytes && same(known.place, place)) return &block.memory[known.first];
  }
  const size_t first = (block.shared_used + 15) / 16 * 16;
  if (bytes > kSharedBytes - first) fail("more shared memory than there may be");
  block.shared.push_back({place, first, bytes});
  block.shared_used = first + bytes;
  return std::memset(&block.memory[first], block.shared_poison, bytes);
}

void* Runner::dynamic_shared() {
  if (launch_.shared_bytes == 0) fail("uses shared memory that the launch did not ask for");
  return own_block().memory.data();
}

void Runner::fail(const std::string& what) const {
  const auto at = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  throw std::runtime_error("emulated GPU: " + std::string(kernel_) + ", block " +
                           at(blockIdx.x, blockIdx.y, blockIdx.z) + ", thread " +
                           at(threadIdx.x, threadIdx.y, threadIdx.z) + ": " + what);
}

}  // namespace

void launch(const char* kernel, const Launch& launch, const std::function<void()>& thread) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const WatchedLaunch watched(kernel, launch.stream);
  Runner(kernel, launch, thread).run();
}

void fail(const std::string& what) { running->fail(what); }
void* shared(size_t bytes, const Place& place) { return running->shared(bytes, place); }
void* dynamic_shared() { return running->dynamic_shared(); }
void wait_for_block(const Place& place) { running->wait_for_block(place); }
Lanes exchange(unsigned mask, uint64_t value, const Place& place) {
  return running->exchange(mask, value, place);
}
int own_lane() { return running->own_lane(); }

}  // namespace emulated_gpu
