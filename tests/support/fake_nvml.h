#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace shoal::testing {

struct FakeCard {
  std::string name = "Toy H100";
  int major = 9, minor = 0;
  unsigned long long total = 80ull << 30, free = 79ull << 30;
};

/// The machine that libnvml_shim.so describes in place of NVIDIA's driver.
struct FakeNvml {
  bool starts = true;
  bool answers = true;  ///< false: functions but those that list GPUs fail
  std::string driver = "580.65.06";
  int cuda_version = 13000;
  std::vector<FakeCard> gpus;
  std::set<std::pair<int, int>> nvlinks;  ///< pairs of GPUs, the lower number first
};

/// The machine of the library at this path, to be changed; the library stays loaded.
FakeNvml& fake_nvml(const std::string& path);

/// The library that the tests' build made, beside their programs.
std::string fake_nvml_library();

}  // namespace shoal::testing
