#include "tests/support/emulated_gpu/accesses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tests/support/emulated_gpu/counts.h"

namespace emulated_gpu {
namespace {

// ---- faults

struct FaultList {
  std::mutex mutex;
  std::optional<std::vector<std::string>> kept;
};
FaultList& fault_list() {
  static auto* instance = new FaultList;
  return *instance;
}

// ---- blocks

struct Use {
  std::string name;
  Moment moment;
};

struct Block {
  size_t bytes;
  size_t home;                 ///< stream that it belongs to, and whose later work may be given it
  Use writer{};                ///< the last one
  std::vector<Use> readers{};  ///< since then, the last of each stream
  std::vector<size_t> recorded{};
};

std::string text_of(const std::string& name, const Moment& moment) {
  return name + " on stream " + std::to_string(moment.stream);
}
std::string text_of(const Block& block) {
  return "GPU memory of " + std::to_string(block.bytes) + " bytes";
}

class Blocks {
 public:
  void add(const std::byte* first, size_t bytes, size_t home) {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(first, Block{bytes, home});
  }
  Block remove(const std::byte* first) {
    const std::lock_guard lock(mutex_);
    return blocks_.extract(first).mapped();
  }
  size_t home_of(const std::byte* first) {
    const std::lock_guard lock(mutex_);
    return blocks_.at(first).home;
  }
  bool has(const std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const Block* block = find(first);
    return block != nullptr && bytes <= block->bytes - offset_;
  }
  void record(const std::byte* at, size_t stream) {
    const std::lock_guard lock(mutex_);
    if (Block* block = find(at)) block->recorded.push_back(stream);
  }
  /// The text of a block and of its last writer; empty if there is no block.
  std::string describe(const std::byte* at) {
    const std::lock_guard lock(mutex_);
    const Block* block = find(at);
    if (block == nullptr) return "";
    std::string text = text_of(*block);
    if (block->writer.moment.time == 0) return text;
    return text + ", written by " + text_of(block->writer.name, block->writer.moment);
  }

  void note(const Work& work, const std::byte* at, bool is_write) {
    std::vector<std::string> faults;
    {
      const std::lock_guard lock(mutex_);
      Block* block = find(at);
      if (block == nullptr) return;
      const auto check = [&](const Use& use, const char* used) {
        if (work.clock.covers(use.moment)) return;
        faults.push_back(text_of(work.name, work.moment) + (is_write ? " writes " : " reads ") +
                         text_of(*block) + " that " + text_of(use.name, use.moment) + used +
                         ": no wait orders them");
      };
      check(block->writer, " writes");
      if (is_write) {
        for (const Use& use : block->readers) check(use, " reads");
        block->writer = {work.name, work.moment};
        block->readers.clear();
      } else {
        std::erase_if(block->readers,
                      [&](const Use& use) { return use.moment.stream == work.moment.stream; });
        block->readers.push_back({work.name, work.moment});
      }
    }
    for (const std::string& fault : faults) report_fault(fault);
  }

  /// Makes the last work of each stream the writer of all blocks that were allocated on it.
  void begin(const std::vector<Moment>& last) {
    const std::lock_guard lock(mutex_);
    for (auto& [first, block] : blocks_) {
      if (block.home < last.size()) block.writer = {"earlier work", last[block.home]};
    }
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [first, block] : blocks_) block = Block{block.bytes, block.home};
  }

 private:
  Block* find(const std::byte* at) {
    auto found = blocks_.upper_bound(at);
    if (found == blocks_.begin()) return nullptr;
    --found;
    offset_ = static_cast<size_t>(at - found->first);
    return offset_ <= found->second.bytes ? &found->second : nullptr;
  }

