// How much of an exchange chunks hide behind the experts' work, under mpirun.
#include <ATen/Parallel.h>

#include <array>
#include <cstdlib>
#include <functional>

#include "benchmarks/moe_layer_call.h"
#include "benchmarks/support/program.h"
#include "parallel/collectives.h"
#include "runtime/tensor_memory.h"

namespace shoal::bench {
namespace {

/// What a layer exchanges in a forward and backward pass, and nothing else.
void exchange(const torch::Tensor& rows, const RowCounts& counts, Communicator& comm) {
  for (int i = 0; i < 4; ++i) all_to_all(rows, counts, counts, comm);
}

void measure(const MoeShape& shape, int64_t rounds, RankGrid& grid, Report& report) {
  std::vector<MoeLayerCall> layers;
  layers.reserve(kMostChunks);
  std::vector<Contender> contenders;
  for (int64_t chunks = 1; chunks <= kMostChunks; ++chunks) {
    layers.emplace_back(
        shape,
        fmt::format("router: {{name: forced, k: {}}}, exchange: {{chunks: {}}}", shape.k, chunks),
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
                     {"exchange_over_layer", alone / whole}};
  std::printf("%-9s %6.2f MB to each rank, exchange %4.1f %% of the layer;", shape.id.c_str(),
              peer_bytes * 1e-6, 100 * alone / whole);
  for (int64_t chunks = 2; chunks <= kMostChunks; ++chunks) {
    const double us = timings[static_cast<size_t>(chunks - 1)].median_us;
    row[fmt::format("chunks_{}_over_1", chunks)] = us / whole;
    std::printf("  %ld chunks %.3f x", static_cast<long>(chunks), us / whole);
  }
  std::printf("\n");
  std::fflush(stdout);
  report.add(row);
}

/// What a layer of two chunks does with its rows, and no more: they travel, are worked on, and
/// travel back.
class TwoChunks {
 public:
  TwoChunks(int64_t bytes_to_each, Communicator& comm)
      : comm_(comm),
        counts_(static_cast<size_t>(comm.size()), bytes_to_each / 2 / (kWidth * kFloatBytes)),
        weight_(normal({kWidth, kHidden}, 1)) {
    for (torch::Tensor& rows : rows_C) rows = normal({counts_[0] * comm.size(), kWidth}, 2);
  }

  void travel() {
    for (const torch::Tensor& rows : rows_C) all_to_all(rows, counts_, counts_, comm_);
  }
  void work(size_t chunk) {
    const torch::Tensor hidden = torch::mm(rows_C[chunk], weight_);
    torch::mm_out(rows_C[chunk], hidden, weight_.t());
    rows_C[chunk].mul_(1.0 / (kWidth * kHidden));
  }
  void one_after_another() {
    travel();
    for (size_t chunk = 0; chunk < rows_C.size(); ++chunk) work(chunk);
    travel();
  }
  void overlapped() {
    std::array<torch::Tensor, 2> out_C, back_C;
    std::array<Pending, 2> out, back;
    for (size_t c = 0; c < rows_C.size(); ++c) out[c] = start(rows_C[c], out_C[c]);
    for (size_t c = 0; c < rows_C.size(); ++c) {
      out[c].wait();
      work(c);
      back[c] = start(rows_C[c], back_C[c]);
    }
    for (Pending& pending : back) pending.wait();
  }

 private:
  static constexpr int64_t kWidth = 384, kHidden = 768, kFloatBytes = sizeof(float);

  Pending start(const torch::Tensor& rows, torch::Tensor& received) {
    received = torch::empty_like(rows);
    return comm_.start_all_to_all(rows, counts_, received, counts_);
  }

  Communicator& comm_;
  RowCounts counts_;
  torch::Tensor weight_;
  std::array<torch::Tensor, 2> rows_C;
};

/// The share of the exchange's time that is gone where chunks overlap.
void measure_hidden(int64_t bytes_to_each, int64_t rounds, Communicator& world, Report& report) {
  const torch::NoGradGuard no_grad;
  TwoChunks chunks(bytes_to_each, world);
  const auto together = [&](const std::function<void()>& call) {
    return [&world, call] {
      world.barrier();
      call();
      world.barrier();
    };
  };
  const std::vector<Timing> timings =
      time_interleaved({{"one_after_another", together([&] { chunks.one_after_another(); })},
                        {"overlapped", together([&] { chunks.overlapped(); })},
                        {"exchange", together([&] {
                           chunks.travel();
                           chunks.travel();
                         })}},
                       {3 * rounds, 3, 1});
  if (world.rank() != 0) return;
  const double alone = timings[2].median_us, serial = timings[0].median_us;
  const double hidden = (serial - timings[1].median_us) / alone;
  std::printf(
      "two chunks of together %5.1f MB to each rank: exchange %4.1f %% of the whole, %3.0f %% "
      "of it hidden\n",
      static_cast<double>(bytes_to_each) * 1e-6, 100 * alone / serial, 100 * hidden);
  std::fflush(stdout);
  report.add({{"bytes_to_each_rank", bytes_to_each},
              {"exchange_over_whole", alone / serial},
              {"hidden", hidden}});
}

int run(int argc, char** argv) {
  Program program(
      "overlap",
      "Under mpirun: how much of an exchange hides behind the work on another chunk. "
      "Then a MoE layer whose tokens go to the experts in one to four chunks, forward "
      "and backward, beside its exchanges alone; without mpirun that shows what cutting "
      "costs where there is nothing to hide. One thread a rank.",
      15);
  std::string shape_id;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2; none: no layer");
  return program.run(argc, argv, [&](Report& report) {
    at::set_num_threads(1);
    recycle_tensor_memory();
    const bool has_ranks = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    auto world = has_ranks ? make_mpi_communicator() : make_self_communicator();
    const int64_t size = world->size();
    RankGrid grid = make_rank_grid(std::move(world), size);
    report.note("ranks", size);
    report.note("dtype", "float32");
    if (size > 1) {
      for (const int64_t megabytes : {2, 4, 16}) {
        measure_hidden(megabytes << 20, program.rounds(), *grid.world, report);
      }
    }
    if (shape_id == "none") return;
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), grid, report);
    }
  });
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) { return shoal::bench::run(argc, argv); }
