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
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/philox.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_gpu {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedBytes = 48 << 10;  // more has to be asked for before the launch
constexpr int kPoison = 0xff;              // NaN and -1

/// Numbers that differ from launch to launch.
class Draws {
 public:
  explicit Draws(uint64_t launch)
      : key_(shoal::philox::stream_key(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)), 0, 0,
                                       launch)) {}
  size_t below(size_t count) {
    if (next_ % 4 == 0) words_ = shoal::philox::words_of_fill(key_, next_ / 4);
    return static_cast<size_t>(words_.w[next_++ % 4] * uint64_t{count} >> 32);
  }

 private:
  shoal::philox::StreamKey key_;
  shoal::philox::Words words_{};
  uint64_t next_ = 0;
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

/// A stack on which threads run. One that waits keeps its fiber until it has ended.
struct Fiber {
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  StackChange change{stack.get(), kStackBytes};
  ucontext_t start;
  jmp_buf place;
  bool is_started = false;
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
  void run_block();
  void begin_block();
  void order_threads();
  void resume(Fiber* fiber);
  void leave();
  void wait(Barrier& barrier, const Place& place);
  void release(Barrier& barrier);
  Fiber* choose();
  Fiber* idle_fiber();
  void begin_thread(Fiber* fiber);
  void end_thread();
  void move_to(Fiber* fiber);
  static void run_threads();
  Warp& own_warp() { return warps_[static_cast<size_t>(current_->thread / kWarp)]; }

  const char* kernel_;
  const Launch& launch_;
  const std::function<void()>& thread_;
  Draws draws_;
  std::vector<int> order_;  ///< of the block's threads
  bool are_warps_apart_ = false;
  size_t begun_ = 0;     ///< threads of `order_`
  size_t num_live_ = 0;  ///< threads that have not ended
  std::vector<Fiber*> ready_, idle_;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  StackChange scheduler_change_;
  std::exception_ptr error_;
  Barrier block_;
  std::vector<Warp> warps_;
  std::vector<Shared> shared_;
  size_t shared_used_ = 0;
  int shared_poison_ = kPoison;
};

Runner* running = nullptr;

// Of all launches.
uint64_t num_launches = 0;
std::vector<std::unique_ptr<Fiber>> fibers;
alignas(16) std::array<std::byte, kSharedBytes> shared_memory;

Runner::Runner(const char* kernel, const Launch& launch, const std::function<void()>& thread)
    : kernel_(kernel), launch_(launch), thread_(thread), draws_(num_launches++) {
  running = this;
  for (const auto& fiber : fibers) {
    fiber->is_started = false;
    fiber->change.kept = nullptr;
    idle_.push_back(fiber.get());
  }
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
  for (int i = 0; i < static_cast<int>(launch_.block.count()); ++i) order_.push_back(i);
  warps_.resize((order_.size() + kWarp - 1) / kWarp);
  const uint64_t num_blocks = launch_.grid.count();
  const bool backwards = draws_.below(2) == 1;
  for (uint64_t i = 0; i < num_blocks; ++i) {
    const uint64_t block = backwards ? num_blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(block % gridDim.x),
                static_cast<unsigned>(block / gridDim.x % gridDim.y),
                static_cast<unsigned>(block / gridDim.x / gridDim.y)};
    run_block();
  }
}

// Half of the blocks begin a warp when those before it can go no further, half at any time.
void Runner::order_threads() {
  are_warps_apart_ = draws_.below(2) == 1;
  const size_t size = order_.size();
  for (size_t i = size; i > 1; --i) std::swap(order_[i - 1], order_[draws_.below(i)]);
  if (!are_warps_apart_) return;
  const auto first = static_cast<unsigned>(draws_.below(warps_.size()));
  const auto place = [&](int thread) { return (thread / kWarp) ^ static_cast<int>(first); };
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return place(a) < place(b); });
}

void Runner::begin_block() {
  order_threads();
  begun_ = 0;
  num_live_ = order_.size();
  for (Warp& warp : warps_) warp.ended = 0;
  const size_t last = order_.size() % kWarp;
  if (last != 0) warps_.back().ended = ~0u << last;  // lanes that are not there
  shared_.clear();
  shared_used_ = 0;
  shared_poison_ = draws_.below(4) == 0 ? 0 : kPoison;  // a flag may be wrong by being true
  if (launch_.shared_bytes > 0) shared(launch_.shared_bytes, Place());
}

void Runner::run_block() {
  begin_block();
  while (Fiber* next = choose()) {
    resume(next);
    if (error_) std::rethrow_exception(error_);
  }
  if (num_live_ == 0) return;
  std::string what = "threads wait for others that do not come:";
  if (!block_.waiting.empty()) what += " a block at " + text_of(block_.place);
  for (const Warp& warp : warps_) {
    if (!warp.barrier.waiting.empty()) what += " a warp at " + text_of(warp.barrier.place);
  }
  fail(what);
}

// ---- fibers

Fiber* Runner::choose() {
  size_t unbegun = order_.size() - begun_;
  if (are_warps_apart_ && !ready_.empty()) unbegun = 0;
  if (ready_.size() + unbegun == 0) return nullptr;
  const size_t choice = draws_.below(ready_.size() + unbegun);
  if (choice >= ready_.size()) {
    Fiber* fiber = idle_fiber();
    begin_thread(fiber);
    return fiber;
  }
  std::swap(ready_[choice], ready_.back());
  Fiber* fiber = ready_.back();
  ready_.pop_back();
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

void Runner::begin_thread(Fiber* fiber) { fiber->thread = order_[begun_++]; }

// On a fiber, and forever: threads one after the other, without the scheduler while nobody waits.
void Runner::run_threads() {
  running->current_->change.arrive_from(running->scheduler_change_);
  for (;;) {
    Runner& self = *running;
    try {
      for (;;) {
        self.thread_();
        self.end_thread();
        if (!self.ready_.empty() || self.begun_ == self.order_.size()) break;
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
  --num_live_;
  if (num_live_ > 0 && block_.waiting.size() == num_live_) release(block_);
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
  ready_.insert(ready_.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}

void Runner::wait_for_block(const Place& place) {
  wait(block_, place);
  if (block_.waiting.size() == num_live_) release(block_);
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
  for (const Shared& known : shared_) {
    if (known.bytes == bytes && same(known.place, place)) return &shared_memory[known.first];
  }
  const size_t first = (shared_used_ + 15) / 16 * 16;
  if (bytes > kSharedBytes - first) fail("more shared memory than there may be");
  shared_.push_back({place, first, bytes});
  shared_used_ = first + bytes;
  return std::memset(&shared_memory[first], shared_poison_, bytes);
}

void* Runner::dynamic_shared() {
  if (launch_.shared_bytes == 0) fail("uses shared memory that the launch did not ask for");
  return shared_memory.data();
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
