#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "benchmarks/support/program.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/lamb.h"
#include "runtime/random/random.h"

// Optimizer steps against the time that copying their memory traffic would take: AdamW moves 28
// bytes a parameter, LAMB 40 (two passes), a square sum 4. Also AdamW tensor by tensor in plain
// operations, which is what fused kernels are to beat.
namespace shoal::bench::optimizer_bench {
namespace {

struct Case {
  std::string name;
  int64_t matrices, rows, columns, vectors;
};

std::vector<Parameter> make_parameters(const Case& which) {
  std::vector<Parameter> parameters;
  const auto add = [&](at::IntArrayRef sizes) {
    const auto layer = static_cast<uint64_t>(parameters.size());
    torch::Tensor weight = torch::empty(sizes);
    fill_normal(weight, {.seed = 1, .layer = layer});
    weight.requires_grad_();
    weight.mutable_grad() = torch::empty(sizes);
    fill_normal(weight.grad(), {.seed = 2, .layer = layer});
    parameters.push_back({fmt::format("p{}", layer), weight, 0, {}, {}});
  };
  for (int64_t i = 0; i < which.matrices; ++i) add({which.rows, which.columns});
  for (int64_t i = 0; i < which.vectors; ++i) add({which.columns});
  return parameters;
}

/// AdamW as a loop over tensors.
class PlainAdamW {
 public:
  explicit PlainAdamW(const std::vector<Parameter>& parameters) : parameters_(parameters) {
    for (const Parameter& p : parameters) {
      m_.push_back(torch::zeros_like(p.tensor));
      v_.push_back(torch::zeros_like(p.tensor));
    }
  }
  void step(double lr) {
    torch::NoGradGuard no_grad;
    ++count_;
    const double correction2 = std::sqrt(1 - std::pow(0.999, count_));
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& w = parameters_[i].tensor;
      const torch::Tensor g = w.grad();
      w.mul_(1 - lr * 0.1);
      m_[i].mul_(0.9).add_(g, 0.1);
      v_[i].mul_(0.999).addcmul_(g, g, 0.001);
      const torch::Tensor root = (v_[i].sqrt() / correction2).add_(1e-8);
      w.addcdiv_(m_[i], root, -lr / (1 - std::pow(0.9, count_)));
    }
  }

 private:
  const std::vector<Parameter>& parameters_;
  std::vector<torch::Tensor> m_, v_;
  int64_t count_ = 0;
};

void run(const Case& which, int64_t rounds, Report& report) {
  const std::vector<Parameter> parameters = make_parameters(which);
  int64_t elements = 0;
  for (const Parameter& p : parameters) elements += p.tensor.numel();
  AdamW::Options adam;
  adam.weight_decay = 0.1;
  Lamb::Options lamb_options;
  lamb_options.weight_decay = 0.1;
  AdamW adamw(adam, parameters);
  Lamb lamb(lamb_options, parameters);
  PlainAdamW plain(parameters);
  const torch::Tensor from = torch::ones({elements});
  const torch::Tensor to = torch::zeros({elements});
  const std::vector<Timing> timings =
      time_interleaved({{"copy", [&] { to.copy_(from); }},
                        {"adamw", [&] { adamw.step(1e-5); }},
                        {"lamb", [&] { lamb.step(1e-5); }},
                        {"adamw_plain", [&] { plain.step(1e-5); }},
                        {"square_sums", [&] { square_sums(parameters); }}},
                       {.rounds = rounds, .warm_up_rounds = 2});
  const double us_a_byte = timings[0].min_us / (8.0 * static_cast<double>(elements));
  const double bytes[] = {8, 28, 40, 28, 4};
  for (size_t i = 0; i < timings.size(); ++i) {
    const double floor_us = us_a_byte * bytes[i] * static_cast<double>(elements);
    std::printf("%-6s %-12s %10.0f us  min %10.0f us  %5.2f of its floor\n", which.name.c_str(),
                timings[i].name.c_str(), timings[i].median_us, timings[i].min_us,
                timings[i].min_us / floor_us);
    report.add({{"case", which.name},
                {"parameters", elements},
                {"contender", timings[i].name},
                {"median_us", timings[i].median_us},
                {"min_us", timings[i].min_us},
                {"min_to_floor", timings[i].min_us / floor_us}});
  }
}

int start(int argc, char** argv) {
  Program program("optimizer", "Optimizer steps beside the time that their memory traffic takes.",
                  15);
  return program.run(argc, argv, [&](Report& report) {
    report.note("threads", at::get_num_threads());
    run({"tiny", 24, 96, 192, 40}, program.rounds(), report);
    run({"16M", 64, 512, 512, 200}, program.rounds(), report);
  });
}

const Benchmark kBenchmark("optimizer", start);

}  // namespace
}  // namespace shoal::bench::optimizer_bench
