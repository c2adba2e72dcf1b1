// The functions of NVML that doctor calls, for a machine that a test describes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/support/fake_nvml.h"

using shoal::testing::FakeCard;
using shoal::testing::FakeNvml;

namespace {

FakeNvml machine;

constexpr int kOk = 0, kInvalidArgument = 2, kNotSupported = 3, kDriverNotLoaded = 9;

// A handle is the GPU's number, from 1.
intptr_t number_of(void* device) { return reinterpret_cast<intptr_t>(device) - 1; }
bool is_gpu(void* device) {
  return number_of(device) >= 0 && number_of(device) < static_cast<intptr_t>(machine.gpus.size());
}
const FakeCard& gpu_of(void* device) { return machine.gpus.at(number_of(device)); }

int copy(const std::string& text, char* to, unsigned length) {
  if (text.size() >= length) return kInvalidArgument;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kOk;
}

int answer(std::initializer_list<void*> devices) {
  if (!machine.answers) return kNotSupported;
  return std::all_of(devices.begin(), devices.end(), is_gpu) ? kOk : kInvalidArgument;
}

}  // namespace

extern "C" {

FakeNvml* shoal_fake_nvml() { return &machine; }

int nvmlInit_v2() { return machine.starts ? kOk : kDriverNotLoaded; }
int nvmlShutdown() { return kOk; }

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return copy(machine.driver, version, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = machine.cuda_version;
  return kOk;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine.gpus.size());
  return kOk;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<intptr_t>(index) + 1);
  return is_gpu(*device) ? kOk : kInvalidArgument;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  const int code = answer({device});
  return code == kOk ? copy(gpu_of(device).name, name, length) : code;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const int code = answer({device});
  if (code != kOk) return code;
  *major = gpu_of(device).major;
  *minor = gpu_of(device).minor;
  return kOk;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  const int code = answer({device});
  if (code != kOk) return code;
  const FakeCard& gpu = gpu_of(device);
  total_free_used[0] = gpu.total;
  total_free_used[1] = gpu.free;
  total_free_used[2] = gpu.total - gpu.free;
  return kOk;
}
int nvmlDeviceGetP2PStatus(void* one, void* other, int index, int* status) {
  const int code = answer({one, other});
  if (code != kOk) return code;
  const bool asks_for_nvlink = index == 2;
  const std::pair<int, int> pair(number_of(one), number_of(other));
  *status = asks_for_nvlink && machine.nvlinks.contains(pair) ? 0 : 5;
  return kOk;
}

}  // extern "C"
