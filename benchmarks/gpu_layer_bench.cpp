// What a MoE layer's operators cost on one GPU, against the memory and the matrix products that
// bound them.
#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/moe_layer_call.h"
#include "benchmarks/support/program.h"
#include "moe/experts/expert_mlp.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/row_top_k.h"
#include "moe/routing/fused_router.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/lamb.h"

// T tokens  D width  H hidden width  U units  K choices  R = T K rows
namespace shoal::bench::gpu_layer_bench {
namespace {

const torch::TensorOptions kOnGpu(torch::kCUDA);

/// Normal numbers on the GPU.
torch::Tensor normal_on_gpu(at::IntArrayRef sizes, uint64_t layer, at::ScalarType type) {
  return normal(sizes, layer, kOnGpu.dtype(type));
}

/// Takes turns of several calls.
TimedContender repeated(const std::string& name, std::function<void()> call) {
  const c10::Device gpu(c10::DeviceType::CUDA, 0);
  return {name,
          [call = std::move(call), gpu] { return us_of_calls(call, calls_per_turn(gpu), gpu); }};
}

/// Prints and reports the medians over that of the first.
void report_over_first(const std::string& part, const std::string& shape,
                       const std::vector<Timing>& timings, Report& report) {
  nlohmann::json row{{"part", part}, {"shape", shape}};
  std::printf("%-9s %-4s", part.c_str(), shape.c_str());
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    row[timing.name] = {{"us", timing.median_us}, {"over_first", ratio}};
    std::printf("  %s %.1f us, %.2f x", timing.name.c_str(), timing.median_us, ratio);
  }
  std::printf("\n");
  std::fflush(stdout);
  report.add(row);
}

/// Random choices as rows sorted by unit.
struct Sorted {
  torch::Tensor token_A;
  UnitRows rows_u;

  explicit Sorted(const MoeShape& shape) {
    const torch::Tensor unit =
        top_k(normal_on_gpu({shape.tokens, shape.experts}, 9, torch::kFloat32), shape.k).flatten();
    const torch::Tensor order = std::get<1>(unit.sort(/*stable=*/true, 0, /*descending=*/false));
    token_A = order.div(shape.k, "floor");
    rows_u = UnitRows(torch::bincount(unit, {}, shape.experts));
  }
};

/// Gather and combine beside a copy of as many bytes.
void measure_permute(const MoeShape& shape, int64_t rounds, Report& report) {
  const torch::NoGradGuard no_grad;
  const Sorted sorted(shape);
  const RowIndex index = make_row_index(sorted.token_A, shape.tokens);
  const torch::Tensor x = normal_on_gpu({shape.tokens, shape.width}, 1, torch::kBFloat16);
  const torch::Tensor rows = normal_on_gpu({shape.rows(), shape.width}, 2, torch::kBFloat16);
  const torch::Tensor weight = normal_on_gpu({shape.rows()}, 3, torch::kFloat32);
  // A copy reads and writes (T + R) / 2 rows: T + R of them in all.
  const torch::Tensor half =
      normal_on_gpu({(shape.tokens + shape.rows()) / 2, shape.width}, 4, torch::kBFloat16);
  torch::Tensor copied = torch::empty_like(half);
  report_over_first(
      "permute", shape.id,
      take_turns({repeated("copy", [&] { copied.copy_(half); }),
                  repeated("gather", [&] { gather_rows(x, index); }),
                  repeated("combine", [&] { combine_rows(rows, weight, index); }),
                  repeated("index_select", [&] { x.index_select(0, sorted.token_A); })},
                 rounds, 3),
      report);
}

/// Scores, choices, weights, counts and offsets, beside the chain of LibTorch's operators.
void measure_router(const MoeShape& shape, int64_t rounds, Report& report) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor logits = normal_on_gpu({32768, shape.experts}, 1, torch::kFloat32);
  const auto chain = [&] {
    const torch::Tensor score = logits.softmax(1);
    const auto [weight, choice] = score.topk(shape.k, 1);
    const torch::Tensor sorted = std::get<0>(choice.flatten().sort());
    const torch::Tensor count = torch::bincount(sorted, {}, shape.experts);
    return count.cumsum(0);
  };
  report_over_first(
      "router", shape.id,
      take_turns(
          {repeated("fused",
                    [&] {
                      fused_router(logits, {}, {shape.k, RouterScore::kSoftmax, Normalise::kNone});
                    }),
           repeated("chain", chain)},
          rounds, 3),
      report);
}

