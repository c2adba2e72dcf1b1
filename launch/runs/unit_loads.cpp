#include "launch/runs/unit_loads.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "moe/routing/recorded_loads.h"
#include "parallel/comm/on_rank_zero.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// Loads at the last logged step.
UnitLoads last_loads(const std::string& file) {
  UnitLoads loads;
  std::error_code ignored;
  if (fs::status(file, ignored).type() == fs::file_type::not_found) return loads;
  int64_t last_step = 0;
  for_each_load_record(file, "parallel.placement=by_load reads it; resume with another placement",
                       [&](const LoadRecord& record) {
                         if (record.step != last_step) loads.clear();
                         last_step = record.step;
                         loads[record.layer] = record.load_U;
                       });
  return loads;
}

}  // namespace

UnitLoads logged_loads(const Recipe& recipe, Communicator& world) {
  if (recipe.parallel.placement != PlacementRule::kByLoad ||
      recipe.run.on_existing != OnExisting::kResume) {
    return {};
  }
  const std::string text = on_rank_zero(world, [&] {
    const UnitLoads loads =
        last_loads(fmt::format("{}/{}/experts.jsonl", recipe.run.root, recipe.run.name));
    return nlohmann::json(loads).dump();
  });
  return nlohmann::json::parse(text).get<UnitLoads>();
}

}  // namespace shoal
