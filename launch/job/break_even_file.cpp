#include "launch/job/break_even_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"

namespace shoal {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BreakEven, one, few, many);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BreakEvens, rows, diagonals, blocks);

std::string break_even_path(const std::string& cache_folder) {
  return cache_folder + "/sparse_break_even.json";
}

std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    if (json.at("processor") != processor) return std::nullopt;
    return json.at("break_even").get<BreakEvens>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(path + ": no break-even densities: " + error.what(),
                    "remove it, or measure again with shoal doctor --calibrate");
  }
}

std::optional<BreakEvens> agree_on_break_evens(const std::string& path, Communicator& world) {
  const std::string text = on_rank_zero(world, [&] {
    const auto found = read_break_evens(path, processor_model());
    return found ? nlohmann::json(*found).dump() : "";
  });
  if (text.empty()) return std::nullopt;
  return nlohmann::json::parse(text).get<BreakEvens>();
}

void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const nlohmann::json json{{"processor", processor}, {"break_even", break_evens}};
  std::ofstream file(path + ".new");
  file << json.dump(2) << '\n';
  file.close();
  std::error_code failure;
  if (file) std::filesystem::rename(path + ".new", path, failure);
  if (!file || failure) {
    throw DataError(path + ": cannot be written", "set XDG_CACHE_HOME to a folder that can be");
  }
}

std::string processor_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace shoal
