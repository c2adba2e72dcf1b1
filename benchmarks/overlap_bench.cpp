// How much of an exchange chunks hide behind the experts' work, under mpirun.
#include <ATen/Parallel.h>

#include <stdexcept>

#include "benchmarks/moe_layer_call.h"
#include "benchmarks/support/program.h"
#include "parallel/comm/collectives.h"
#include "runtime/device/tensor_memory.h"

namespace shoal::bench::overlap_bench {
namespace {

/// The rows that a layer exchanges in a forward and backward pass, and nothing else.
void exchange(const torch::Tensor& rows, const RowCounts& counts, Communicator& comm) {
  for (int i = 0; i < 4; ++i) all_to_all(rows, counts, counts, comm);
}

/// Below this share of the layer, what is hidden is not told from noise.
constexpr double kLeastShare = 0.05;

void measure(const MoeShape& shape, int64_t rounds, RankGrid& grid, Report& report) {
  std::vector<MoeLayerCall> layers;
  layers.reserve(kMostChunks);
  std::vector<Contender> contenders;
  for (int64_t chunks = 1; chunks <= kMostChunks; ++chunks) {
    layers.emplace_back(
        shape,
        fmt::format("router: {{name: forced, k: {}}}, exchange: {{chunks: {}, hierarchical: {}}}",
                    shape.k, chunks, grid.num_nodes() > 1),
        grid);
    contenders.push_back({fmt::format("chunks_{}", chunks), [&layer = layers.back(), &grid] {
                            layer.call();
                            grid.world->barrier();
                          }});
  }
  const int64_t size = grid.world->size();
  const RowCounts counts(static_cast<size_t>(size), shape.rows() / size / size);
  const torch::Tensor rows = normal({counts[0] * size, shape.width}, 7);
  contenders.push_back({"exchange", [&] {
                          const torch::NoGradGuard no_grad;
                          exchange(rows, counts, *grid.world);
                          grid.world->barrier();
                        }});
  const std::vector<Timing> timings = time_interleaved(contenders, {rounds, 2, 1});
  if (grid.world->rank() != 0) return;
  const double whole = timings[0].median_us, alone = timings.back().median_us;
  const double peer_bytes = static_cast<double>(counts[0] * shape.width) * sizeof(float);
  nlohmann::json row{{"shape", shape.id},
                     {"bytes_to_each_rank", peer_bytes},
                     {"experts_of_a_rank", shape.experts / size},
                     {"layer_us", whole},
                     {"exchange_over_layer", alone / whole}};
  std::printf("%-9s %6.2f MB to each rank, exchange %4.1f %% of the layer;", shape.id.c_str(),
              peer_bytes * 1e-6, 100 * alone / whole);
  for (int64_t chunks = 2; chunks <= kMostChunks; ++chunks) {
    const double us = timings[static_cast<size_t>(chunks - 1)].median_us;
    row[fmt::format("chunks_{}_over_1", chunks)] = us / whole;
    std::printf("  %ld chunks %.3f x", static_cast<long>(chunks), us / whole);
    if (alone < kLeastShare * whole) continue;
    row[fmt::format("hidden_by_{}", chunks)] = (whole - us) / alone;
    std::printf(" (%2.0f %% hidden)", 100 * (whole - us) / alone);
  }
  std::printf("\n");
  std::fflush(stdout);
  report.add(row);
}

int run(int argc, char** argv) {
  Program program(
      "overlap",
      "Under mpirun: a MoE layer whose rows go to the experts in one to four chunks, forward and "
      "backward, beside its exchanges alone; how much of these hides behind the experts' work, or "
      "what chunks cost where they take no time. One thread per rank.",
      15);
  std::string shape_id;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2");
  int64_t ranks_per_node = 0;
  program.add("--ranks-per-node", ranks_per_node,
              "nodes of so many ranks: rows go between nodes first, then inside them (two levels)");
  return program.run(argc, argv, [&](Report& report) {
    at::set_num_threads(1);
    recycle_tensor_memory();
    auto world = make_mpi_communicator();
    const int64_t size = world->size();
    if (size == 1) {
      throw std::invalid_argument("one rank exchanges nothing; start ranks: mpirun -np 2");
    }
    RankGrid grid = make_rank_grid(std::move(world), size, ranks_per_node);
    report.note("ranks", size);
    report.note("nodes", grid.num_nodes());
    report.note("dtype", "float32");
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), grid, report);
    }
  });
}

const Benchmark kBenchmark("overlap", run);

}  // namespace
}  // namespace shoal::bench::overlap_bench
