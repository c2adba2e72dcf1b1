#include "moe/nexus/kernels/memory_lookup.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/random/random.h"
#include "tests/support/gradient_check.h"
#include "tests/support/peak_memory.h"

// R rows  D width  K keys of a unit  k keys chosen per row  u units
namespace shoal {
namespace {

using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;
using Ids = std::vector<int64_t>;

torch::Tensor normal(at::IntArrayRef sizes, uint64_t layer,
                     torch::TensorOptions options = torch::kFloat64) {
  torch::Tensor tensor = torch::empty(sizes, options);
  fill_normal(tensor, Stream{1, Purpose::kTest, layer, 0});
  return tensor;
}

struct Problem {
  Ids rows_u;
  torch::Tensor query;
  MemoryTables tables;

  Problem(Ids rows, int64_t num_keys, int64_t width, torch::TensorOptions options = torch::kFloat64)
      : rows_u(std::move(rows)) {
    const auto u = static_cast<int64_t>(rows_u.size());
    const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
    query = normal({num_rows, width}, 1, options).set_requires_grad(true);
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    tables.keys = normal({u, num_keys, width}, 2, options).mul_(scale).set_requires_grad(true);
    tables.values = normal({u, num_keys, width}, 3, options).set_requires_grad(true);
    tables.scale_u = (some_numbers({u}, 4, options) + 1.5).set_requires_grad(true);
  }
  std::vector<torch::Tensor> tensors() const {
    std::vector<torch::Tensor> all{query, tables.keys, tables.values};
    if (tables.scale_u.defined()) all.push_back(tables.scale_u);
    return all;
  }
  torch::Tensor look_up(int64_t k) const { return memory_lookup(query, rows_u, tables, k); }

  /// Gradients of sum(y * fixed numbers), which are taken from the tensors.
  std::vector<torch::Tensor> gradients(const torch::Tensor& y) const {
    (y * some_numbers(y.sizes(), 10, y.options().requires_grad(false))).sum().backward();
    std::vector<torch::Tensor> grads;
    for (torch::Tensor tensor : tensors()) {
      grads.push_back(tensor.grad().clone());
      tensor.mutable_grad().reset();
    }
    return grads;
  }
};

/// Row by row, by a full sort of its scores. The choice is outside autograd.
torch::Tensor plain(const Problem& problem, int64_t k) {
  std::vector<torch::Tensor> rows;
  int64_t row = 0;
  for (size_t u = 0; u < problem.rows_u.size(); ++u) {
    const auto unit = static_cast<int64_t>(u);
    for (int64_t i = 0; i < problem.rows_u[u]; ++i, ++row) {
      const torch::Tensor score_K = problem.tables.keys[unit].mv(problem.query[row]);
      const torch::Tensor host = score_K.detach().to(torch::kFloat64).contiguous();
      const double* score = host.const_data_ptr<double>();
      Ids order(static_cast<size_t>(host.size(0)));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return score[a] > score[b]; });
      order.resize(static_cast<size_t>(k));
      const torch::Tensor chosen = torch::tensor(order, torch::kInt64);
      torch::Tensor chosen_score = score_K.index_select(0, chosen);
      if (problem.tables.scale_u.defined()) {
        chosen_score = chosen_score * problem.tables.scale_u[unit];
      }
      rows.push_back(
          chosen_score.softmax(0).matmul(problem.tables.values[unit].index_select(0, chosen)));
    }
  }
  return torch::stack(rows);
}

TEST(MemoryLookup, EqualsTheLoopReference) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    // Below and above one tile of rows and of keys, and none of their multiples.
    for (const auto& [num_keys, k] :
         {std::pair<int64_t, int64_t>{5, 5}, {37, 4}, {300, 2}, {515, 7}, {256, 1}}) {
      Problem problem({3, 0, 131, 20}, num_keys, 19, dtype);
      for (const bool is_scaled : {true, false}) {
        if (!is_scaled) problem.tables.scale_u = torch::Tensor();
        const torch::Tensor y = problem.look_up(k);
        const std::vector<torch::Tensor> grads = problem.gradients(y);
        const torch::Tensor expected = plain(problem, k);
        const std::vector<torch::Tensor> expected_grads = problem.gradients(expected);
        // Sums of up to 131 products: some ten roundings of the largest.
        const double tolerance = dtype == torch::kFloat32 ? 4e-6 : 1e-14;
        EXPECT_LT(relative_error(y, expected), tolerance) << num_keys << " keys, " << k;
        for (size_t i = 0; i < grads.size(); ++i) {
          // The gradient of a scale sums products with scores of up to four, which may cancel.
          const double least = i == 3 ? 4.0 : 1.0;
          EXPECT_LT((grads[i] - expected_grads[i]).abs().max().item<double>(),
                    tolerance * std::max(least, expected_grads[i].abs().max().item<double>()))
              << num_keys << " keys, " << k << ", tensor " << i;
        }
      }
    }
  }
}

