#include "tests/support/fake_nvml.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

namespace shoal::testing {

FakeNvml& fake_nvml(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto machine = reinterpret_cast<FakeNvml* (*)()>(dlsym(library, "shoal_fake_nvml"));
  return *machine();
}

std::string fake_nvml_library() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path() / "libnvml_shim.so").string();
}

}  // namespace shoal::testing
