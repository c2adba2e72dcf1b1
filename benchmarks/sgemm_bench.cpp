// The float32 matrix product that LibTorch's operators call in Shoal beside LibTorch's own.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "runtime/products/sgemm.h"

namespace shoal::bench::sgemm_bench {
namespace {

/// c [m, n] = a [m, k] b [k, n], row-major; a "T" is of memory that holds the transpose.
struct Product {
  std::string id;
  int m, n, k;
  char a_op, b_op;
};

const std::vector<Product>& products() {
  static const std::vector<Product> all{{"tiny_gpt2_fc1", 4096, 512, 128, 'N', 'T'},
                                        {"tiny_gpt2_fc1_dx", 4096, 128, 512, 'N', 'N'},
                                        {"tiny_gpt2_fc1_dw", 512, 128, 4096, 'T', 'N'},
                                        {"tiny_gpt2_qkv", 4096, 384, 128, 'N', 'T'},
                                        {"tiny_gpt2_logits", 256, 256, 32, 'N', 'T'},
                                        {"tiny_gpt2_expert", 512, 512, 128, 'N', 'N'},
                                        {"gpt2_s_fc1", 1024, 3072, 768, 'N', 'T'},
                                        {"decode_8", 8, 512, 128, 'N', 'T'},
                                        {"gpt2_s_decode_1", 1, 2304, 768, 'N', 'T'},
                                        {"gpt2_s_decode_8", 8, 2304, 768, 'N', 'T'},
                                        {"gpt2_s_head_1", 1, 50257, 768, 'N', 'T'}};
  return all;
}

using Sgemm = decltype(&sgemm_);

Sgemm libtorch_sgemm() {
  void* library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  auto* found = library == nullptr ? nullptr : dlsym(library, "sgemm_");
  if (found == nullptr) throw std::runtime_error("LibTorch exports no sgemm_");
  return reinterpret_cast<Sgemm>(found);
}

void measure(const Product& product, int64_t rounds, Report& report) {
  const auto& [id, m, n, k, a_op, b_op] = product;
  const torch::Tensor a = normal({m, k}, 1), b = normal({k, n}, 2);
  const int a_stride = a_op == 'N' ? k : m, b_stride = b_op == 'N' ? n : k;
  const auto multiply = [&](Sgemm sgemm, torch::Tensor& c) {
    const float one = 1, zero = 0;
    sgemm(&product.b_op, &product.a_op, &product.n, &product.m, &product.k, &one,
          b.const_data_ptr<float>(), &b_stride, a.const_data_ptr<float>(), &a_stride, &zero,
          c.data_ptr<float>(), &product.n);
  };
  torch::Tensor ours = torch::empty({m, n}), theirs = torch::empty({m, n});
  const Sgemm libtorch = libtorch_sgemm();
  const std::vector<Timing> timings =
      time_interleaved({{"ours", [&] { multiply(&sgemm_, ours); }},
                        {"libtorch", [&] { multiply(libtorch, theirs); }}},
                       {rounds, 3, 20});
  if (!((ours - theirs).abs().max().item<double>() < 1e-3))
    throw std::runtime_error(id + ": differs");
  const double ratio = timings[1].median_us / timings[0].median_us;
  std::printf("%s\n",
              fmt::format("{:<18} {:9.1f} us  {:6.1f} Gflop/s  libtorch {:.2f} x", id,
                          timings[0].median_us, 2e-3 * m * n * k / timings[0].median_us, ratio)
                  .c_str());
  std::fflush(stdout);
  report.add({{"product", id},
              {"m", m},
              {"n", n},
              {"k", k},
              {"ours_us", timings[0].median_us},
              {"libtorch_us", timings[1].median_us},
              {"libtorch_over_ours", ratio}});
}

int run(int argc, char** argv) {
  Program program(
      "sgemm", "float32 matrix products by oneDNN, where it is used, and by LibTorch's BLAS.", 40);
  int64_t threads = 1;
  program.add("--threads", threads, "threads");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    for (const Product& product : products()) measure(product, program.rounds(), report);
  });
}

const Benchmark kBenchmark("sgemm", run);

}  // namespace
}  // namespace shoal::bench::sgemm_bench
