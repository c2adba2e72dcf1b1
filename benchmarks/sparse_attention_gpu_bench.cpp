// Attention of sparse queries on dense keys on a GPU, beside the backends of LibTorch's attention.
#include <ATen/Context.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/support/program.h"
#include "models/hspmn/kernels/sparse_query_attention.h"

// B sequences  S tokens  N query heads  M heads of keys and values  H head width
// R queries of all sequences
namespace shoal::bench::sparse_attention_gpu_bench {
namespace {

struct Arguments {
  int64_t batch = 64, tokens = 4096, heads = 16, key_heads = 4, width = 128, percent = 20;
};

/// bfloat16; the queries of a sequence are evenly spread.
struct Heads {
  torch::Tensor query_BNSH, key_BMSH, value_BMSH, position, query_RNH;
  SparseQueries queries;
  double scale;

  Heads(const Arguments& arguments, const c10::Device& device)
      : scale(1.0 / std::sqrt(static_cast<double>(arguments.width))) {
    const int64_t B = arguments.batch, S = arguments.tokens, H = arguments.width;
    const int64_t count = S * arguments.percent / 100;
    const auto filled = [&](int64_t heads, double step) {
      const torch::Tensor place =
          torch::arange(B * heads * S * H, torch::TensorOptions(device).dtype(torch::kFloat32));
      return place.mul_(step).sin_().to(torch::kBFloat16).view({B, heads, S, H});
    };
    query_BNSH = filled(arguments.heads, 0.37);
    key_BMSH = filled(arguments.key_heads, 0.73);
    value_BMSH = filled(arguments.key_heads, 0.59);
    position =
        ((torch::arange(count, torch::kInt64) * 2 + 1) * S).div(2 * count, "floor").to(device);
    query_RNH = query_BNSH.index_select(2, position)
                    .transpose(1, 2)
                    .reshape({B * count, arguments.heads, H});
    queries.limit_R = position.repeat({B});
    for (int64_t b = 0; b <= B; ++b) queries.offset_b1.push_back(b * count);
  }
  torch::Tensor sparse() const {
    return sparse_query_attention(query_RNH, key_BMSH, value_BMSH, queries, scale);
  }
  torch::Tensor dense() const {
    return at::scaled_dot_product_attention(query_BNSH, key_BMSH, value_BMSH, {}, 0.0,
                                            /*is_causal=*/true, scale, /*enable_gqa=*/true);
  }
};

void use_backend(const std::string& name) {
  at::globalContext().setSDPUseFlash(name == "flash");
  at::globalContext().setSDPUseCuDNN(name == "cudnn");
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseMath(false);
}

void check(const Heads& heads) {
  use_backend("flash");
  const torch::Tensor rows = heads.dense().index_select(2, heads.position).transpose(1, 2);
  const torch::Tensor apart =
      (heads.sparse().to(torch::kFloat32) - rows.reshape(heads.query_RNH.sizes())).abs().max();
  if (!(apart.item<double>() < 2e-2)) {
    throw std::runtime_error(fmt::format("results differ by {}", apart.item<double>()));
  }
}

void measure(const Heads& heads, const c10::Device& device, int64_t rounds, Report& report) {
  const auto timed = [&](const std::string& backend, auto call) {
    return TimedContender{backend, [backend, call, &device] {
                            use_backend(backend);
                            return us_of_calls(call, calls_per_turn(device), device);
                          }};
  };
  const std::vector<Timing> timings =
      take_turns({timed("sparse", [&] { heads.sparse(); }), timed("flash", [&] { heads.dense(); }),
                  timed("cudnn", [&] { heads.dense(); })},
                 rounds, 3);
  for (const Timing& timing : timings) {
    const double ratio = timing.median_us / timings[0].median_us;
    std::printf("%-8s %10.1f us  %.2f x\n", timing.name.c_str(), timing.median_us, ratio);
    report.add({{"name", timing.name}, {"us", timing.median_us}, {"over_sparse", ratio}});
  }
}

int run(int argc, char** argv) {
  Program program("sparse_attention_gpu",
                  "Forward attention of a part of the queries on all keys on one GPU, and causal "
                  "attention of all queries by FlashAttention-2 and cuDNN. bfloat16.",
                  30);
  Arguments arguments;
  program.add("--batch", arguments.batch, "sequences at once");
  program.add("--tokens", arguments.tokens, "of a sequence");
  program.add("--heads", arguments.heads, "of queries");
  program.add("--key-heads", arguments.key_heads, "of keys and values");
  program.add("--width", arguments.width, "of a head");
  program.add("--percent", arguments.percent, "of the tokens that attend");
  return program.run(argc, argv, [&](Report& report) {
    const c10::Device device = use_device("cuda");
    const torch::NoGradGuard no_grad;
    const Heads heads(arguments, device);
    check(heads);
    measure(heads, device, program.rounds(), report);
  });
}

const Benchmark kBenchmark("sparse_attention_gpu", run);

}  // namespace
}  // namespace shoal::bench::sparse_attention_gpu_bench
