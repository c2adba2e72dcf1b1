// Experts of a MoE layer against one dense MLP of equal FLOPs, forward and backward.
#include <fmt/format.h>

#include <memory>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "moe/experts/expert_mlp.h"

// R rows  D width  H hidden width  E experts
namespace shoal::bench::expert_bank_bench {
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

void measure(const MoeShape& shape, int64_t rounds, PeerProcess* peer, Report& report) {
  Problem problem(shape);
  std::vector<TimedContender> contenders = {
      {"experts", [&] { return us_of([&] { problem.experts(); }); }},
      {"dense", [&] { return us_of([&] { problem.dense(); }); }}};
  if (peer != nullptr) {
    peer->ask({{"rows", problem.rows_u()}, {"width", shape.width}, {"hidden", shape.hidden}});
    for (const char* form : {"dense", "unbind", "indexing", "grouped_mm"}) {
      contenders.push_back(
          {fmt::format("python_{}", form), [peer, form] { return peer->ask(form).get<double>(); }});
    }
  }
  const std::vector<Timing> timings = take_turns(contenders, rounds, 2);
  const double yardstick_us = timings[peer == nullptr ? 1 : 2].median_us;
  std::printf("%-9s %5.1f GFLOP/s; over one dense MLP of %s:", shape.id.c_str(),
              shape.flop() / timings[0].median_us * 1e-3, peer == nullptr ? "LibTorch" : "Python");
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / yardstick_us;
    std::printf("  %s %.3f", timing.name.c_str(), ratio);
    report.add({{"shape", shape.id},
                {"contender", timing.name},
                {"median_us", timing.median_us},
                {"min_us", timing.min_us},
                {"over_dense", ratio}});
  }
  std::printf("\n");
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Program program(
      "expert_bank",
      "Experts of a MoE layer against one dense MLP of equal FLOPs, here and in Python; "
      "forward and backward.",
      15);
  std::string shape_id, python = "python3";
  int64_t threads = 1;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2");
  program.add("--python", python, "an interpreter that has PyTorch 2.11");
  program.add("--threads", threads, "threads of both");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    const std::unique_ptr<PeerProcess> peer = PeerProcess::start(python, "expert_bank.py");
    if (peer != nullptr) peer->ask({{"threads", threads}});
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), peer.get(), report);
    }
  });
}

const Benchmark kBenchmark("expert_bank", run);

}  // namespace
}  // namespace shoal::bench::expert_bank_bench
