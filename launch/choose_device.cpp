#include "launch/choose_device.h"

#include "runtime/error.h"

namespace shoal {

DeviceChoice choose_device(DeviceKind wanted, const LaunchInfo& launch,
                           const DevicePlaces& places) {
  if (wanted == DeviceKind::kCuda) {
    resolve_device("cuda", static_cast<int>(launch.local_rank), places);
    throw Error(ExitCode::kTopology, "run.device: training on CUDA devices is not implemented yet",
                "use run.device=cpu");
  }
  if (wanted == DeviceKind::kAuto && cuda_absence(places).empty()) {
    return {c10::Device(c10::DeviceType::CPU),
            "run.device is auto; a GPU is here and stays unused, since training on CUDA devices is "
            "not implemented yet"};
  }
  return resolve_device(wanted == DeviceKind::kAuto ? "auto" : "cpu", 0, places);
}

}  // namespace shoal
