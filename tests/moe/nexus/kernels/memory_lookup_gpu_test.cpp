#include "moe/nexus/kernels/memory_lookup.h"

#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "runtime/device/operator.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// R rows  D width  K keys of a unit  k keys chosen per row  u units
namespace shoal {
namespace {

using testing::some_numbers;
using Ids = std::vector<int64_t>;

struct Problem {
  Ids rows_u;
  torch::Tensor query;
  MemoryTables tables;

  std::vector<torch::Tensor> tensors() const {
    return {query, tables.keys, tables.values, tables.scale_u};
  }
};

/// Queries and keys of small integers: their products are exact, and many of them equal.
Problem some_problem(const Ids& rows_u, int64_t num_keys, int64_t width, at::ScalarType type) {
  const auto u = static_cast<int64_t>(rows_u.size());
  const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  const auto integers = [&](at::IntArrayRef sizes, int64_t seed) {
    return (some_numbers(sizes, seed) * 2).round().to(type).set_requires_grad(true);
  };
  Problem problem{rows_u, integers({num_rows, width}, 1), {}};
  problem.tables.keys = integers({u, num_keys, width}, 2);
  problem.tables.values = some_numbers({u, num_keys, width}, 3).to(type).set_requires_grad(true);
  problem.tables.scale_u = (some_numbers({u}, 4) * 0.1 + 0.2).to(type).set_requires_grad(true);
  return problem;
}

class MemoryLookupGpu : public testing::OnGpu {
 protected:
  void expect_cpu(const Problem& problem, int64_t k) const {
    Problem other{problem.rows_u, on_gpu(problem.query), {}};
    other.tables = {on_gpu(problem.tables.keys), on_gpu(problem.tables.values),
                    on_gpu(problem.tables.scale_u)};
    const auto look_up = [&](const Problem& of) {
      return memory_lookup(of.query, of.rows_u, of.tables, k);
    };
    const torch::Tensor expected = look_up(problem), found = look_up(other);
    expect_close(expected, found, 64);
    const torch::Tensor upstream =
        some_numbers(problem.query.sizes(), 9, problem.query.options().requires_grad(false));
    expected.backward(upstream);
    found.backward(on_gpu(upstream));
    for (size_t i = 0; i < 3; ++i) {
      expect_close(problem.tensors()[i].grad(), other.tensors()[i].grad(), 256);
    }
    expect_close(problem.tables.scale_u.grad(), other.tables.scale_u.grad(), 8,
                 scale_addends(problem, upstream));
  }

 private:
  /// At most: a row adds, over its choices, weight * (product - mean of the products) * score, of
  /// <upstream, value> and <query, key>. A unit may have few rows, whose addends cancel.
  static double scale_addends(const Problem& problem, const torch::Tensor& upstream) {
    const auto norms = [](const torch::Tensor& rows) {
      return rows.detach().to(torch::kFloat64).norm(2, -1);
    };
    const torch::Tensor row_R = norms(problem.query) * norms(upstream);
    const torch::Tensor most =
        norms(problem.tables.keys).max() * norms(problem.tables.values).max();
    return 2 * (row_R.sum() * most).item<double>();
  }
};

TEST_F(MemoryLookupGpu, EqualsTheCpuForwardAndBackward) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const Ids& rows_u : {Ids{0, 0}, Ids{5}, Ids{40, 0, 301, 1}}) {
      for (const int64_t num_keys : {20, 500}) {
        for (const int64_t k : {1, 2, 4, 8, 13}) {
          expect_cpu(some_problem(rows_u, num_keys, 16, type), k);
          expect_cpu(some_problem(rows_u, num_keys, 7, type), k);
        }
      }
    }
  }
}

TEST_F(MemoryLookupGpu, RefusesMoreHitsThanTheBackwardPassTakes) {
  using torch::Tensor;
  static const Operator<std::tuple<Tensor, Tensor, Tensor, Tensor>(
      const Tensor&, at::IntArrayRef, const Tensor&, const Tensor&, const std::optional<Tensor>&,
      int64_t)>
      op("shoal::memory_lookup_forward");
  const int64_t num_rows = int64_t{1} << 30;
  const Tensor tables = on_gpu(torch::zeros({1, 8, 4}));
  const Tensor query = on_gpu(torch::zeros({1, 4})).expand({num_rows, 4});
  EXPECT_THROW(op(query, {num_rows}, tables, tables, std::nullopt, 4), c10::Error);
}

TEST_F(MemoryLookupGpu, PassesOverScoresThatAreNoNumbers) {
  for (const int64_t k : {2, 12}) {
    const Problem problem = some_problem({6, 4}, 20, 8, torch::kFloat32);
    {
      const torch::NoGradGuard no_grad;
      problem.tables.keys[0][3][0] = std::nan("");
      problem.query[7].fill_(std::nan(""));
    }
    const MemoryTables tables{on_gpu(problem.tables.keys), on_gpu(problem.tables.values),
                              on_gpu(problem.tables.scale_u)};
    const torch::Tensor expected =
        memory_lookup(problem.query, problem.rows_u, problem.tables, k).detach();
    const torch::Tensor found =
        memory_lookup(on_gpu(problem.query), problem.rows_u, tables, k).detach();
    expect_same(expected.isnan(), found.isnan());
    expect_close(expected.nan_to_num(0.0), found.nan_to_num(0.0), 64);
  }
}

}  // namespace
}  // namespace shoal