  std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  ///< by their first
  size_t offset_ = 0;                         ///< of what was found
};

Blocks& blocks() {
  static auto* instance = new Blocks;  // tensors may outlive static objects
  return *instance;
}

std::atomic<bool> is_watching{false};

void report_stray_touches() {
  for (const StrayTouch& touch : take_stray_touches()) {
    if (touch.kind == StrayTouch::Kind::kCopyOnItsWay) {
      report_fault("the host uses the result of a copy from the GPU that it has not waited for");
      continue;
    }
    if (touch.kind == StrayTouch::Kind::kNotNoted) {
      report_fault("a kernel uses more blocks of memory than are noted");
      continue;
    }
    const bool is_host = touch.kind == StrayTouch::Kind::kByHost;
    const std::string block = blocks().describe(touch.at);
    report_fault((is_host ? "the host uses " : "a kernel uses ") +
                 (block.empty() ? "GPU memory that is not allocated" : block));
  }
}

/// Each test ends with all work done, and the next one begins anew.
class EndOfTests : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    set_schedule_seed(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)));
    if (std::getenv("EMULATED_GPU_WATCH") != nullptr) watch_memory();
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    finish_all_work();
    report_stray_touches();
    if (!is_watching.exchange(false)) return;
    stop_closing_memory();
    blocks().clear();
  }
};
const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new EndOfTests);
  return true;
}();

}  // namespace

void watch_memory() {
  if (is_watching.exchange(true)) return;
  std::vector<Moment> last;
  for (int device = 0; device < kNumDevices; ++device)
    last.push_back(last_of(default_stream(device)));
  blocks().begin(last);
  close_memory();
}

void report_fault(const std::string& what) {
  FaultList& list = fault_list();
  const std::lock_guard lock(list.mutex);
  if (list.kept) {
    list.kept->push_back(what);
  } else {
    ADD_FAILURE() << "emulated GPU: " << what;
  }
}

Faults::Faults() {
  report_stray_touches();
  fault_list().kept.emplace();
}
Faults::~Faults() {
  report_stray_touches();
  fault_list().kept.reset();
}

std::vector<std::string> Faults::list() const {
  report_stray_touches();
  const std::lock_guard lock(fault_list().mutex);
  return fault_list().kept.value();
}

bool Faults::has(const std::vector<std::string>& texts) const {
  const std::vector<std::string> faults = list();
  return std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
    return std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return fault.find(text) != std::string::npos;
    });
  });
}

std::string Faults::text() const {
  std::string text;
  for (const std::string& fault : list()) text += fault + "\n";
  return text;
}

std::byte* add_block(size_t bytes) {
  std::byte* first = allocate_device(bytes);
  blocks().add(first, bytes, current_stream());
  return first;
}

void remove_block(std::byte* first) {
  const Clock done = clock_of(blocks().home_of(first));
  const Block block = blocks().remove(first);
  if (!free_device(first, block.bytes)) {
    report_fault(text_of(block) + " was written outside of it");
  }
  std::vector<Use> uses = block.readers;
  uses.push_back(block.writer);
  for (const Use& use : uses) {
    const bool is_recorded = std::find(block.recorded.begin(), block.recorded.end(),
                                       use.moment.stream) != block.recorded.end();
    if (is_recorded || done.covers(use.moment)) continue;
    report_fault(text_of(block) + " is freed before " + text_of(use.name, use.moment) +
                 ", which uses it, is known to be done");
  }
}

bool is_device_memory(const void* first, size_t bytes) {
  return blocks().has(static_cast<const std::byte*>(first), bytes);
}

void record_on_stream(const void* at, size_t stream) {
  blocks().record(static_cast<const std::byte*>(at), stream);
}

void note_read(const Work& work, const void* at) {
  if (is_watching) blocks().note(work, static_cast<const std::byte*>(at), false);
}
void note_write(const Work& work, const void* at) {
  if (is_watching) blocks().note(work, static_cast<const std::byte*>(at), true);
}

WatchedLaunch::WatchedLaunch(const char* kernel, const CUstream_st* stream)
    : work_(queue_work(kernel, stream_of(stream))) {
  count_launch(kernel);
}

WatchedLaunch::~WatchedLaunch() {
  for (const Touch& touch : memory_.finish()) blocks().note(work_, touch.at, touch.is_write);
  report_stray_touches();
}

}  // namespace emulated_gpu
