#include "tests/support/train_run.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/data/recipe_source.h"
#include "launch/train/resume.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/model_on.h"

namespace shoal::testing {

RunEnd train_run(const Recipe& recipe, const std::string& folder, RankGrid& grid,
                 const StopSignals& signals) {
  const auto source = make_source(recipe);
  const RunData data{open_split(source, Split::kTrain), open_split(source, Split::kValid)};
  return train_run_on(data, recipe, folder, grid, signals);
}

RunEnd train_run_on(const RunData& data, const Recipe& recipe, const std::string& folder,
                    RankGrid& grid, const StopSignals& signals) {
  std::filesystem::create_directories(folder + "/ckpt");
  Session session(recipe, model_on(recipe, data.train, grid), data.train, grid);
  RunFolder run;
  run.path = folder;
  run.resume = true;
  Console console(std::tmpfile(), false, 80);
  Log log(folder + "/log-" + std::to_string(grid.world->rank()), grid.world->rank(), nullptr);
  auto options = begin_or_resume(session, recipe, run, {.override_fixed = false, .log = log});
  const auto digest = [&] {
    return state_digest(session, session.steps_done(), session.samples_done(), *grid.world);
  };
  RunEnd end;
  end.loaded = digest();
  Trainer trainer({recipe, session, data.valid, run, console, log, signals, data.evaluates_first},
                  std::move(options));
  end.result = trainer.run();
  end.digest = digest();
  return end;
}

std::map<int64_t, double> evaluations(const std::string& folder, const std::string& metric) {
  std::map<int64_t, double> found;
  std::ifstream lines(folder + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("event")) found[record["step"]] = record[metric];
  }
  return found;
}

}  // namespace shoal::testing
