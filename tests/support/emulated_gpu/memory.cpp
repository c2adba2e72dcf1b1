#include "tests/support/emulated_gpu/memory.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(first, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(first, bytes) static_cast<void>(0)
#endif

namespace emulated_gpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostBytes = size_t{16} << 30;  // of address space
constexpr size_t kMostPages = kMostBytes / kPage;
constexpr size_t kGrowth = size_t{4} << 20;
constexpr size_t kReturned = size_t{1} << 20;  // freed blocks of this size go back to the system
constexpr size_t kGuardBytes = 256;            // in front and behind
constexpr uint16_t kGuard = 0xfff5;  // as part of any type a NaN or negative, but not the poison
constexpr int kPoison = 0xff;        // NaN and -1
constexpr int kOpen = PROT_READ | PROT_WRITE;

void* reserve(size_t bytes, int protection) {
  void* first =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (first == MAP_FAILED) throw std::bad_alloc();
  return first;
}

/// Pages for blocks, in sizes of powers of two.
class Arena {
 public:
  Arena()
      : base_(static_cast<std::byte*>(reserve(kMostBytes, PROT_NONE))),
        owner_(static_cast<uint32_t*>(reserve(kMostPages * sizeof(uint32_t), kOpen))) {}

  std::byte* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = size_class(bytes);
    std::vector<std::byte*>& free = free_[size];
    std::byte* first = nullptr;
    if (free.empty()) {
      first = base_ + used_;
      used_ += kPage << size;
      grow();
    } else {
      first = free.back();
      free.pop_back();
    }
    set_owner(first, size, static_cast<uint32_t>(page_of(first)) + 1);
    ASAN_POISON_MEMORY_REGION(first, kPage << size);
    ASAN_UNPOISON_MEMORY_REGION(first, bytes);
    return first;
  }
  void give_back(std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = size_class(bytes);
    set_owner(first, size, 0);
    ASAN_POISON_MEMORY_REGION(first, kPage << size);
    if (kPage << size >= kReturned) madvise(first, kPage << size, MADV_DONTNEED);
    free_[size].push_back(first);
  }
  void protect_all(int protection) {
    const std::lock_guard lock(mutex_);
    mprotect(base_, open_, protection);
  }

  // The rest is called by the signal's handler, too.
  bool contains(const void* at) const {
    return at >= static_cast<void*>(base_) && at < static_cast<void*>(base_ + kMostBytes);
  }
  size_t page_of(const void* at) const {
    return static_cast<size_t>(static_cast<const std::byte*>(at) - base_) / kPage;
  }
  std::byte* at_page(size_t page) const { return base_ + page * kPage; }
  /// The first page of the block that has this one; kMostPages if none has.
  size_t first_page(size_t page) const { return owner_[page] == 0 ? kMostPages : owner_[page] - 1; }
  void protect_block(size_t first, int protection) const {
    size_t count = 1;
    while (owner_[first + count] == first + 1) ++count;
    mprotect(at_page(first), count * kPage, protection);
  }

 private:
  static size_t size_class(size_t bytes) {
    return static_cast<size_t>(std::bit_width((bytes + kPage - 1) / kPage - 1));
  }
  void set_owner(const std::byte* first, size_t size, uint32_t owner) {
    const size_t page = page_of(first);
    for (size_t i = 0; i < size_t{1} << size; ++i) owner_[page + i] = owner;
  }
  void grow() {
    if (used_ > kMostBytes) throw std::bad_alloc();
    while (open_ < used_) {
      mprotect(base_ + open_, kGrowth, kOpen);
      open_ += kGrowth;
    }
  }

  std::mutex mutex_;
  std::byte* base_;
  uint32_t* owner_;  ///< of each page: 1 + the block's first page; 0 for none
  size_t used_ = 0, open_ = 0;
  std::array<std::vector<std::byte*>, 32> free_;
};

