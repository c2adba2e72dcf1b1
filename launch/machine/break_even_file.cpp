#include "launch/machine/break_even_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "launch/machine/machine_facts.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"

namespace shoal {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BreakEven, one, few, many);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BreakEvens, rows, diagonals, blocks);

namespace {
constexpr const char* kFileHint = "remove it, or measure again with shoal doctor --calibrate";
constexpr const char* kCheckpointHint = "look at the checkpoint with shoal ckpt verify";
/// Parses densities. Throws DataError with the source if a value is not a density.
BreakEvens break_evens_in(const nlohmann::json& json, const std::string& source, const char* hint) {
  BreakEvens found;
  try {
    json.get_to(found);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(source + ": no break-even densities: " + error.what(), hint);
  }
  for (const BreakEven& one : {found.rows, found.diagonals, found.blocks}) {
    for (const double density : {one.one, one.few, one.many}) {
      if (density >= 0.0 && density <= 1.0) continue;
      throw DataError(fmt::format("{}: {} is not a density, which is in [0, 1]", source, density),
                      hint);
    }
  }
  return found;
}

}  // namespace

std::string break_even_path(const std::string& cache_folder) {
  return cache_folder + "/sparse_break_even.json";
}

std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("processor") || !json.contains("break_even")) {
    throw DataError(path + ": is not what shoal doctor --calibrate writes", kFileHint);
  }
  if (json["processor"] != processor) return std::nullopt;
  return break_evens_in(json["break_even"], path, kFileHint);
}

void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const nlohmann::json json{{"processor", processor}, {"break_even", break_evens}};
  PosixFileSystem files;
  try {
    replace_file(files, path, json.dump(2) + "\n");
  } catch (const StorageError&) {
    throw DataError(path + ": cannot be written", "set XDG_CACHE_HOME to a folder that can be");
  }
}

std::string processor_model() {
  const std::string model = value_after("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown" : model;
}

ChosenBreakEvens choose_break_evens(const std::map<std::string, std::string>& written_by,
                                    const std::string& cache_folder, Communicator& world) {
  const auto written = written_by.find(kWrittenBreakEvens);
  if (written != written_by.end()) {
    const std::string source = "the checkpoint";
    return {break_evens_in(nlohmann::json::parse(written->second, nullptr, false), source,
                           kCheckpointHint),
            source};
  }
  const std::string path = break_even_path(cache_folder);
  const std::string measured = on_rank_zero(world, [&] {
    const auto found =
        cache_folder.empty() ? std::nullopt : read_break_evens(path, processor_model());
    return found ? to_text(*found) : "";
  });
  if (measured.empty()) return {{}, "the densities built in"};
  return {break_evens_in(nlohmann::json::parse(measured), path, kFileHint), path};
}

std::string to_text(const BreakEvens& break_evens) { return nlohmann::json(break_evens).dump(); }

}  // namespace shoal
