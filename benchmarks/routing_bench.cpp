// What routing and capacity cost of a MoE layer, alone or spread over the ranks of mpirun.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "moe/moe_layer.h"
#include "parallel/rank_grid.h"
#include "runtime/config_reader.h"
#include "runtime/tensor_memory.h"

// T tokens  D width
namespace shoal::bench {
namespace {

constexpr int64_t kTokensPerSample = 64;

struct Variant {
  const char* name;
  const char* keys;  ///< router and capacity, with {} for k
};

const std::vector<Variant> kVariants{
    {"dropless", "router: {{name: top_k, k: {}}}"},
    {"padded_1.25", "router: {{name: top_k, k: {}}}, capacity: {{mode: padded, factor: 1.25}}"},
    {"padded_2", "router: {{name: top_k, k: {}}}, capacity: {{mode: padded, factor: 2}}"},
    {"forced_balanced", "router: {{name: forced, k: {}}}"},
    {"forced_zipf", "router: {{name: forced, k: {}, load: zipf}}"}};

/// One layer, forward and backward on this rank's share of the tokens.
class Layer {
 public:
  Layer(const MoeShape& shape, const std::string& keys, RankGrid& grid) {
    const std::string text = fmt::format("{{{}, experts: {{count: {}, hidden: {}}}}}", keys,
                                         shape.experts, shape.hidden);
    const auto options = config::load_options_text<MoeOptions>(text, "layer").options;
    layer_ = std::make_shared<MoeLayer>(options, shape.width, "layer",
                                        BuildContext{&grid, torch::kFloat32});
    initialise(parameters_of(*layer_, "layer"), 1);
    const int64_t samples = shape.tokens / kTokensPerSample / grid.world->size();
    step_.training = true;
    step_.sample_b = torch::arange(samples) + samples * grid.world->rank();
    step_.samples_in_step = step_.samples_in_micro = samples * grid.world->size();
    const auto seed = static_cast<uint64_t>(2 * grid.world->rank());
    x_ = normal({samples, kTokensPerSample, shape.width}, seed).set_requires_grad(true);
    upstream_ = normal(x_.sizes(), seed + 1);
  }

  void call() {
    layer_->forward(x_, step_).y_BRD.backward(upstream_);
    for (torch::Tensor parameter : layer_->parameters()) parameter.mutable_grad().reset();
    x_.mutable_grad().reset();
  }

 private:
  std::shared_ptr<MoeLayer> layer_;
  StepContext step_;
  torch::Tensor x_, upstream_;
};

void measure(const MoeShape& shape, int64_t rounds, RankGrid& grid, Report& report) {
  std::vector<Layer> layers;
  std::vector<Contender> contenders;
  layers.reserve(kVariants.size());
  for (const Variant& variant : kVariants) {
    layers.emplace_back(shape, fmt::format(fmt::runtime(variant.keys), shape.k), grid);
    contenders.push_back({variant.name, [&layer = layers.back(), &grid] {
                            layer.call();
                            grid.world->barrier();
                          }});
  }
  const std::vector<Timing> timings = time_interleaved(contenders, {rounds, 2, 1});
  if (grid.world->rank() != 0) return;
  nlohmann::json row{{"shape", shape.id}, {"dropless_us", timings[0].median_us}};
  std::printf("%-9s dropless %8.1f ms", shape.id.c_str(), timings[0].median_us * 1e-3);
  for (size_t i = 1; i < timings.size(); ++i) {
    const double ratio = timings[i].median_us / timings[0].median_us;
    row[timings[i].name + "_over_dropless"] = ratio;
    std::printf("  %s %.2f x", timings[i].name.c_str(), ratio);
  }
  std::printf("\n");
  std::fflush(stdout);
  report.add(row);
}

int run(int argc, char** argv) {
  Program program("routing",
                  "A MoE layer that drops nothing beside padded ones and beside forced loads, "
                  "forward and backward, one thread a rank; under mpirun its experts are spread "
                  "over the ranks.",
                  15);
  std::string shape_id;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2");
  return program.run(argc, argv, [&](Report& report) {
    at::set_num_threads(1);
    recycle_tensor_memory();
    const bool has_ranks = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    auto world = has_ranks ? make_mpi_communicator() : make_self_communicator();
    const int64_t size = world->size();
    RankGrid grid = make_rank_grid(std::move(world), size);
    report.note("ranks", size);
    report.note("dtype", "float32");
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), grid, report);
    }
  });
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) { return shoal::bench::run(argc, argv); }
