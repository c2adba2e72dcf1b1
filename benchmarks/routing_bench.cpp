// What routing and capacity cost of a MoE layer, alone or spread over the ranks of mpirun.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>

#include "benchmarks/moe_layer_call.h"
#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/device/tensor_memory.h"

namespace shoal::bench::routing_bench {
namespace {

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

void measure(const MoeShape& shape, int64_t rounds, RankGrid& grid, Report& report) {
  std::vector<MoeLayerCall> layers;
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
                  "forward and backward, one thread per rank; under mpirun its experts are spread "
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

const Benchmark kBenchmark("routing", run);

}  // namespace
}  // namespace shoal::bench::routing_bench
