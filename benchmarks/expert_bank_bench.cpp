// Experts of a MoE layer against one dense MLP of equal FLOPs, forward and backward, one thread.
//
//   expert_bank_bench [--json FILE] [--rounds N] [--shape ID]
//   expert_bank_bench --serve     times one call per line of standard input, for
//   peers/expert_bank.py
#include <ATen/Parallel.h>

#include <iostream>
#include <map>

#include "benchmarks/bench.h"
#include "benchmarks/moe_shapes.h"
#include "moe/expert_mlp.h"
#include "runtime/tensor_memory.h"

// R rows  D width  H hidden width  E experts
namespace shoal::bench {
namespace {

/// Everything a contender touches, allocated once.
class Problem {
 public:
  explicit Problem(const MoeShape& shape)
      : rows_u_(random_rows(shape)),
        x_(normal({shape.rows(), shape.width}, 1)),
        upstream_(normal({shape.rows(), shape.width}, 2)) {
    const double in = 1.0 / std::sqrt(static_cast<double>(shape.width));
    const double out = 1.0 / std::sqrt(static_cast<double>(shape.hidden));
    experts_ = {normal({shape.experts, shape.width, shape.hidden}, 3).mul_(in),
                normal({shape.experts, shape.hidden}, 4),
                normal({shape.experts, shape.hidden, shape.width}, 5).mul_(out),
                normal({shape.experts, shape.width}, 6)};
    dense_ = {experts_.fc1_weight[0].clone(), experts_.fc1_bias[0].clone(),
              experts_.fc2_weight[0].clone(), experts_.fc2_bias[0].clone()};
    for (ExpertWeights* weights : {&experts_, &dense_}) {
      for (torch::Tensor* tensor : tensors(*weights)) tensor->set_requires_grad(true);
    }
    x_.set_requires_grad(true);
  }

  const std::vector<int64_t>& rows_u() const { return rows_u_; }

  void experts() {
    expert_mlp(x_, rows_u_, experts_, Activation::kGelu).backward(upstream_);
    clear(experts_);
  }

  void dense() {
    const torch::Tensor hidden = torch::gelu(torch::addmm(dense_.fc1_bias, x_, dense_.fc1_weight));
    torch::addmm(dense_.fc2_bias, hidden, dense_.fc2_weight).backward(upstream_);
    clear(dense_);
  }

 private:
  static std::vector<torch::Tensor*> tensors(ExpertWeights& weights) {
    return {&weights.fc1_weight, &weights.fc1_bias, &weights.fc2_weight, &weights.fc2_bias};
  }
  void clear(ExpertWeights& weights) {
    for (torch::Tensor* tensor : tensors(weights)) tensor->mutable_grad().reset();
    x_.mutable_grad().reset();
  }

  std::vector<int64_t> rows_u_;
  torch::Tensor x_, upstream_;
  ExpertWeights experts_, dense_;
};

void measure(const MoeShape& shape, int64_t rounds, Report& report) {
  Problem problem(shape);
  const std::vector<Timing> timings = time_interleaved(
      {{"experts", [&] { problem.experts(); }}, {"dense", [&] { problem.dense(); }}},
      {rounds, 2, 1});
  const double ratio = timings[0].median_us / timings[1].median_us;
  const double rate = shape.flop() / timings[0].median_us * 1e-3;
  std::printf("%-9s experts %8.1f ms  dense %8.1f ms  ratio %.3f  %.1f GFLOP/s\n", shape.id.c_str(),
              timings[0].median_us * 1e-3, timings[1].median_us * 1e-3, ratio, rate);
  report.add({{"shape", shape.id},
              {"experts_us", timings[0].median_us},
              {"dense_us", timings[1].median_us},
              {"experts_min_us", timings[0].min_us},
              {"dense_min_us", timings[1].min_us},
              {"ratio", ratio},
              {"experts_gflops", rate},
              {"rows_per_expert", problem.rows_u()}});
}

/// Lines in: `rows SHAPE` or `experts SHAPE` or `dense SHAPE`. Lines out: JSON.
void serve() {
  std::map<std::string, std::unique_ptr<Problem>> problems;
  std::string what, id;
  while (std::cin >> what >> id) {
    for (const MoeShape& shape : moe_shapes()) {
      if (shape.id != id) continue;
      auto& problem = problems[id];
      if (!problem) problem = std::make_unique<Problem>(shape);
      nlohmann::json answer;
      if (what == "rows") {
        answer = {{"rows", problem->rows_u()}, {"width", shape.width}, {"hidden", shape.hidden}};
      } else {
        answer = {
            {"us", 1e6 * seconds_of(
                             [&] { what == "dense" ? problem->dense() : problem->experts(); }, 1)}};
      }
      std::cout << answer.dump() << std::endl;
    }
    if (what == "drop") problems.erase(id);
  }
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i < argc; ++i) flags[argv[i]] = i + 1 < argc ? argv[i + 1] : "";
  at::set_num_threads(1);
  recycle_tensor_memory();
  if (flags.count("--serve") > 0) {
    serve();
    return 0;
  }
  Report report("expert_bank", argc, argv);
  report.note("threads", 1);
  report.note("dtype", "float32");
  const int64_t rounds = flags.count("--rounds") > 0 ? std::stoll(flags["--rounds"]) : 15;
  for (const MoeShape& shape : moe_shapes()) {
    if (flags.count("--shape") > 0 && flags["--shape"] != shape.id) continue;
    measure(shape, rounds, report);
  }
  report.write(flags.count("--json") > 0 ? flags["--json"] : "");
  return 0;
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) { return shoal::bench::run(argc, argv); }
