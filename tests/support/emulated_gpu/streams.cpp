#include "tests/support/emulated_gpu/streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <list>
#include <mutex>
#include <numeric>
#include <utility>

#include "runtime/random/philox.h"
#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"

namespace emulated_gpu {
namespace {

struct StreamState {
  int device;
  uint64_t last = 0;  ///< items so far
  Clock clock;
};

struct Pool {
  std::vector<size_t> streams;
  size_t num_given = 0;
};
constexpr size_t kPoolSize = 32;

struct LateEffect {
  Moment moment;
  Clock clock;
  Arrival arrival;
  size_t turns_left;  ///< items of work until it arrives by itself
  std::function<void()> arrive;
};

/// Late effects that are held back at most; old ones arrive.
constexpr size_t kMostLateEffects = 256;
/// Items of work after which an effect has arrived by itself, at most.
constexpr size_t kMostTurns = 12;

class AllStreams {
 public:
  AllStreams() {
    for (int device = 0; device < kNumDevices; ++device) streams_.push_back({device, 0, {}});
  }

  size_t from_pool(int device) {
    const std::lock_guard lock(mutex_);
    Pool& pool = pools_.at(static_cast<size_t>(device));
    const size_t place = pool.num_given++ % kPoolSize;
    if (place == pool.streams.size()) {
      pool.streams.push_back(streams_.size());
      streams_.push_back({device, 0, {}});
    }
    return pool.streams[place];
  }
  int device_of(size_t stream) {
    const std::lock_guard lock(mutex_);
    return streams_.at(stream).device;
  }

  Work queue(const std::string& name, size_t number) {
    const std::lock_guard lock(mutex_);
    StreamState& stream = streams_.at(number);
    stream.clock.join(host(stream.device));
    const Moment moment{number, ++stream.last};
    pass_turn(stream.device);
    stream.clock.join(moment);
    return {name, moment, stream.clock};
  }
  Clock clock(size_t number) {
    const std::lock_guard lock(mutex_);
    Clock clock = streams_.at(number).clock;
    clock.join(host(streams_[number].device));
    return clock;
  }
  Moment last(size_t number) {
    const std::lock_guard lock(mutex_);
    return {number, streams_.at(number).last};
  }
  void block(size_t number, const Event& event) {
    const std::lock_guard lock(mutex_);
    streams_.at(number).clock.join(event);
    arrive(event, Arrival::kOnDevice);
  }
  void wait(int device, const Event& event) {
    const std::lock_guard lock(mutex_);
    host(device).join(event);
    arrive(event, Arrival::kAtLast);
  }
  bool is_done(int device, const Event& event) {
    const std::lock_guard lock(mutex_);
    if (!host(device).covers(event) && draw_below(2, device) == 0) return false;
    wait(device, event);
    return true;
  }
  /// Waits for all streams of the device, or of all devices if it is negative.
  void wait_for_device(int device) {
    const std::lock_guard lock(mutex_);
    Clock all;
    for (const StreamState& stream : streams_) {
      if (device < 0 || stream.device == device) all.join(stream.clock);
    }
    for (int each = 0; each < kNumDevices; ++each) {
      if (device < 0 || each == device) wait(each, all);
    }
  }

  void add_late(LateEffect effect) {
    const std::lock_guard lock(mutex_);
    const int device = streams_.at(effect.moment.stream).device;
    const bool is_latest = draw_below(2, device) == 0;
    effect.turns_left = is_latest ? SIZE_MAX : 1 + draw_below(kMostTurns, device);
    late_.push_back(std::move(effect));
    if (late_.size() > kMostLateEffects) arrive(Clock(late_.front().clock), Arrival::kAtLast);
  }
  void set_seed(uint64_t seed) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    num_draws_.fill(0);
  }

 private:
  Clock& host(int device) { return hosts_.at(static_cast<size_t>(device)); }

  /// Effects that the clock covers arrive in their order. A wait of less than `most` does not make
  /// them.
  void arrive(const Clock& clock, Arrival most) {
    for (auto effect = late_.begin(); effect != late_.end();) {
      if (effect->arrival > most || !clock.covers(effect->moment)) {
        ++effect;
        continue;
      }
      const std::function<void()> arrive_now = std::move(effect->arrive);
      effect = late_.erase(effect);
      arrive_now();
    }
  }

