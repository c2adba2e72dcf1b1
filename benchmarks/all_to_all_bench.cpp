// all_to_all of tensors, as layers call it, against the raw library on the same bytes.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "benchmarks/support/program.h"
#include "parallel/comm/collectives.h"
#include "parallel/comm/communicator.h"
#include "runtime/device/tensor_memory.h"

namespace shoal::bench::all_to_all_bench {
namespace {

constexpr int64_t kWarmUpRounds = 5;
constexpr int64_t kRowFloats = 256;
// Bytes to each rank.
constexpr int64_t kSizes[] = {8, 128, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20};

/// Buffers and counts of one size, allocated once, as raw users of the library
/// have them.
struct RawBuffers {
  RawBuffers(int64_t bytes_to_each, int64_t size)
      : in(static_cast<size_t>(bytes_to_each * size), 1),
        out(in.size(), 0),
        counts(static_cast<size_t>(size), static_cast<int>(bytes_to_each)) {
    for (int64_t rank = 0; rank < size; ++rank) {
      displacements.push_back(static_cast<int>(rank * bytes_to_each));
    }
  }
  std::vector<char> in, out;
  std::vector<int> counts, displacements;
};

void raw_blocking(RawBuffers& b) {
  MPI_Alltoallv(b.in.data(), b.counts.data(), b.displacements.data(), MPI_BYTE, b.out.data(),
                b.counts.data(), b.displacements.data(), MPI_BYTE, MPI_COMM_WORLD);
}

void raw_nonblocking(RawBuffers& b) {
  MPI_Request request;
  MPI_Ialltoallv(b.in.data(), b.counts.data(), b.displacements.data(), MPI_BYTE, b.out.data(),
                 b.counts.data(), b.displacements.data(), MPI_BYTE, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Seconds of the slowest rank for `calls` calls that all ranks begin together.
double slowest_seconds(const Contender& contender, int64_t calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = seconds_of(contender.call, calls);
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

std::vector<Timing> time_on_all_ranks(const std::vector<Contender>& contenders, int64_t rounds,
                                      int64_t calls) {
  std::vector<TimedContender> timed;
  for (const Contender& contender : contenders) {
    timed.push_back({contender.name, [&contender, calls] {
                       return slowest_seconds(contender, calls) * 1e6 / static_cast<double>(calls);
                     }});
  }
  return take_turns(timed, rounds, kWarmUpRounds);
}

void measure(int64_t bytes_to_each, int64_t rounds, Communicator& world, Report& report) {
  const int64_t size = world.size();
  const int64_t row_floats = std::min<int64_t>(kRowFloats, bytes_to_each / 4);
  const RowCounts rows(static_cast<size_t>(size), bytes_to_each / 4 / row_floats);
  const torch::Tensor in = torch::ones({size * rows[0], row_floats});
  RawBuffers raw(bytes_to_each, size);
  std::vector<char> copied(raw.in.size());

  const std::vector<Contender> contenders = {
      {"all_to_all", [&] { all_to_all(in, rows, rows, world); }},
      {"MPI_Alltoallv", [&] { raw_blocking(raw); }},
      {"MPI_Ialltoallv", [&] { raw_nonblocking(raw); }},
      {"memcpy", [&] { std::memcpy(copied.data(), raw.in.data(), raw.in.size()); }}};
  const int64_t calls = std::clamp<int64_t>((1 << 20) / bytes_to_each, 1, 500);
  const std::vector<Timing> timings = time_on_all_ranks(contenders, rounds, calls);

  if (world.rank() != 0) return;
  nlohmann::json row = {{"bytes_to_each_rank", bytes_to_each}};
  for (const Timing& timing : timings) row[timing.name + "_us"] = timing.median_us;
  const double ratio = timings[0].median_us / timings[1].median_us;
  row["ratio_to_MPI_Alltoallv"] = ratio;
  row["ratio_to_memcpy"] = timings[0].median_us / timings[3].median_us;
  report.add(row);
  std::printf("%12ld %14.2f %14.2f %14.2f %12.2f %8.2f\n", static_cast<long>(bytes_to_each),
              timings[0].median_us, timings[1].median_us, timings[2].median_us,
              timings[3].median_us, ratio);
  std::fflush(stdout);
}

void run(int64_t rounds, Report& report) {
  const auto world = make_mpi_communicator();
  if (world->size() == 1) {
    throw std::invalid_argument("start it with `mpirun -np 2` or more: one rank exchanges nothing");
  }
  recycle_tensor_memory();  // as the trainer does; all_to_all returns a new tensor
  torch::NoGradGuard no_grad;
  report.note("ranks", world->size());
  if (world->rank() == 0) {
    std::printf("%ld ranks, medians in microseconds\n%12s %14s %14s %14s %12s %8s\n",
                static_cast<long>(world->size()), "bytes/rank", "all_to_all", "MPI_Alltoallv",
                "MPI_Ialltoallv", "memcpy", "ratio");
  }
  for (const int64_t bytes : kSizes) measure(bytes, rounds, *world, report);
}

int start(int argc, char** argv) {
  Program program(
      "all_to_all",
      "all_to_all against the raw library on the same bytes, under mpirun. Each rank sends as many "
      "bytes to each rank, itself included; a turn's time is that of its slowest rank.",
      41);
  return program.run(argc, argv, [&](auto& report) { run(program.rounds(), report); });
}

const Benchmark kBenchmark("all_to_all", start);

}  // namespace
}  // namespace shoal::bench::all_to_all_bench
