// The kernels of norms and token mixing beside the same layers composed of LibTorch's operators.
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "models/kernels/token_linear.h"
#include "models/kernels/transpose_add.h"

// B images  S tokens  C width
namespace shoal::bench::mixer_bench {
namespace {

struct MixerShape {
  std::string id;
  int64_t images, tokens, width, token_hidden;
};

const std::vector<MixerShape>& mixer_shapes() {
  static const std::vector<MixerShape> shapes{
      {"tiny", 64, 64, 96, 64}, {"tiny_2ranks", 32, 64, 96, 64}, {"s16", 8, 196, 512, 256}};
  return shapes;
}

using Tensors = std::vector<torch::Tensor>;

/// One layer in the ways that contend; the first way is ours.
struct Layer {
  std::string name;
  Tensors inputs;
  std::vector<std::pair<std::string, std::function<torch::Tensor()>>> ways;
};

torch::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, double scale = 1.0) {
  return normal(sizes, seed).mul_(scale).set_requires_grad(true);
}

Mlp filled_mlp(int64_t width, int64_t hidden) {
  Mlp mlp(width, hidden, Gelu::kErf, torch::TensorOptions());
  uint64_t seed = 20;
  for (torch::Tensor parameter : mlp->parameters()) {
    parameter.detach().copy_(normal(parameter.sizes(), seed++).mul_(0.05));
  }
  return mlp;
}

LayerNorm filled_norm(int64_t width) {
  LayerNorm norm(width, torch::TensorOptions());
  norm->weight.detach().copy_(normal({width}, 10).mul_(0.1).add_(1.0));
  norm->bias.detach().copy_(normal({width}, 11).mul_(0.1));
  return norm;
}

torch::Tensor libtorch_norm(const torch::Tensor& x, const LayerNorm& norm) {
  return at::layer_norm(x, {x.size(-1)}, norm->weight, norm->bias, kLayerNormEps);
}

std::vector<Layer> layers(const MixerShape& shape) {
  const int64_t B = shape.images, S = shape.tokens, C = shape.width;
  const torch::Tensor x = leaf({B, S, C}, 1), y = leaf({B, C, S}, 2);
  const torch::Tensor weight = leaf({2 * S, S}, 3, 0.1), bias = leaf({2 * S}, 4, 0.1);
  const LayerNorm norm = filled_norm(C);
  const Mlp mlp = filled_mlp(S, shape.token_hidden);
  Tensors block{x, norm->weight, norm->bias};
  for (const torch::Tensor& parameter : mlp->parameters()) block.push_back(parameter);
  return {{"token_mixing",
           block,
           {{"ours", [=] { return x + mlp->forward_over_tokens(norm->forward(x)); }},
            {"libtorch",
             [=] {
               const torch::Tensor n = libtorch_norm(x, norm).transpose(1, 2).contiguous();
               return x + mlp->forward(n).transpose(1, 2);
             }}}},
          {"layer_norm",
           {x, norm->weight, norm->bias},
           {{"ours", [=] { return norm->forward(x); }},
            {"libtorch", [=] { return libtorch_norm(x, norm); }}}},
          {"layer_norm_transposed",
           {x, norm->weight, norm->bias},
           {{"ours", [=] { return norm->branch_transposed(x).normed; }},
            {"libtorch", [=] { return libtorch_norm(x, norm).transpose(1, 2).contiguous(); }}}},
          {"token_linear",
           {x, weight, bias},
           {{"ours", [=] { return token_linear(x, weight, bias); }},
            {"libtorch",
             [=] {
               return at::linear(x.transpose(1, 2), weight, bias).transpose(1, 2).contiguous();
             }}}},
          {"transpose_add",
           {x, y},
           {{"ours", [=] { return transpose_add(x, y); }},
            {"libtorch", [=] { return x + y.transpose(1, 2); }}}}};
}

void step(const Layer& layer, const std::function<torch::Tensor()>& forward,
          const torch::Tensor& upstream) {
  forward().backward(upstream);
  for (torch::Tensor input : layer.inputs) input.mutable_grad().reset();
}

void measure(const MixerShape& shape, const Layer& layer, int64_t rounds, Report& report) {
  const torch::Tensor expected = layer.ways[0].second().detach();
  const torch::Tensor upstream = normal(expected.sizes(), 5);
  std::vector<Contender> contenders;
  for (const auto& [name, forward] : layer.ways) {
    const double apart = (forward() - expected).abs().max().item<double>();
    if (!(apart < 1e-4)) throw std::runtime_error(layer.name + ": " + name + " differs");
    contenders.push_back({name, [&layer, forward, &upstream] { step(layer, forward, upstream); }});
  }
  const std::vector<Timing> timings = time_interleaved(contenders, {rounds, 3, 1});
  std::string line =
      fmt::format("{:<12} {:<22} {:8.2f} ms", shape.id, layer.name, timings[0].median_us * 1e-3);
  nlohmann::json row{{"shape", shape.id}, {"layer", layer.name}};
  for (size_t i = 0; i < timings.size(); ++i) {
    row[timings[i].name + "_us"] = timings[i].median_us;
    if (i == 0) continue;
    const double ratio = timings[i].median_us / timings[0].median_us;
    row[timings[i].name + "_over_" + timings[0].name] = ratio;
    line += fmt::format("  {} {:.2f} x", timings[i].name, ratio);
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  report.add(row);
}

int run(int argc, char** argv) {
  Program program("mixer",
                  "Kernels of norms and token mixing, and the same composed of LibTorch's "
                  "operators; forward and backward, float32.",
                  40);
  int64_t threads = 1;
  program.add("--threads", threads, "threads");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    for (const MixerShape& shape : mixer_shapes()) {
      for (const Layer& layer : layers(shape)) measure(shape, layer, program.rounds(), report);
    }
  });
}

const Benchmark kBenchmark("mixer", run);

}  // namespace
}  // namespace shoal::bench::mixer_bench
