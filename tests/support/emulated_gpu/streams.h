#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct CUstream_st;

/// Streams and events of the emulated GPUs. An item of work runs when it is queued, on the thread
/// that queues it. What a real GPU would guarantee is kept in clocks: of a stream, what is done
/// before its next item begins; of a device's host, what it has waited for.
///
/// Effects of some work arrive late: copies to the host and transfers between ranks. One arrives
/// when something waits for it, or before that, after some items of work that are drawn.
namespace emulated_gpu {

/// Item number `time` of a stream, from 1.
struct Moment {
  size_t stream = 0;
  uint64_t time = 0;
};

/// For each stream the last item that is known to be done.
class Clock {
 public:
  bool covers(const Moment& moment) const;
  bool covers(const Clock& other) const;
  void join(const Moment& moment);
  void join(const Clock& other);

 private:
  std::vector<uint64_t> time_;  ///< by stream; 0 where there is none
};

/// An item of work that was queued.
struct Work {
  std::string name;  ///< of the operator, kernel or transfer
  Moment moment;
  Clock clock;  ///< the work that is done before this item, and this item
};

/// Streams are numbered: the default streams of the devices first, then the others as they are
/// made. LibTorch's id of a stream is its number, but for default streams, which are 0.
/// Returns a stream of the device's pool, which has 32 that take turns.
size_t pool_stream(int device);
size_t default_stream(int device);
/// The stream of this thread's current device.
size_t current_stream();
size_t current_stream_of(int device);
/// Makes a stream current on this thread for its device. Returns the one that was.
size_t exchange_stream(size_t stream);
int device_of_stream(size_t stream);
/// Kernels take the default stream of the current device as null.
CUstream_st* handle_of(int64_t id);
size_t stream_of(const CUstream_st* handle);

/// Queues an item on the stream: behind its earlier items, and behind all that the host of the
/// stream's device has waited for.
Work queue_work(const std::string& name, size_t stream);
/// The work that is done before the stream's next item begins.
Clock clock_of(size_t stream);
/// The stream's last item; its time is 0 without any.
Moment last_of(size_t stream);

/// What a stream had been given when the event was recorded.
using Event = Clock;
Event record_event(size_t stream);
/// The stream's next items begin after the event.
void wait_on_stream(size_t stream, const Event& event);
/// The host of the current device waits.
void wait_on_host(const Event& event);
void wait_for_device(int device);
/// True if the work before the event is done. Is false up to a few times, as drawn, before the
/// host has waited for the event.
bool is_done(const Event& event);
/// The hosts of all devices wait for all work.
void finish_all_work();

enum class Arrival {
  kOnDevice,  ///< before work begins that has waited for it
  kOnHost,    ///< before the host goes on that has waited for it
  kAtLast     ///< as kOnHost, and never before
};
/// Has `arrive` called once, when an effect of `work` becomes visible, while no other effect does.
/// It may neither wait for other threads nor queue work.
void add_late_effect(const Work& work, Arrival arrival, std::function<void()> arrive);

/// Sets the seed of the schedules that are drawn from now on.
void set_schedule_seed(uint64_t seed);
/// Runs `body` once for each of some seeds, which follow from --gtest_random_seed and are printed:
/// 5, or as many as the environment variable STREAM_SCHEDULES says.
void for_schedules(const std::function<void()>& body);

}  // namespace emulated_gpu
