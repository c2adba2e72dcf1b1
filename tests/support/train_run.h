#pragma once

#include <map>
#include <string>

#include "launch/recipe/recipe.h"
#include "launch/train/trainer.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/base/signals.h"

namespace shoal::testing {

/// How a run ended, and what it holds.
struct RunEnd {
  TrainingResult result;
  std::string digest;  ///< of the state in memory
  std::string loaded;  ///< of what it began with
};

/// Trains a recipe to its end in `folder`, from the newest checkpoint there, if there is any, or
/// until a signal that StopSignals have caught. Collective.
RunEnd train_run(const Recipe& recipe, const std::string& folder, RankGrid& grid,
                 const StopSignals& signals);

/// What a run trains and evaluates on.
struct RunData {
  OpenSplit train, valid;
  bool evaluates_first = false;  ///< as Trainer::Parts
};
/// train_run on data of the test's own.
RunEnd train_run_on(const RunData& data, const Recipe& recipe, const std::string& folder,
                    RankGrid& grid, const StopSignals& signals);

/// A metric of each evaluation in the run's metrics.jsonl, by step.
std::map<int64_t, double> evaluations(const std::string& folder, const std::string& metric);

}  // namespace shoal::testing
