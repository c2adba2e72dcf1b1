// What transfers between ranks cost the host of one GPU, and whether other work runs beside them.
#include <ATen/ops/mm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "parallel/comm/rank_grid.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal::bench::exchange_gpu_bench {
namespace {

constexpr int64_t kWidth = 4096, kCalls = 100, kWarmUpRounds = 3;

/// Returns the backend of the GPU, with NCCL's environment as in training.
std::shared_ptr<NcclBackend> training_backend(const c10::Device& device) {
  auto backend = nccl_backend(device);
  for (const auto& [name, value] : nccl_environment(false, nccl_version(backend->nccl))) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  return backend;
}

/// One rank whose groups move rows by NCCL: to itself, which is a copy on the stream of exchanges.
struct Job {
  explicit Job(const c10::Device& device)
      : gpu(device),
        backend(training_backend(device)),
        grid(make_rank_grid(make_self_communicator(), 1, 0,
                            make_nccl_communicator(make_self_communicator(), backend))),
        gradients(grid.replica->split(0, 0, Traffic::kGradients)) {}

  torch::Tensor rows(int64_t bytes) const {
    return normal({bytes / 2 / kWidth, kWidth}, 1,
                  torch::TensorOptions(gpu).dtype(torch::kBFloat16));
  }
  Pending exchange(const torch::Tensor& in, const torch::Tensor& out) const {
    return grid.expert->start_all_to_all(in, {in.size(0)}, out, {out.size(0)});
  }
  Pending sum(const torch::Tensor& in, const torch::Tensor& out) const {
    return gradients->start_reduce_scatter(in, out, {out.size(0)});
  }
  /// Waits for the current stream alone.
  void wait_for_stream() const {
    const c10::impl::VirtualGuardImpl streams(gpu.type());
    streams.synchronizeStream(streams.getStream(gpu));
  }

  c10::Device gpu;
  std::shared_ptr<NcclBackend> backend;
  RankGrid grid;
  std::unique_ptr<Communicator> gradients;
};

/// Prints and reports the medians, each over the first.
nlohmann::json row_of(const std::string& part, int64_t bytes, const std::vector<Timing>& timings) {
  nlohmann::json row{{"part", part}, {"bytes", bytes}};
  std::printf("%-16s %7.2f MB", part.c_str(), static_cast<double>(bytes) * 1e-6);
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    row[timing.name] = {{"us", timing.median_us}, {"over_first", ratio}};
    std::printf("  %s %.1f us, %.2f x", timing.name.c_str(), timing.median_us, ratio);
  }
  return row;
}

void finish(nlohmann::json row, Report& report) {
  std::printf("\n");
  std::fflush(stdout);
  report.add(std::move(row));
}

/// Microseconds of the host in a call that does not wait for the GPU.
TimedContender on_host(const std::string& name, const Job& job, std::function<void()> call) {
  return {name, [call = std::move(call), &job] {
            const double us = us_of([&] {
              for (int64_t i = 0; i < kCalls; ++i) call();
            });
            synchronise(job.gpu);
            return us / kCalls;
          }};
}

/// The host's time in collectives, beside that of a copy of as many bytes.
void measure_call(const Job& job, int64_t rounds, Report& report) {
  for (const int64_t bytes : {int64_t{64} << 10, int64_t{4} << 20}) {
    const torch::Tensor in = job.rows(bytes), out = torch::empty_like(in);
    const std::vector<Timing> timings =
        take_turns({on_host("copy", job, [&] { torch::Tensor(out).copy_(in); }),
                    on_host("all_to_all", job, [&] { job.exchange(in, out).wait(); }),
                    on_host("reduce_scatter", job, [&] { job.sum(in, out).wait(); })},
                   rounds, kWarmUpRounds);
    finish(row_of("call", bytes, timings), report);
  }
}

/// How much of an exchange of rows is hidden behind products of experts.
void measure_experts_beside(const Job& job, int64_t rounds, Report& report) {
  const int64_t bytes = int64_t{512} << 20;
  const torch::Tensor in = job.rows(bytes), out = torch::empty_like(in);
  const torch::Tensor rows = job.rows(int64_t{64} << 20), weight = job.rows(int64_t{96} << 20).t();
  const auto timed = [&](const std::string& name, std::function<void()> call) {
    return TimedContender{name,
                          [call = std::move(call), &job] { return us_of_calls(call, 5, job.gpu); }};
  };
  const auto experts = [&] { at::mm(rows, weight); };
  const auto both = [&] {
    Pending pending = job.exchange(in, out);
    experts();
    pending.wait();
  };
  const std::vector<Timing> timings =
      take_turns({timed("experts", experts),
                  timed("exchange", [&] { job.exchange(in, out).wait(); }), timed("both", both)},
                 rounds, kWarmUpRounds);
  nlohmann::json row = row_of("experts_beside", bytes, timings);
  const double products = timings[0].median_us, alone = timings[1].median_us;
  row["hidden"] = (products + alone - timings[2].median_us) / std::min(products, alone);
  std::printf("  %.0f %% hidden", 100 * row["hidden"].get<double>());
  finish(std::move(row), report);
}

/// How long a small exchange takes that is started right after sums of large gradients.
void measure_gradients_before(const Job& job, int64_t rounds, Report& report) {
  const int64_t bytes = int64_t{1} << 20;
  const torch::Tensor in = job.rows(bytes), out = torch::empty_like(in);
  const torch::Tensor gradients = job.rows(int64_t{1} << 30), sums = torch::empty_like(gradients);
  const auto exchange = [&] {
    job.exchange(in, out).wait();
    job.wait_for_stream();
  };
  const auto sum = [&] {
    job.sum(gradients, sums).wait();
    job.wait_for_stream();
  };
  const auto after_sums = [&] {
    Pending pending = job.sum(gradients, sums);
    const double us = us_of(exchange);
    pending.wait();
    synchronise(job.gpu);
    return us;
  };
  const std::vector<Timing> timings = take_turns({{"exchange", [&] { return us_of(exchange); }},
                                                  {"exchange_after_sums", after_sums},
                                                  {"sums", [&] { return us_of(sum); }}},
                                                 rounds, kWarmUpRounds);
  finish(row_of("gradients_before", bytes, timings), report);
}

const std::vector<std::pair<std::string, void (*)(const Job&, int64_t, Report&)>> kParts{
    {"call", measure_call},
    {"experts_beside", measure_experts_beside},
    {"gradients_before", measure_gradients_before}};

int run(int argc, char** argv) {
  Program program(
      "exchange_gpu",
      "Transfers by NCCL on one GPU, of one rank: what a collective costs the host, how "
      "much of an exchange experts hide, and whether an exchange waits for sums of "
      "gradients. bfloat16.",
      30);
  std::string part;
  program.add("--part", part, "call, experts_beside or gradients_before; all if left out");
  return program.run(argc, argv, [&](Report& report) {
    const c10::Device gpu = use_device("cuda");
    const torch::NoGradGuard no_grad;
    const Job job(gpu);
    bool is_known = false;
    for (const auto& [name, measure] : kParts) {
      if (!part.empty() && part != name) continue;
      is_known = true;
      measure(job, program.rounds(), report);
    }
    if (!is_known) throw std::invalid_argument("no part is called " + part);
  });
}

const Benchmark kBenchmark("exchange_gpu", run);

}  // namespace
}  // namespace shoal::bench::exchange_gpu_bench
