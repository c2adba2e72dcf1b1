#include "tests/support/fake_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

namespace shoal::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

std::string text_of(const FakeWork& work) {
  const FakeStream& stream = *work.stream;
  std::string text = stream.gpu->name + ": " + work.what + " on stream " + stream.name;
  std::string missing;
  for (const TransferPtr& transfer : work.transfers) {
    for (const FakeSide& side : transfer->sides) {
      if (!side.work || !side.work->is_started) missing += " " + side.gpu->name;
    }
  }
  if (work.is_started) return text + " waits for" + missing;
  return text + " is queued";
}

}  // namespace

void for_schedules(const std::function<void(const FakeSchedule& schedule)>& body) {
  const char* const asked = std::getenv("STREAM_SCHEDULES");
  const uint64_t count = asked == nullptr ? 5 : std::strtoull(asked, nullptr, 10);
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)) * count + 1;
  std::cout << "schedules: seeds " << first << " to " << first + count - 1 << std::endl;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("schedule seed " + std::to_string(seed));
    body({.seed = seed, .overlaps = seed % 2 == 0});
  }
}

FakeGpu& FakeStreams::add_gpu() {
  FakeGpu& gpu = gpus_.emplace_back();
  gpu.name = "GPU " + std::to_string(gpus_.size() - 1);
  gpu.host = std::this_thread::get_id();
  return gpu;
}

void FakeStreams::queue(FakeStream& stream, const WorkPtr& work) {
  work->stream = &stream;
  stream.queue.push_back(work);
  if (work->is_launch) stream.gpu->launches.push_back(work);
  stream.gpu->host_waits = nullptr;
  while (schedule_.seed != 0 && draw(2) == 0) {
    const std::vector<WorkPtr> next = all_next();
    if (next.empty()) break;
    run(next[draw(next.size())]);
  }
  changed.notify_all();
}

void FakeStreams::wait(std::unique_lock<std::mutex>& lock, FakeGpu& gpu, const WorkPtr& work) {
  if (work && std::this_thread::get_id() == gpu.host) gpu.host_waits = work;
  while (check(), work && !work->is_done) {
    if (!step(work)) wait_for_others(lock, text_of(*work));
  }
  gpu.host_waits = nullptr;
}

bool FakeStreams::is_done(FakeGpu& gpu, const WorkPtr& work) {
  check();
  if (!work || work->is_done) return true;
  if (std::this_thread::get_id() == gpu.host) gpu.host_waits = work;
  step(work);
  check();
  if (work->is_done && std::this_thread::get_id() == gpu.host) gpu.host_waits = nullptr;
  return work->is_done;
}

void FakeStreams::wait_for_others(std::unique_lock<std::mutex>& lock, const std::string& what) {
  if (changed.wait_for(lock, kPatience) == std::cv_status::timeout) {
    fail("nothing has happened for a minute: " + what);
  }
  check();
}

void FakeStreams::drop(const WorkPtr& work) {
  if (!work->is_done) finish(work);
}

void FakeStreams::fail(const std::string& why) {
  failure_ = why;
  changed.notify_all();
}

void FakeStreams::check() const {
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

bool FakeStreams::step(const WorkPtr& wanted) {
  if (schedule_.seed != 0) {
    const std::vector<WorkPtr> next = all_next();
    if (!next.empty()) {
      run(next[draw(next.size())]);
      return true;
    }
  }
  std::vector<WorkPtr> path;
  std::set<FakeWork*> seen;
  const WorkPtr next = find_next(wanted, path, seen);
  if (next) run(next);
  return next != nullptr || !failure_.empty();
}

/// At the head of its stream, and nothing else stands before it.
bool FakeStreams::is_next(const FakeWork& work) const {
  return !work.is_started && !work.is_done && needs(work).empty();
}

/// Works without which this one cannot start or, where it has started, cannot be done.
std::vector<WorkPtr> FakeStreams::needs(const FakeWork& work) const {
  if (work.stream->queue.front().get() != &work) return {work.stream->queue.front()};
  if (work.event && !work.event->is_done) return {work.event};
  if (!work.is_launch) return {};
  std::vector<WorkPtr> before;
  if (!work.is_started) {
    for (const WorkPtr& launch : work.stream->gpu->launches) {
      if (launch.get() == &work) break;
      if (!schedule_.overlaps || !launch->is_started) return {launch};
    }
    return {};
  }
  for (const TransferPtr& transfer : work.transfers) {
    for (const FakeSide& side : transfer->sides) {
      if (side.work && side.work->is_started) continue;
      // Its host launches it after what it waits for; a host that runs will come to it.
      const WorkPtr needed = side.work ? side.work : side.gpu->host_waits;
      if (needed) before.push_back(needed);
    }
  }
  return before;
}

/// The first work that can be done of those that `work` needs. A work that needs itself is never
/// done: each of the works on the way is needed by the one before.
WorkPtr FakeStreams::find_next(const WorkPtr& work, std::vector<WorkPtr>& path,
                               std::set<FakeWork*>& seen) {
  const auto again = std::find(path.begin(), path.end(), work);
  if (again != path.end()) {
    std::string calls;
    for (auto on_way = again; on_way != path.end(); ++on_way) calls += "\n  " + text_of(**on_way);
    fail("calls of NCCL's wait for each other:" + calls);
    return nullptr;
  }
  if (work->is_done || !seen.insert(work.get()).second) return nullptr;
  if (is_next(*work)) return work;
  path.push_back(work);
  WorkPtr found;
  for (const WorkPtr& needed : needs(*work)) {
    found = find_next(needed, path, seen);
    if (found || !failure_.empty()) break;
  }
  path.pop_back();
  return found;
}

size_t FakeStreams::draw(size_t count) {
  return static_cast<size_t>(draws_.integer(num_draws_++, 0, static_cast<int64_t>(count)));
}

std::vector<WorkPtr> FakeStreams::all_next() const {
  std::vector<WorkPtr> next;
  for (const FakeGpu& gpu : gpus_) {
    for (const auto& [name, stream] : gpu.streams) {
      if (!stream.queue.empty() && is_next(*stream.queue.front())) {
        next.push_back(stream.queue.front());
      }
    }
  }
  return next;
}

void FakeStreams::run(const WorkPtr& work) {
  work->is_started = true;
  if (work->copy) work->copy();
  if (!work->is_launch) return finish(work);
  const std::vector<TransferPtr> transfers = work->transfers;
  for (const TransferPtr& transfer : transfers) {
    const auto has_started = [](const FakeSide& side) {
      return side.work && side.work->is_started;
    };
    if (!std::all_of(transfer->sides.begin(), transfer->sides.end(), has_started)) continue;
    if (!transfer->move(transfer->sides)) return work->on_bad_sides();
    for (const FakeSide& side : transfer->sides) {
      std::erase(side.work->transfers, transfer);
      if (side.work->transfers.empty()) finish(side.work);
    }
  }
}

void FakeStreams::finish(const WorkPtr& work) {
  work->is_started = work->is_done = true;
  std::erase(work->stream->queue, work);
  std::erase(work->stream->gpu->launches, work);
  changed.notify_all();
}

}  // namespace shoal::testing