/// What the signal's handler leaves for others.
template <class Item, size_t kMost>
class HandlerList {
 public:
  /// False if the list is full.
  bool add(const Item& item) {
    const size_t place = count_++;
    if (place < kMost) items_[place] = item;
    return place < kMost;
  }
  std::vector<Item> take() {
    const size_t count = std::min(count_.exchange(0), kMost);
    return {items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  std::array<Item, kMost> items_;
  std::atomic<size_t> count_{0};
};

using Kind = StrayTouch::Kind;

/// How far a block is open.
enum class Access : uint8_t { kNone, kRead, kWrite };

class DeviceMemory {
 public:
  Arena arena;

  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !has_kernel_; });
    if (num_open_++ == 0 && is_closed_) protect_all(kOpen);
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--num_open_ > 0) return;
    if (is_closing_) protect_all(PROT_NONE);
    changed_.notify_all();
  }
  void set_closing(bool is_closing) {
    const std::lock_guard lock(mutex_);
    is_closing_ = is_closing;
    if (num_open_ == 0 && is_closing != is_closed_) protect_all(is_closing ? PROT_NONE : kOpen);
  }
  bool begin_kernel() {
    std::unique_lock lock(mutex_);
    if (!is_closing_) return false;
    changed_.wait(lock, [&] { return !has_kernel_ && num_open_ == 0; });
    has_kernel_ = true;
    protect_all(PROT_NONE);
    return true;
  }
  std::vector<Touch> end_kernel() {
    const std::lock_guard lock(mutex_);
    std::vector<Touch> touches;
    for (const size_t page : touched_.take()) {
      touches.push_back({arena.at_page(page) + kGuardBytes, access_[page] == Access::kWrite});
      access_[page] = Access::kNone;
    }
    has_kernel_ = false;
    protect_all(is_closing_ ? PROT_NONE : kOpen);
    changed_.notify_all();
    return touches;
  }

  /// In the handler: opens what was touched. True if that was its doing.
  bool handle(std::byte* at, bool is_kernel, HandlerList<StrayTouch, 256>& stray) {
    if (!arena.contains(at) || !is_closed_) return false;
    const size_t page = arena.page_of(at), first = arena.first_page(page);
    if (first == kMostPages || !is_kernel) {
      stray.add({at, is_kernel ? Kind::kByKernel : Kind::kByHost});
      if (first == kMostPages) {
        mprotect(arena.at_page(page), kPage, kOpen);
      } else {
        arena.protect_block(first, kOpen);
      }
      return true;
    }
    if (access_[first] == Access::kNone) {
      if (!touched_.add(first)) {
        stray.add({at, Kind::kNotNoted});
        arena.protect_block(first, kOpen);
        return true;
      }
      access_[first] = Access::kRead;
      arena.protect_block(first, PROT_READ);
    } else {
      access_[first] = Access::kWrite;
      arena.protect_block(first, kOpen);
    }
    return true;
  }

 private:
  void protect_all(int protection) {
    arena.protect_all(protection);
    is_closed_ = protection == PROT_NONE;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int num_open_ = 0;
  bool is_closing_ = false, has_kernel_ = false;
  std::atomic<bool> is_closed_{false};
  Access* access_ = static_cast<Access*>(reserve(kMostPages, kOpen));  ///< by a block's first page
  HandlerList<size_t, 4096> touched_;                                  ///< blocks' first pages
};

/// Pinned memory, of which pages are closed that copies under way go to.
class PinnedPages {
 public:
  Arena arena;

  void begin(const std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (Copy& copy : copies_) {
      if (copy.last != nullptr) continue;
      copy.first = first;
      copy.last = first + bytes;
      break;
    }
    protect(first, first + bytes, PROT_NONE);
  }
  void end(const std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (Copy& copy : copies_) {
      if (copy.first == first && copy.last == first + bytes) copy.last = nullptr;
    }
    protect(first, first + bytes, kOpen);
    for (const Copy& copy : copies_) {
      const std::byte* last = copy.last;
      if (last != nullptr && share_pages(copy.first, last, first, first + bytes)) {
        protect(copy.first, last, PROT_NONE);
      }
    }
  }
  bool handle(std::byte* at, HandlerList<StrayTouch, 256>& stray) {
    if (!arena.contains(at)) return false;
    for (const Copy& copy : copies_) {
      const std::byte* last = copy.last;
      if (last != nullptr && at >= copy.first && at < last) stray.add({at, Kind::kCopyOnItsWay});
    }
    mprotect(arena.at_page(arena.page_of(at)), kPage, kOpen);
    return true;
  }