TEST(MemoryLookup, GradientsAreThoseOfFiniteDifferences) {
  for (const int64_t k : {1, 2, 4}) {
    const Problem problem({2, 0, 3}, 9, 4);
    EXPECT_LT(gradient_error([&] { return problem.look_up(k); }, problem.tensors()), 1e-7) << k;
  }
}

TEST(MemoryLookup, AHandWorkedCase) {
  // Scores of the query (1, 2): 1, 2, 3, -1; the best two are keys 2 and 1, e = exp(3 - 2) apart.
  MemoryTables tables;
  tables.keys = torch::tensor({1., 0., 0., 1., 1., 1., 1., -1.}, torch::kFloat64).view({1, 4, 2});
  tables.values = torch::tensor({9., 9., 1., 0., 0., 1., 9., 9.}, torch::kFloat64).view({1, 4, 2});
  const torch::Tensor query = torch::tensor({1., 2.}, torch::kFloat64).view({1, 2});
  const torch::Tensor y = memory_lookup(query, {1}, tables, 2);
  const double weight = std::exp(1.0) / (1 + std::exp(1.0));
  EXPECT_NEAR(y[0][1].item<double>(), weight, 1e-15);
  EXPECT_NEAR(y[0][0].item<double>(), 1 - weight, 1e-15);
  tables.scale_u = torch::tensor({3.0}, torch::kFloat64);
  const double sharper = 1 / (1 + std::exp(-3.0));
  EXPECT_NEAR(memory_lookup(query, {1}, tables, 2)[0][1].item<double>(), sharper, 1e-15);
}

TEST(MemoryLookup, EqualScoresGoToTheLowerKey) {
  const int64_t num_keys = 600, width = 3;
  MemoryTables tables;
  tables.keys = torch::ones({1, num_keys, width}, torch::kFloat64);
  tables.values = torch::arange(num_keys, torch::kFloat64).view({1, num_keys, 1}).repeat({1, 1, 3});
  const torch::Tensor query = torch::ones({40, width}, torch::kFloat64);
  // Equal weights on keys 0, 1 and 2.
  EXPECT_LT((memory_lookup(query, {40}, tables, 3) - 1.0).abs().max().item<double>(), 1e-15);
  // One better key, late: it comes first, then 0 and 1.
  tables.keys[0][555].fill_(1.0 + std::log(2.0) / 3);
  EXPECT_LT(
      (memory_lookup(query, {40}, tables, 3) - (2 * 555 + 0 + 1) / 4.0).abs().max().item<double>(),
      1e-12);
}

TEST(MemoryLookup, TablesThatNobodyChoseGetGradientsOfExactlyZero) {
  // Memory that was in use holds numbers, which must not come back as gradients.
  { const torch::Tensor dirty = torch::full({4, 50, 8}, NAN); }
  Problem problem({7, 0, 5, 0}, 50, 8);
  const std::vector<torch::Tensor> grads = problem.gradients(problem.look_up(3));
  for (const size_t table : {1, 2}) {
    for (const int64_t empty : {1, 3}) {
      EXPECT_EQ(grads[table][empty].abs().max().item<double>(), 0.0);
    }
    for (const auto& [unit, rows] : {std::pair<int64_t, int64_t>{0, 7}, {2, 5}}) {
      const torch::Tensor is_hit = (grads[table][unit] != 0).any(1);
      EXPECT_GT(is_hit.sum().item<int64_t>(), 0);
      EXPECT_LE(is_hit.sum().item<int64_t>(), rows * 3);
    }
  }
  EXPECT_EQ(grads[3][1].item<double>(), 0.0);
}

TEST(MemoryLookup, OneKeyARowTeachesNoKeys) {
  // Why banks ask for k >= 2: the softmax over one score is constant.
  const Problem problem({6}, 20, 5);
  const std::vector<torch::Tensor> grads = problem.gradients(problem.look_up(1));
  EXPECT_EQ(grads[0].abs().max().item<double>(), 0.0);
  EXPECT_EQ(grads[1].abs().max().item<double>(), 0.0);
  EXPECT_GT(grads[2].abs().max().item<double>(), 0.0);
}

TEST(MemoryLookup, BitsDoNotDependOnThreads) {
  const int before = at::get_num_threads();
  std::vector<std::vector<torch::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.emplace_back();
    // Several tiles of rows, and one tile alone.
    for (const Ids& rows : {Ids{300, 1, 77}, Ids{100}}) {
      const Problem problem(rows, 700, 240, torch::kFloat32);
      const torch::Tensor y = problem.look_up(4);
      for (const torch::Tensor& grad : problem.gradients(y)) results.back().push_back(grad);
      results.back().push_back(y.detach());
    }
  }
  at::set_num_threads(before);
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(torch::equal(results[run][i], results[0][i])) << i;
    }
  }
}

