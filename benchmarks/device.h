#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <string>

#include "benchmarks/bench.h"
#include "launch/job/rank_devices.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace shoal::bench {

/// What the option --device names, cpu or cuda, found and set up as `shoal train` does it.
/// Throws Error (kTopology) if there is no GPU that can be used, with the next step.
inline c10::Device use_device(const std::string& name) {
  try {
    const c10::Device device = resolve_device(name).device;
    if (device.is_cuda()) set_gpu_precision(/*tf32=*/false);
    return device;
  } catch (const Error& error) {
    // There is no recipe to set this in.
    const std::string hint = error.hint().substr(0, error.hint().find(", or set run.device"));
    throw Error(error.code(), error.what(), hint);
  }
}

/// Waits until the device has done what it was given.
inline void synchronise(const c10::Device& device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

/// Calls between two waits: on a GPU launches overlap with work, as in a training step.
inline int64_t calls_per_turn(const c10::Device& device) { return device.is_cpu() ? 1 : 10; }

/// Microseconds of one of `calls` calls, with the wait for all of them.
inline double us_of_calls(const std::function<void()>& call, int64_t calls,
                          const c10::Device& device) {
  const double us = us_of([&] {
    for (int64_t i = 0; i < calls; ++i) call();
    synchronise(device);
  });
  return us / static_cast<double>(calls);
}

}  // namespace shoal::bench
