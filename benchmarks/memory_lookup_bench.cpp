// The fused lookup of memory units against topk + embedding_bag, forward and backward.
#include <ATen/ops/bmm.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/topk.h>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "moe/nexus/kernels/memory_lookup.h"

// u units  R rows of a unit  K keys  D width  k keys chosen per row
namespace shoal::bench::memory_lookup_bench {
namespace {

/// 64 images with 16 slots a unit, as in a Nexus layer of width 384.
struct MemoryShape {
  std::string id;
  int64_t units, keys;
  int64_t rows = 1024, width = 384, k = 4;
};

class Problem {
 public:
  explicit Problem(const MemoryShape& shape)
      : shape_(shape), rows_u_(static_cast<size_t>(shape.units), shape.rows) {
    const double scale = 1 / std::sqrt(static_cast<double>(shape.width));
    query_ = normal({shape.units * shape.rows, shape.width}, 1);
    tables_.keys = normal({shape.units, shape.keys, shape.width}, 2).mul_(scale);
    tables_.values = normal({shape.units, shape.keys, shape.width}, 3).mul_(scale);
    for (torch::Tensor tensor : {query_, tables_.keys, tables_.values}) {
      tensor.set_requires_grad(true);
    }
    upstream_ = normal(query_.sizes(), 4);
  }

  torch::Tensor fused() const { return memory_lookup(query_, rows_u_, tables_, shape_.k); }

  /// What the paper's pseudo-code does, in C++.
  torch::Tensor separate() const {
    const auto& [id, u, K, R, D, k] = shape_;
    const torch::Tensor score_uRK = at::bmm(query_.view({u, R, D}), tables_.keys.transpose(1, 2));
    const auto [score, key] = at::topk(score_uRK, k, -1);
    const torch::Tensor index = key + (torch::arange(u) * K).view({u, 1, 1});
    const torch::Tensor bag_begins = torch::arange(0, u * R * k, k);
    return std::get<0>(at::embedding_bag(tables_.values.view({u * K, D}), index.flatten(),
                                         bag_begins, false, 0, false, score.softmax(-1).flatten()));
  }

  void step(const torch::Tensor& y) {
    y.backward(upstream_);
    for (torch::Tensor tensor : {query_, tables_.keys, tables_.values}) {
      tensor.mutable_grad().reset();
    }
  }

 private:
  MemoryShape shape_;
  std::vector<int64_t> rows_u_;
  torch::Tensor query_, upstream_;
  MemoryTables tables_;
};

void measure(const MemoryShape& shape, int64_t rounds, Report& report) {
  Problem problem(shape);
  const double apart = (problem.fused() - problem.separate()).abs().max().item<double>();
  if (!(apart < 1e-4)) throw std::runtime_error(shape.id + ": the contenders do not agree");
  const std::vector<Timing> timings =
      time_interleaved({{"fused_forward", [&] { problem.fused(); }},
                        {"separate_forward", [&] { problem.separate(); }},
                        {"fused", [&] { problem.step(problem.fused()); }},
                        {"separate", [&] { problem.step(problem.separate()); }}},
                       {rounds, 2, 1});
  const double forward = timings[1].median_us / timings[0].median_us;
  const double both = timings[3].median_us / timings[2].median_us;
  std::printf("%-4s keys %8.1f ms; topk + embedding_bag take %.2f x as long (forward %.2f x)\n",
              shape.id.c_str(), timings[2].median_us * 1e-3, both, forward);
  std::fflush(stdout);
  report.add({{"keys", shape.keys},
              {"units", shape.units},
              {"fused_us", timings[2].median_us},
              {"separate_us", timings[3].median_us},
              {"separate_over_fused", both},
              {"separate_over_fused_forward", forward}});
}

int run(int argc, char** argv) {
  Program program("memory_lookup",
                  "Key-value lookup of memory units, fused, against topk + embedding_bag of "
                  "LibTorch; forward and backward.",
                  9);
  int64_t threads = 1;
  program.add("--threads", threads, "threads");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    report.note("width", MemoryShape{}.width);
    report.note("rows_per_unit", MemoryShape{}.rows);
    report.note("k", MemoryShape{}.k);
    for (const MemoryShape& shape : {MemoryShape{"1k", 8, 1024}, MemoryShape{"16k", 2, 16384}}) {
      measure(shape, program.rounds(), report);
    }
  });
}

const Benchmark kBenchmark("memory_lookup", run);

}  // namespace
}  // namespace shoal::bench::memory_lookup_bench
