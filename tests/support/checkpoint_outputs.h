#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/evaluate/evaluation.h"
#include "launch/weights/open_checkpoint.h"

namespace shoal::testing {

/// What a checkpoint's model computes over the validation split.
struct CheckpointOutputs {
  torch::Tensor outputs;
  std::string evaluation;      ///< all metrics
  int64_t num_by_kernels = 0;  ///< layers that sparse kernels run
};

inline CheckpointOutputs checkpoint_outputs(const CheckpointChoice& choice) {
  const torch::NoGradGuard no_grad;
  OpenedCheckpoint opened =
      open_checkpoint_alone(choice, [](const std::string&) { return std::nullopt; });
  const OpenSplit data = open_split(make_source(opened.recipe), Split::kValid);
  const BuiltModel model =
      build_model(opened.recipe, data.source->shape(), {&opened.grid, torch::kCPU});
  const int64_t num_by_kernels = load_model(opened, model);
  std::vector<torch::Tensor> outputs;
  EvalLoader loader(*data.samples, loader_settings(opened.recipe, data, opened.grid));
  while (const std::optional<Batch> batch = loader.next()) {
    outputs.push_back(model.task->outputs(*batch).flatten());
  }
  const Evaluation evaluation =
      evaluate({*model.task, opened.recipe, data, opened.grid}, opened.manifest.step);
  return {torch::cat(outputs), to_json(evaluation).dump(), num_by_kernels};
}

}  // namespace shoal::testing
