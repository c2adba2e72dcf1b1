#include "launch/unit_loads.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "parallel/on_rank_zero.h"
#include "runtime/error.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

/// The records of the last step, one a line.
std::string last_records(const std::string& file) {
  std::ifstream stream(file);
  std::string records, line;
  Json last_step;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (stream.eof()) break;  // a line without its end was cut off by a crash
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || !record.contains("layer") ||
        !record.contains("load") || !record["load"].is_array()) {
      throw DataError(fmt::format("{}:{}: not a record of a layer's experts", file, number),
                      "parallel.placement=by_load reads it; resume with another placement");
    }
    if (record["step"] != last_step) records.clear();
    last_step = record["step"];
    records += line + "\n";
  }
  return records;
}

}  // namespace

UnitLoads logged_loads(const Recipe& recipe, Communicator& world) {
  UnitLoads loads;
  if (recipe.parallel.placement != PlacementRule::kByLoad ||
      recipe.run.on_existing != OnExisting::kResume) {
    return loads;
  }
  const std::string records = on_rank_zero(world, [&] {
    return last_records(fmt::format("{}/{}/experts.jsonl", recipe.run.root, recipe.run.name));
  });
  std::istringstream lines(records);
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    loads[record["layer"].get<std::string>()] = record["load"].get<std::vector<double>>();
  }
  return loads;
}

}  // namespace shoal
