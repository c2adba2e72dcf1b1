#include "runtime/products/sgemm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/signals.h"
#include "runtime/products/few_rows_product.h"
#include "tests/support/gradient_check.h"

// M rows  N columns  K summed
namespace shoal {
namespace {

using testing::some_numbers;

constexpr float kOne = 1, kZero = 0;

/// a [M, K] b [K, N] by the function of BLAS: column-major, cᵀ = bᵀ aᵀ.
torch::Tensor blas_product(const torch::Tensor& a, const torch::Tensor& b) {
  const int m = static_cast<int>(a.size(0)), k = static_cast<int>(a.size(1));
  const int n = static_cast<int>(b.size(1)), a_stride = std::max(1, k);
  torch::Tensor c = at::full({m, n}, std::numeric_limits<double>::quiet_NaN(), a.options());
  sgemm_("n", "n", &n, &m, &k, &kOne, b.data_ptr<float>(), &n, a.data_ptr<float>(), &a_stride,
         &kZero, c.data_ptr<float>(), &n);
  return c;
}

/// The path of the library that holds an address.
std::string library_of(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

TEST(Sgemm, IsTheProductOfLibTorchsOperators) {
  // The program's, not that of libtorch_cpu, in the order in which LibTorch looks it up.
  EXPECT_NE(library_of(dlsym(RTLD_DEFAULT, "sgemm_")).find("tests_"), std::string::npos);
  const torch::Tensor a = some_numbers({300, 200}, 1, torch::kFloat32);
  const torch::Tensor b = some_numbers({200, 150}, 2, torch::kFloat32);
  EXPECT_TRUE(at::equal(at::mm(a, b), blas_product(a, b)));
}

TEST(Sgemm, ASignalDuringAProductOverwritesNoMemory) {
  // The product's buffers take the place of every other block; the frame would lie below them.
  constexpr size_t kBlock = 1 << 15;
  const torch::Tensor a = some_numbers({64, 512}, 1, torch::kFloat32);
  const torch::Tensor b = some_numbers({512, 64}, 2, torch::kFloat32);
  torch::Tensor product = torch::empty({64, 64});
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<char>> blocks;
    for (int i = 0; i < 100; ++i) blocks.emplace_back(kBlock, 'x');
    for (size_t i = 1; i < blocks.size(); i += 2) std::vector<char>().swap(blocks[i]);
    const StopSignals signals;
    std::thread sender([main = pthread_self()] { pthread_kill(main, SIGUSR1); });
    while (StopSignals::caught() == 0) at::mm_out(product, a, b);
    sender.join();
    for (const std::vector<char>& block : blocks) {
      ASSERT_EQ(static_cast<size_t>(std::ranges::count(block, 'x')), block.size());
    }
  }
}

TEST(Sgemm, ResultsNeedNotBeInitialisedWhereBetaIsZero) {
  const torch::Tensor a = some_numbers({5, 4}, 1, torch::kFloat32);
  const torch::Tensor b = some_numbers({4, 3}, 2, torch::kFloat32);
  const torch::Tensor expected = at::matmul(a.to(torch::kFloat64), b.to(torch::kFloat64));
  EXPECT_LT((blas_product(a, b) - expected).abs().max().item<double>(), 1e-6);
}

TEST(Sgemm, AnEmptySumIsZero) {
  const torch::Tensor product =
      blas_product(torch::zeros({2, 0}), torch::zeros({0, 3}).contiguous());
  EXPECT_EQ(product.abs().max().item<float>(), 0);
}

TEST(Sgemm, TheConjugateTransposeIsTheTranspose) {
  const torch::Tensor a = some_numbers({6, 6}, 1, torch::kFloat32);
  const torch::Tensor b = some_numbers({6, 6}, 2, torch::kFloat32);
  const auto product = [&](const char* op) {
    torch::Tensor c = torch::zeros({6, 6});
    const int size = 6;
    sgemm_(op, "N", &size, &size, &size, &kOne, a.data_ptr<float>(), &size, b.data_ptr<float>(),
           &size, &kZero, c.data_ptr<float>(), &size);
    return c;
  };
  EXPECT_TRUE(at::equal(product("C"), product("T")));
  EXPECT_FALSE(at::equal(product("C"), product("N")));
}

TEST(Sgemm, ARowOfAFewHasTheBitsOfTheRowAlone) {
  if (sgemm_library() == "LibTorch") return;  // whose bits are not ours to promise
  const torch::Tensor x = some_numbers({kFewRows, 301}, 1, torch::kFloat32);
  const torch::Tensor weight = some_numbers({53, 301}, 2, torch::kFloat32);
  const torch::Tensor y = at::mm(x, weight.t());
  for (int64_t rows = 1; rows <= kFewRows; ++rows) {
    EXPECT_TRUE(at::equal(at::mm(x.narrow(0, 0, rows), weight.t()), y.narrow(0, 0, rows))) << rows;
  }
}

TEST(Sgemm, LeavesTheNumberOfThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const torch::Tensor a = some_numbers({8, 8}, 1, torch::kFloat32);
  blas_product(a, a);
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

TEST(Sgemm, IsOneDnnWhereItIsBetter) {
  EXPECT_FALSE(misses_onednn()) << "launch/setup installs libdnnl-dev";
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
  const bool is_better = !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
  EXPECT_EQ(sgemm_library().starts_with("oneDNN "), is_better) << sgemm_library();
#else
  EXPECT_EQ(sgemm_library(), "LibTorch");
#endif
}

}  // namespace
}  // namespace shoal
