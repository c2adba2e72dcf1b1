#include "moe/routing/recorded_loads.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

// U units
namespace shoal {
namespace {

using Json = nlohmann::json;

/// nullopt if the text is no record.
std::optional<LoadRecord> parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  const Json step = json.value("step", Json()), layer = json.value("layer", Json()),
             load = json.value("load", Json());
  if (!step.is_number_integer() || !layer.is_string() || !load.is_array()) return {};
  for (const Json& value : load) {
    if (!value.is_number() || value.get<double>() < 0) return {};
  }
  const Json memory = json.value("memory_units", Json(0u));
  const bool is_count = memory.is_number_unsigned() && memory.get<uint64_t>() <= load.size();
  if (!is_count) return {};
  return LoadRecord{step.get<int64_t>(), layer.get<std::string>(), load.get<std::vector<double>>(),
                    memory.get<int64_t>(), text};
}

}  // namespace

void for_each_load_record(const std::string& file, const std::string& hint,
                          const std::function<void(const LoadRecord&)>& use) {
  std::ifstream stream = open_unless_pipe(file);
  if (!stream) throw DataError(fmt::format("'{}' cannot be read", file), hint);
  std::string text;
  for (int64_t line = 1; std::getline(stream, text) && !stream.eof(); ++line) {
    std::optional<LoadRecord> record = parse(text);
    if (!record) {
      throw DataError(fmt::format("{}:{}: not a record of a layer's experts", file, line), hint);
    }
    record->line = line;
    use(*record);
  }
}

}  // namespace shoal
