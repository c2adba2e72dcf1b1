#include "launch/machine/machine_facts.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace shoal {
namespace {

/// Adds the folder `path`, as "/a/b", below `root`, and all its parents except the root.
void add_levels(const std::string& root, std::string path, std::vector<std::string>& folders) {
  while (path.size() > 1 && path.front() == '/') {
    folders.push_back(root + path);
    path.erase(path.rfind('/'));
  }
}

}  // namespace

std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream stream(file);
  int64_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

std::string value_after(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<std::string> gpu_models(const std::string& proc) {
  std::vector<std::string> models;
  std::error_code ignored;
  for (std::filesystem::directory_iterator gpu(proc + "/driver/nvidia/gpus", ignored), end;
       gpu != end; gpu.increment(ignored)) {
    models.push_back(value_after(gpu->path() / "information", "Model"));
  }
  return models;
}

std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys) {
  const std::string root = sys + "/fs/cgroup", root_v1 = root + "/" + controller;
  std::vector<std::string> folders{root, root_v1};
  // Lines of `0::/path` (version 2) and `3:cpu,cpuacct:/path` (version 1).
  std::ifstream lines(proc + "/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (names == ",,") add_levels(root, path, folders);
    if (names.find(fmt::format(",{},", controller)) != std::string::npos) {
      add_levels(root_v1, path, folders);
    }
  }
  return folders;
}

}  // namespace shoal
