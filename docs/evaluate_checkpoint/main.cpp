// evaluate_checkpoint RUN|CKPT: evaluates a checkpoint with libshoal, as `shoal eval` does.
#include <iostream>

#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/evaluate/evaluation.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/device/process_parts.h"

int main(int argc, char** argv) try {
  using namespace shoal;
  if (argc != 2) return 2;
  use_process_parts();  // faster products and memory; changes the whole process
  const LaunchInfo launch = read_launch_info(environment_variable);
  OpenedCheckpoint opened = open_checkpoint_alone({argv[1]}, environment_variable);
  const auto source = make_source(opened.recipe, environment_variable);
  const OpenSplit data = open_valid(opened.recipe, source, choose_workers(launch));
  const BuiltModel model =
      build_model(opened.recipe, data.source->shape(), {&opened.grid, opened.grid.device});
  load_model(opened, model);
  const Evaluation evaluation =
      evaluate({*model.task, opened.recipe, data, opened.grid}, opened.manifest.step);
  for (const Metric& metric : evaluation.metrics) {
    std::cout << metric.label << " " << to_text(metric) << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