 private:
  struct Copy {
    const std::byte* first = nullptr;
    std::atomic<const std::byte*> last = nullptr;  ///< null for none
  };
  bool share_pages(const std::byte* first, const std::byte* last, const std::byte* other_first,
                   const std::byte* other_last) const {
    return arena.page_of(first) <= arena.page_of(other_last - 1) &&
           arena.page_of(other_first) <= arena.page_of(last - 1);
  }
  void protect(const std::byte* first, const std::byte* last, int protection) const {
    const size_t page = arena.page_of(first), end = arena.page_of(last - 1) + 1;
    mprotect(arena.at_page(page), (end - page) * kPage, protection);
  }

  std::mutex mutex_;
  std::array<Copy, 512> copies_;
};

HandlerList<StrayTouch, 256> stray_touches;
thread_local bool runs_kernel = false;
thread_local int num_open_here = 0;
struct sigaction previous_action;

DeviceMemory& device_memory();
PinnedPages& pinned_pages();

void handle_fault(int, siginfo_t* info, void*) {
  auto* at = static_cast<std::byte*>(info->si_addr);
  if (device_memory().handle(at, runs_kernel, stray_touches)) return;
  if (pinned_pages().handle(at, stray_touches)) return;
  sigaction(SIGSEGV, &previous_action, nullptr);  // comes again
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_action);
}

// Tensors may outlive static objects.
DeviceMemory& device_memory() {
  static auto* instance = new DeviceMemory;
  return *instance;
}
PinnedPages& pinned_pages() {
  static auto* instance = [] {
    install_handler();
    return new PinnedPages;
  }();
  return *instance;
}

void write_guard(std::byte* to) {
  for (size_t i = 0; i < kGuardBytes; i += sizeof(kGuard)) {
    std::memcpy(to + i, &kGuard, sizeof(kGuard));
  }
}

bool is_guard(const std::byte* from) {
  std::byte guard[kGuardBytes];
  write_guard(guard);
  return std::memcmp(from, guard, kGuardBytes) == 0;
}

}  // namespace

std::byte* allocate_device(size_t bytes) {
  pinned_pages();  // with the handler
  const OpenMemory open;
  std::byte* first = device_memory().arena.take(bytes + 2 * kGuardBytes) + kGuardBytes;
  write_guard(first - kGuardBytes);
  std::memset(first, kPoison, bytes);
  write_guard(first + bytes);
  return first;
}

bool free_device(std::byte* first, size_t bytes) {
  const OpenMemory open;
  const bool is_whole = is_guard(first - kGuardBytes) && is_guard(first + bytes);
  device_memory().arena.give_back(first - kGuardBytes, bytes + 2 * kGuardBytes);
  return is_whole;
}

std::byte* allocate_pinned(size_t bytes) {
  std::byte* first = pinned_pages().arena.take(bytes);
  std::memset(first, kPoison, bytes);
  return first;
}
bool is_pinned_memory(const void* at) { return pinned_pages().arena.contains(at); }
void free_pinned(std::byte* first, size_t bytes) { pinned_pages().arena.give_back(first, bytes); }
void begin_copy_to_pinned(const std::byte* first, size_t bytes) {
  pinned_pages().begin(first, bytes);
}
void end_copy_to_pinned(const std::byte* first, size_t bytes) { pinned_pages().end(first, bytes); }

void close_memory() {
  pinned_pages();
  device_memory().set_closing(true);
}
void stop_closing_memory() { device_memory().set_closing(false); }

OpenMemory::OpenMemory() {
  if (num_open_here++ == 0) device_memory().enter();
}
OpenMemory::~OpenMemory() {
  if (--num_open_here == 0) device_memory().leave();
}

TouchedMemory::TouchedMemory() : is_running_(device_memory().begin_kernel()) {
  runs_kernel = is_running_;
}

std::vector<Touch> TouchedMemory::finish() {
  if (!is_running_) return {};
  is_running_ = runs_kernel = false;
  return device_memory().end_kernel();
}

std::vector<StrayTouch> take_stray_touches() { return stray_touches.take(); }

}  // namespace emulated_gpu