/// The products of one dense MLP of as many FLOPs, forward and backward.
std::function<void()> dense_products(const MoeShape& shape) {
  const torch::Tensor in = normal_on_gpu({shape.rows(), shape.width}, 4, torch::kBFloat16);
  const torch::Tensor hidden = normal_on_gpu({shape.rows(), shape.hidden}, 6, torch::kBFloat16);
  const torch::Tensor weight = normal_on_gpu({shape.width, shape.hidden}, 1, torch::kBFloat16);
  return [in, hidden, weight, back = weight.t(), num_first = shape.gated ? 2 : 1] {
    for (int i = 0; i < num_first; ++i) {
      at::mm(in, weight);
      at::mm(in.t(), hidden);
      at::mm(hidden, back);
    }
    at::mm(hidden, back);
    at::mm(hidden.t(), in);
    at::mm(in, weight);
  };
}

/// Experts alone, forward and backward.
void measure_experts(const MoeShape& shape, int64_t rounds, Report& report) {
  const Sorted sorted(shape);
  const auto parameter = [&](at::IntArrayRef sizes, uint64_t layer) {
    return normal_on_gpu(sizes, layer, torch::kBFloat16).mul_(0.02).set_requires_grad(true);
  };
  ExpertWeights weights;
  weights.fc1_weight = parameter({shape.experts, shape.width, shape.hidden}, 1);
  weights.fc2_weight = parameter({shape.experts, shape.hidden, shape.width}, 2);
  if (shape.gated) weights.gate_weight = parameter({shape.experts, shape.width, shape.hidden}, 3);
  const torch::Tensor x =
      normal_on_gpu({shape.rows(), shape.width}, 4, torch::kBFloat16).set_requires_grad(true);
  const torch::Tensor upstream = normal_on_gpu(x.sizes(), 5, torch::kBFloat16);
  const auto experts = [&] {
    expert_mlp(x, sorted.rows_u, weights, Activation::kSilu).backward(upstream);
    for (torch::Tensor tensor : {x, weights.fc1_weight, weights.fc2_weight, weights.gate_weight}) {
      if (tensor.defined()) tensor.mutable_grad().reset();
    }
  };
  report_over_first(
      "experts", shape.id,
      take_turns({repeated("dense", dense_products(shape)), repeated("experts", experts)}, rounds,
                 3),
      report);
}

/// A whole layer forward and backward: router, rows to experts, experts, sums.
void measure_layer(const MoeShape& shape, int64_t rounds, Report& report) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  grid.device = torch::Device(torch::kCUDA, 0);
  MoeLayerCall layer(shape, fmt::format("router: {{name: top_k, k: {}, noise: none}}", shape.k),
                     grid, fmt::format("kind: {}, bias: false", shape.gated ? "gated" : "plain"),
                     kOnGpu.dtype(torch::kBFloat16));
  report_over_first("layer", shape.id,
                    take_turns({repeated("dense", dense_products(shape)),
                                repeated("layer", [&] { layer.call(); })},
                               rounds, 3),
                    report);
}

