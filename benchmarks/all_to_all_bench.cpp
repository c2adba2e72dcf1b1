#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "benchmarks/bench.h"
#include "parallel/collectives.h"
#include "parallel/communicator.h"
#include "runtime/tensor_memory.h"

/// all_to_all of tensors, as layers call it, against the raw library on the
/// same bytes.
///
/// `mpirun -np 2 all_to_all_bench [RESULT.json]`. Each rank sends as many bytes
/// to each rank, itself included. A round's time is that of its slowest rank.
namespace shoal::bench {
namespace {

constexpr int64_t kRounds = 41;
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

std::vector<Timing> time_on_all_ranks(const std::vector<Contender>& contenders, int64_t calls) {
  std::vector<std::vector<double>> round_us(contenders.size());
  for (int64_t round = -kWarmUpRounds; round < kRounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const double seconds = slowest_seconds(contenders[i], calls);
      if (round >= 0) round_us[i].push_back(seconds * 1e6 / static_cast<double>(calls));
    }
  }
  std::vector<Timing> timings;
  for (size_t i = 0; i < contenders.size(); ++i) {
    timings.push_back(summarise(contenders[i].name, round_us[i]));
  }
  return timings;
}

void measure(int64_t bytes_to_each, Communicator& world, Report& report) {
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
  const std::vector<Timing> timings = time_on_all_ranks(contenders, calls);

  nlohmann::json row = {{"bytes_to_each_rank", bytes_to_each}};
  for (const Timing& timing : timings) row[timing.name + "_us"] = timing.median_us;
  const double ratio = timings[0].median_us / timings[1].median_us;
  row["ratio_to_MPI_Alltoallv"] = ratio;
  row["ratio_to_memcpy"] = timings[0].median_us / timings[3].median_us;
  report.add(row);
  if (world.rank() != 0) return;
  std::printf("%12ld %14.2f %14.2f %14.2f %12.2f %8.2f\n", static_cast<long>(bytes_to_each),
              timings[0].median_us, timings[1].median_us, timings[2].median_us,
              timings[3].median_us, ratio);
  std::fflush(stdout);
}

void run(int argc, char** argv) {
  const auto world = make_mpi_communicator();
  if (world->size() == 1) {
    throw std::invalid_argument("start it with `mpirun -np 2` or more: one rank exchanges nothing");
  }
  recycle_tensor_memory();  // as the trainer does; all_to_all returns a new tensor
  torch::NoGradGuard no_grad;
  Report report("all_to_all", argc, argv);
  report.note("ranks", world->size());
  report.note("rounds", kRounds);
  if (world->rank() == 0) {
    std::printf(
        "%ld ranks, medians of %ld rounds in microseconds\n%12s %14s "
        "%14s %14s %12s %8s\n",
        static_cast<long>(world->size()), static_cast<long>(kRounds), "bytes/rank", "all_to_all",
        "MPI_Alltoallv", "MPI_Ialltoallv", "memcpy", "ratio");
  }
  for (const int64_t bytes : kSizes) measure(bytes, *world, report);
  if (world->rank() == 0) report.write(argc > 1 ? argv[1] : "");
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  try {
    shoal::bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "all_to_all_bench: %s\n", error.what());
    return 1;
  }
}
