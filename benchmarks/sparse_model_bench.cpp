// Whole models with sparse layers by sparse kernels, beside masked dense ones and dense twins.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "benchmarks/support/stored_images.h"
#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "models/backbone.h"
#include "parallel/comm/communicator.h"
#include "sparse/sparse_model.h"

// B images
namespace shoal::bench::sparse_model_bench {
namespace {

using Overrides = std::vector<std::string>;

Recipe load(const std::string& path, const Overrides& overrides) {
  return config::load_options<Recipe>({path, overrides, {}}, config::UnsetVariable::kKeep).options;
}

RankGrid grid_on(const c10::Device& device) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  grid.device = device;
  return grid;
}

/// A ViT-B/16 for images of 224 pixels, in evaluation.
struct VitB {
  Recipe recipe;
  RankGrid grid;
  BuiltModel model;
  std::vector<std::unique_ptr<StepRule>> rules;
  Backbone* backbone = nullptr;

  VitB(const c10::Device& device, const Overrides& overrides)
      : recipe(load("configs/vit/b.yaml", overrides)), grid(grid_on(device)) {
    model = build_model(recipe, make_source(recipe)->shape(), {&grid, device});
    if (model.sparse) {
      rules = model.sparse->make_rules(
          {.samples_per_epoch = 8, .samples_per_step = 8, .tokens_per_sample = 1, .total_steps = 1},
          nullptr);
    }
    model.task->eval();
    for (const auto& module : model.task->modules()) {
      if (auto* found = dynamic_cast<Backbone*>(module.get())) backbone = found;
    }
  }
  torch::Tensor forward(const torch::Tensor& image_BCHW) const {
    return backbone->forward({image_BCHW, {}, {}, {}}, {}).pooled_bD;
  }
};

std::string sparsity(const std::string& pattern, const std::string& order,
                     const std::string& execution) {
  return fmt::format(
      "sparsity={{density: 0.1, pattern: {{name: {}}}, rule: {{name: static}}, permutation: "
      "{{name: "
      "{}}}, execution: {}}}",
      pattern, order, execution);
}

void measure_forward(const c10::Device& device, const std::string& pattern,
                     const std::string& order, int64_t rounds, Report& report) {
  const VitB dense(device, {}), masked(device, {sparsity(pattern, order, "masked_dense")}),
      sparse(device, {sparsity(pattern, order, "sparse")});
  for (const int64_t batch : {1, 8}) {
    const torch::Tensor image = normal({batch, 3, 224, 224}, 5).to(device);
    const auto forward = [&](const VitB& model) {
      return [&] {
        for (int64_t call = 0; call < calls_per_turn(device); ++call) model.forward(image);
        synchronise(device);
      };
    };
    const torch::Tensor expected = masked.forward(image);
    const double apart = (sparse.forward(image) - expected).norm().item<double>();
    if (!(apart <= 1e-4 * expected.norm().item<double>())) {
      throw std::runtime_error("the sparse model's output differs from the masked dense one's");
    }
    const std::vector<Timing> timings = time_interleaved(
        {{"dense", forward(dense)}, {"masked_dense", forward(masked)}, {"sparse", forward(sparse)}},
        {rounds, 2, 1});
    const auto calls = static_cast<double>(calls_per_turn(device));
    const double ratio = timings[2].median_us / timings[0].median_us;
    std::printf("%s\n",
                fmt::format("ViT-B/16 forward, {} image(s), 90 % {}, order {}: {:.0f} ms, {:.2f} "
                            "of dense, {:.2f} of masked dense",
                            batch, pattern, order, timings[2].median_us / (1e3 * calls), ratio,
                            timings[2].median_us / timings[1].median_us)
                    .c_str());
    std::fflush(stdout);
    report.add({{"model", "vit_b_forward"},
                {"pattern", pattern},
                {"permutation", order},
                {"images", batch},
                {"sparse_us", timings[2].median_us / calls},
                {"masked_dense_us", timings[1].median_us / calls},
                {"dense_us", timings[0].median_us / calls},
                {"sparse_over_dense", ratio}});
  }
}

/// A training of the small ViT from images in memory.
struct Training {
  Recipe recipe;
  RankGrid grid;
  std::shared_ptr<const DataSource> source;
  OpenSplit images;
  Session session;

  Training(const c10::Device& device, const Overrides& overrides)
      : recipe(load("configs/padst/tiny_cifar10_vit_diagonal.yaml", overrides)),
        grid(grid_on(device)),
        source(make_source(recipe)),
        images{source, std::make_unique<StoredImages>(source->shape().image.value(),
                                                      source->shape().classes)},
        session(recipe, build_model(recipe, source->shape(), {&grid, grid.device}), images, grid) {}
};

void measure_step(const c10::Device& device, int64_t rounds, Report& report) {
  Training dense(device, {"sparsity=null"}),
      masked(device, {"sparsity.density=0.05", "sparsity.execution=masked_dense"}),
      sparse(device, {"sparsity.density=0.05", "sparsity.execution=sparse"});
  constexpr int64_t kSteps = 10;
  const auto steps = [&device](Training& training) {
    return [&training, &device] {
      for (int64_t i = 0; i < kSteps; ++i) training.session.step({});
      synchronise(device);
    };
  };
  const std::vector<Timing> timings = time_interleaved(
      {{"dense", steps(dense)}, {"masked_dense", steps(masked)}, {"sparse", steps(sparse)}},
      {rounds, 2, 1});
  const double ratio = timings[2].median_us / timings[0].median_us;
  std::printf("%s\n", fmt::format("step of the small ViT, 95 % diagonal: {:.1f} ms, {:.2f} of its "
                                  "dense baseline, {:.2f} of masked dense",
                                  timings[2].median_us / (1e3 * kSteps), ratio,
                                  timings[2].median_us / timings[1].median_us)
                          .c_str());
  report.add({{"model", "tiny_vit_step"},
              {"sparse_us", timings[2].median_us / kSteps},
              {"masked_dense_us", timings[1].median_us / kSteps},
              {"dense_us", timings[0].median_us / kSteps},
              {"sparse_over_dense", ratio}});
}

int run(int argc, char** argv) {
  Program program("sparse_model",
                  "The forward pass of a ViT-B/16 whose sparse layers are run by sparse kernels, "
                  "and a training step of the small ViT of configs/padst; beside masked dense and "
                  "dense ones.",
                  11);
  int64_t threads = 1;
  program.add("--threads", threads, "threads");
  std::string device_name = "cpu";
  program.add("--device", device_name, "cpu or cuda");
  std::vector<std::string> parts{"step", "forward"};
  program.add_choices("--parts", parts, "what to measure");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    const c10::Device device = use_device(device_name);
    report.note("device", device.str());
    const auto has = [&](const char* part) { return std::ranges::count(parts, part) > 0; };
    if (has("step")) measure_step(device, program.rounds(), report);
    if (!has("forward")) return;
    const torch::NoGradGuard no_grad;
    for (const char* order : {"none", "random"}) {
      measure_forward(device, "diagonal", order, program.rounds(), report);
    }
    measure_forward(device, "constant_fan_in", "random", program.rounds(), report);
    measure_forward(device, "block", "random", program.rounds(), report);
    // What `shoal fold` makes of layers with an order.
    measure_forward(device, "unstructured", "none", program.rounds(), report);
  });
}

const Benchmark kBenchmark("sparse_model", run);

}  // namespace
}  // namespace shoal::bench::sparse_model_bench