/// A float32 layer by exact products and by TF32's; layers of Sparse-MLP only, as others take
/// minutes.
void measure_tf32(const MoeShape& shape, int64_t rounds, Report& report) {
  if (shape.gated) return;
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  grid.device = torch::Device(torch::kCUDA, 0);
  MoeLayerCall layer(shape, fmt::format("router: {{name: top_k, k: {}, noise: none}}", shape.k),
                     grid, "kind: plain", kOnGpu.dtype(torch::kFloat32));
  const auto by = [&](const std::string& name, bool tf32) {
    return TimedContender{name, [timed = repeated(name, [&] { layer.call(); }), tf32] {
                            at::globalContext().setAllowTF32CuBLAS(tf32);
                            const double us = timed.call_us();
                            at::globalContext().setAllowTF32CuBLAS(false);
                            return us;
                          }};
  };
  report_over_first("tf32", shape.id,
                    take_turns({by("tf32", true), by("float32", false)}, rounds, 3), report);
}

/// Steps of 68M parameters beside copies of the bytes they must move: 28 and 40 a parameter.
void measure_optimizers(int64_t rounds, Report& report) {
  std::vector<Parameter> parameters;
  for (uint64_t i = 0; i < 29; ++i) {
    torch::Tensor weight = normal_on_gpu({1536, 1536}, i, torch::kFloat32).requires_grad_();
    weight.mutable_grad() = normal_on_gpu({1536, 1536}, 100 + i, torch::kFloat32);
    parameters.push_back({fmt::format("p{}", i), weight, 0, {}, {}});
  }
  const int64_t count = 29 * 1536 * 1536;
  AdamW::Options adamw_options;
  Lamb::Options lamb_options;
  adamw_options.weight_decay = lamb_options.weight_decay = 0.1;
  AdamW adamw(adamw_options, parameters);
  Lamb lamb(lamb_options, parameters);
  const auto copy_of = [](int64_t bytes_moved) {
    const torch::Tensor from = normal_on_gpu({bytes_moved / 8}, 1, torch::kFloat32);
    return [from, to = torch::empty_like(from)]() mutable { to.copy_(from); };
  };
  const auto compare = [&](const std::string& name, int64_t bytes, std::function<void()> step) {
    report_over_first(
        "optimizer", name,
        take_turns({repeated("copy", copy_of(bytes * count)), repeated("step", std::move(step))},
                   rounds, 3),
        report);
  };
  compare("adamw", 28, [&] { adamw.step(1e-3); });
  compare("lamb", 40, [&] { lamb.step(1e-3); });
}

const std::vector<std::string> kParts{"permute", "router", "experts", "layer", "tf32", "optimizer"};

int run(int argc, char** argv) {
  Program program("gpu_layer",
                  "A MoE layer's operators on one GPU beside a copy of as many bytes, LibTorch's "
                  "operators and dense products of equal FLOPs, bfloat16; a float32 layer "
                  "without and with TF32.",
                  30);
  std::string part, shape_id;
  program.add("--part", part, fmt::format("{}; all if left out", fmt::join(kParts, ", ")));
  program.add("--shape", shape_id, "only this shape, e.g. S1");
  return program.run(argc, argv, [&](Report& report) {
    if (!part.empty() && std::find(kParts.begin(), kParts.end(), part) == kParts.end()) {
      throw std::invalid_argument("no part is called " + part);
    }
    use_device("cuda");
    const auto wants = [&](const char* name) { return part.empty() || part == name; };
    for (const MoeShape& shape : chosen_shapes(shape_id, gpu_shapes())) {
      if (wants("permute")) measure_permute(shape, program.rounds(), report);
      if (wants("router")) measure_router(shape, program.rounds(), report);
      if (wants("experts")) measure_experts(shape, program.rounds(), report);
      if (wants("layer")) measure_layer(shape, program.rounds(), report);
      if (wants("tf32")) measure_tf32(shape, program.rounds(), report);
    }
    if (wants("optimizer")) measure_optimizers(program.rounds(), report);
  });
}

const Benchmark kBenchmark("gpu_layer", run);

}  // namespace
}  // namespace shoal::bench::gpu_layer_bench