  /// One more item is queued on the device: its effects whose time has come arrive, after those
  /// before them.
  void pass_turn(int device) {
    Clock come;
    bool has_come = false;
    for (LateEffect& effect : late_) {
      if (effect.arrival == Arrival::kAtLast || effect.turns_left == SIZE_MAX) continue;
      if (streams_[effect.moment.stream].device != device) continue;
      if (--effect.turns_left > 0) continue;
      come.join(effect.clock);
      has_come = true;
    }
    if (has_come) arrive(come, Arrival::kOnHost);
  }

  /// Each device has draws of its own, so that other ranks' threads do not change them.
  size_t draw_below(size_t count, int device) {
    const auto number = static_cast<size_t>(device);
    const auto key = shoal::philox::stream_key(seed_, 1, number, num_draws_.at(number)++);
    const uint32_t word = shoal::philox::words_at(key, 0, 0).w[0];
    return static_cast<size_t>(word * uint64_t{count} >> 32);
  }

  std::recursive_mutex mutex_;
  std::vector<StreamState> streams_;
  std::array<Pool, kNumDevices> pools_;
  std::array<Clock, kNumDevices> hosts_;
  std::list<LateEffect> late_;
  uint64_t seed_ = 0;
  std::array<uint64_t, kNumDevices> num_draws_{};
};

AllStreams& all_streams() {
  static auto* instance = new AllStreams;  // used by static objects
  return *instance;
}

std::array<size_t, kNumDevices> default_streams() {
  std::array<size_t, kNumDevices> streams;
  std::iota(streams.begin(), streams.end(), 0);
  return streams;
}
thread_local std::array<size_t, kNumDevices> current_streams = default_streams();

}  // namespace

bool Clock::covers(const Moment& moment) const {
  return moment.time == 0 || (moment.stream < time_.size() && time_[moment.stream] >= moment.time);
}

bool Clock::covers(const Clock& other) const {
  for (size_t stream = 0; stream < other.time_.size(); ++stream) {
    if (!covers({stream, other.time_[stream]})) return false;
  }
  return true;
}

void Clock::join(const Moment& moment) {
  if (time_.size() <= moment.stream) time_.resize(moment.stream + 1, 0);
  time_[moment.stream] = std::max(time_[moment.stream], moment.time);
}

void Clock::join(const Clock& other) {
  for (size_t stream = 0; stream < other.time_.size(); ++stream) {
    if (other.time_[stream] > 0) join(Moment{stream, other.time_[stream]});
  }
}

size_t pool_stream(int device) {
  watch_memory();
  return all_streams().from_pool(device);
}
size_t default_stream(int device) { return static_cast<size_t>(device); }
size_t current_stream() { return current_stream_of(current_device_index()); }
size_t current_stream_of(int device) { return current_streams.at(static_cast<size_t>(device)); }

size_t exchange_stream(size_t stream) {
  const int device = device_of_stream(stream);
  if (stream != default_stream(device)) watch_memory();
  return std::exchange(current_streams.at(static_cast<size_t>(device)), stream);
}

int device_of_stream(size_t stream) { return all_streams().device_of(stream); }

CUstream_st* handle_of(int64_t id) { return reinterpret_cast<CUstream_st*>(id); }

size_t stream_of(const CUstream_st* handle) {
  return handle == nullptr ? default_stream(current_device_index())
                           : reinterpret_cast<size_t>(handle);
}

Work queue_work(const std::string& name, size_t stream) {
  return all_streams().queue(name, stream);
}
Clock clock_of(size_t stream) { return all_streams().clock(stream); }
Moment last_of(size_t stream) { return all_streams().last(stream); }

Event record_event(size_t stream) { return all_streams().clock(stream); }
void wait_on_stream(size_t stream, const Event& event) { all_streams().block(stream, event); }
void wait_on_host(const Event& event) { all_streams().wait(current_device_index(), event); }
void wait_for_device(int device) { all_streams().wait_for_device(device); }
bool is_done(const Event& event) { return all_streams().is_done(current_device_index(), event); }
void finish_all_work() { all_streams().wait_for_device(-1); }

void add_late_effect(const Work& work, Arrival arrival, std::function<void()> arrive) {
  all_streams().add_late({work.moment, work.clock, arrival, 0, std::move(arrive)});
}

void set_schedule_seed(uint64_t seed) { all_streams().set_seed(seed); }

void for_schedules(const std::function<void()>& body) {
  const char* asked = std::getenv("STREAM_SCHEDULES");
  const uint64_t count = asked == nullptr ? 5 : std::strtoull(asked, nullptr, 10);
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)) * count;
  std::cout << "schedules: seeds " << first << " to " << first + count - 1 << std::endl;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("schedule seed " + std::to_string(seed));
    set_schedule_seed(seed);
    body();
    finish_all_work();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace emulated_gpu