TEST(MemoryLookup, HoldsNoMatrixOfAllScores) {
  const int64_t rows = 1024, keys = 16384;  // scores: 64 MiB
  const int64_t bytes = testing::peak_bytes_of([&] {
    at::set_num_threads(1);  // those of the parent are not here
    const Problem problem({rows}, keys, 8, torch::kFloat32);
    problem.gradients(problem.look_up(4));
  });
  EXPECT_LT(bytes, 32 << 20);
}

TEST(MemoryLookup, ARowThatIsNoNumberSpoilsNoOther) {
  Problem problem({4, 5}, 30, 6, torch::kFloat32);
  const torch::NoGradGuard no_grad;
  const torch::Tensor clean = problem.look_up(3).clone();
  problem.query[2][1] = std::nanf("");
  const torch::Tensor y = problem.look_up(3);
  EXPECT_TRUE(y[2].isnan().all().item<bool>());
  for (const int64_t row : {0, 1, 3, 4, 8}) EXPECT_TRUE(torch::equal(y[row], clean[row])) << row;
}

TEST(MemoryLookup, AKeyThatIsNoNumberIsPassedOver) {
  const Ids rows{6};
  Problem spoilt(rows, 20, 5), without(rows, 20, 5);
  const torch::Tensor others = torch::tensor({0, 1, 2, 3, 5, 6, 7, 8}, torch::kInt64);
  {
    const torch::NoGradGuard no_grad;
    spoilt.tables.keys = spoilt.tables.keys.narrow(1, 0, 9).clone();
    spoilt.tables.keys[0][4][2] = NAN;
    spoilt.tables.values = spoilt.tables.values.narrow(1, 0, 9).clone();
    without.tables.keys = without.tables.keys.index_select(1, others);
    without.tables.values = without.tables.values.index_select(1, others);
  }
  for (Problem* problem : {&spoilt, &without}) {
    problem->tables.keys.set_requires_grad(true);
    problem->tables.values.set_requires_grad(true);
  }
  // All that are left, then one more than that.
  const torch::Tensor y = spoilt.look_up(8);
  const std::vector<torch::Tensor> grads = spoilt.gradients(y);
  const std::vector<torch::Tensor> expected = without.gradients(without.look_up(8));
  EXPECT_LT(relative_error(y, without.look_up(8)), 1e-14);
  for (const size_t i : {0, 3}) EXPECT_LT(relative_error(grads[i], expected[i]), 1e-13) << i;
  for (const size_t i : {1, 2}) {
    EXPECT_LT(relative_error(grads[i].index_select(1, others), expected[i]), 1e-13) << i;
    EXPECT_EQ(grads[i][0][4].abs().max().item<double>(), 0.0);
  }
  EXPECT_TRUE(spoilt.look_up(9).isnan().all().item<bool>());
}

TEST(MemoryLookup, TakesNoRowsAndNoUnits) {
  const Problem no_rows({0, 0}, 6, 3);
  const std::vector<torch::Tensor> grads = no_rows.gradients(no_rows.look_up(2));
  EXPECT_EQ(grads[0].sizes(), (Ids{0, 3}));
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(grads[i].abs().max().item<double>(), 0.0);

  const Problem no_units({}, 6, 3);
  const torch::Tensor y = no_units.look_up(2);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ(no_units.gradients(y)[1].sizes(), (Ids{0, 6, 3}));
}

TEST(MemoryLookup, RunsWithoutGradients) {
  const Problem problem({4, 3}, 12, 5);
  const torch::NoGradGuard no_grad;
  const torch::Tensor y = problem.look_up(3);
  EXPECT_LT(relative_error(y, plain(problem, 3)), 1e-14);
  EXPECT_FALSE(y.requires_grad());
}

TEST(MemoryLookup, RefusesWhatDoesNotFit) {
  const Problem problem({2, 3}, 6, 3);
  EXPECT_THROW(problem.look_up(0), c10::Error);
  EXPECT_THROW(problem.look_up(7), c10::Error);
  EXPECT_THROW(memory_lookup(problem.query, {2, 2}, problem.tables, 2), c10::Error);
  EXPECT_THROW(memory_lookup(problem.query, {5}, problem.tables, 2), c10::Error);
  EXPECT_THROW(memory_lookup(problem.query.to(torch::kFloat32), {2, 3}, problem.tables, 2),
               c10::Error);
  MemoryTables tables = problem.tables;
  tables.values = tables.values.narrow(1, 0, 5);
  EXPECT_THROW(memory_lookup(problem.query, {2, 3}, tables, 2), c10::Error);
}

}  // namespace
}  // namespace shoal
