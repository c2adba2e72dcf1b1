#include "models/attention_experts/top_k_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/gradient_check.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {
namespace {

using testing::apart;
using testing::gradient_error;
using testing::some_numbers;

struct Heads {
  torch::Tensor query_RD, key_IND, value_IND;
};

/// One head of width 1 and one image: logits are query times key.
Heads numbers(const std::vector<double>& query, const std::vector<double>& key,
              const std::vector<double>& value) {
  const auto tensor = [](const std::vector<double>& x) {
    return torch::tensor(x, torch::kFloat64);
  };
  return {tensor(query).unsqueeze(1), tensor(key).view({1, -1, 1}), tensor(value).view({1, -1, 1})};
}

ImageQueries first_tokens(int64_t count) { return {torch::arange(count), {0, count}}; }

double weighted(const std::vector<double>& logits, const std::vector<double>& values) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp(logits[i]) * values[i];
    all += std::exp(logits[i]);
  }
  return sum / all;
}

/// Rows of one head in memory.
struct Rows {
  const double* data;
  int64_t stride, width;
};

/// Of one query of one head among the candidates, by sorting.
std::vector<double> by_hand(const double* query, const Rows& keys, const Rows& values,
                            const std::vector<int64_t>& candidates, int64_t k) {
  std::vector<double> logit(candidates.size());
  for (size_t c = 0; c < candidates.size(); ++c) {
    const double* key = keys.data + candidates[c] * keys.stride;
    for (int64_t h = 0; h < keys.width; ++h) logit[c] += query[h] * key[h];
    logit[c] /= std::sqrt(static_cast<double>(keys.width));
  }
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logit[a] > logit[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::vector<double> out(static_cast<size_t>(keys.width));
  double all = 0;
  for (const size_t c : order) all += std::exp(logit[c]);
  for (const size_t c : order) {
    const double* value = values.data + candidates[c] * values.stride;
    for (size_t h = 0; h < out.size(); ++h) out[h] += std::exp(logit[c]) / all * value[h];
  }
  return out;
}

/// The tokens of a window on the grid.
std::vector<int64_t> window_of(int64_t token, const PatchGrid& grid, int64_t window) {
  std::vector<int64_t> tokens;
  for (int64_t key = 0; key < grid.tokens(); ++key) {
    const int64_t down = key / grid.columns - token / grid.columns;
    const int64_t right = key % grid.columns - token % grid.columns;
    if (std::max(std::abs(down), std::abs(right)) <= window / 2) tokens.push_back(key);
  }
  return tokens;
}

constexpr PatchGrid kGrid{4, 6};

/// Three images of 24 tokens, of which the second has no query.
Heads some_heads(int64_t width, torch::ScalarType type = torch::kFloat64) {
  return {some_numbers({9, width}, 1).to(type) * 3, some_numbers({3, 24, width}, 2).to(type) * 3,
          some_numbers({3, 24, width}, 3).to(type)};
}
ImageQueries some_queries() {
  return {torch::tensor({0, 3, 4, 9, 23, 2, 11, 12, 20}, torch::kInt64), {0, 5, 5, 9}};
}

TopKOptions window_options(int64_t k) {
  KeyCandidates candidates;
  candidates.from = CandidateKind::kWindow;
  candidates.window = 3;
  return {2, k, candidates, kGrid};
}

TopKOptions pooled_options(int64_t k) {
  KeyCandidates candidates;
  candidates.from = CandidateKind::kPooled;
  candidates.block = 2;
  candidates.keep = 2;
  return {2, k, candidates, kGrid};
}

torch::Tensor attend(const Heads& x, const ImageQueries& queries, const TopKOptions& options) {
  return top_k_attention(x.query_RD, x.key_IND, x.value_IND, queries, options);
}
torch::Tensor attend_portable(const Heads& x, const ImageQueries& queries,
                              const TopKOptions& options) {
  return top_k_attention_portable(x.query_RD, x.key_IND, x.value_IND, queries, options);
}

TEST(TopKAttention, KeepsTheHighestLogitsOfEachQuery) {
  const std::vector<double> key{0.5, -1, 2, 1}, value{1, 10, 100, 1000};
  for (const auto& function : {attend, attend_portable}) {
    const torch::Tensor y =
        function(numbers({1, -1}, key, value), first_tokens(2), {1, 2}).flatten();
    EXPECT_NEAR(y[0].item<double>(), weighted({2, 1}, {100, 1000}), 1e-12);
    EXPECT_NEAR(y[1].item<double>(), weighted({1, -0.5}, {10, 1}), 1e-12);
    const double all = weighted(key, value);
    for (const int64_t k : {4, 5, 100}) {
      EXPECT_NEAR(function(numbers({1}, key, value), first_tokens(1), {1, k}).item<double>(), all,
                  1e-12);
    }
    EXPECT_EQ(function(numbers({1}, key, value), first_tokens(1), {1, 1}).item<double>(), 100);
    EXPECT_THROW(function(numbers({1}, key, value), first_tokens(1), {1, 0}), c10::Error);
  }
}

TEST(TopKAttention, OfEqualLogitsTakesTheEarlier) {
  for (const auto& function : {attend, attend_portable}) {
    const Heads x = numbers({1}, {1, 2, 1, 1}, {1, 10, 100, 1000});
    EXPECT_NEAR(function(x, first_tokens(1), {1, 2}).item<double>(), weighted({1, 2}, {1, 10}),
                1e-12);
    const Heads zeros = numbers({1}, {-1, -0.0, 0.0, -0.0}, {1, 10, 100, 1000});
    EXPECT_NEAR(function(zeros, first_tokens(1), {1, 2}).item<double>(), 55, 1e-12);
  }
}

TEST(TopKAttention, IsTheSortedReferenceInEveryShape) {
  const ImageQueries queries = some_queries();
  for (const int64_t width : {2, 10, 32, 40}) {
    const Heads x = some_heads(width);
    for (const int64_t k : {1, 3, 7, 23, 24, 60}) {
      for (const TopKOptions& options : {TopKOptions{2, k, {}, kGrid}, window_options(k)}) {
        const torch::Tensor y = attend(x, queries, options);
        double worst = 0;
        for (int64_t r = 0; r < 9; ++r) {
          const int64_t image = r < 5 ? 0 : 2, token = queries.token_R[r].item<int64_t>();
          const bool has_window = options.candidates.from == CandidateKind::kWindow;
          const std::vector<int64_t> seen = window_of(token, kGrid, has_window ? 3 : 99);
          for (int64_t head = 0; head < 2; ++head) {
            const int64_t at = head * width / 2;
            const auto heads_of = [&](const torch::Tensor& x) {
              return Rows{x.const_data_ptr<double>() + at, width, width / 2};
            };
            const auto row =
                by_hand(x.query_RD.const_data_ptr<double>() + r * width + at,
                        heads_of(x.key_IND[image]), heads_of(x.value_IND[image]), seen, k);
            for (int64_t h = 0; h < width / 2; ++h) {
              worst = testing::worst_of(
                  worst, std::abs(y[r][at + h].item<double>() - row[static_cast<size_t>(h)]));
            }
          }
        }
        EXPECT_LT(worst, 1e-13) << "width " << width << ", k " << k;
      }
    }
  }
}

TEST(TopKAttention, KernelAndPortablePathAgreeForwardAndBackward) {
  for (const auto type : {torch::kFloat64, torch::kFloat32}) {
    const double tolerance = type == torch::kFloat64 ? 1e-13 : 2e-5;
    for (const TopKOptions& options : {TopKOptions{2, 5, {}, kGrid}, TopKOptions{2, 99, {}, kGrid},
                                       window_options(4), window_options(99)}) {
      std::vector<std::vector<torch::Tensor>> results;
      for (const auto& function : {attend, attend_portable}) {
        Heads x = some_heads(20, type);
        for (torch::Tensor* input : {&x.query_RD, &x.key_IND, &x.value_IND})
          input->requires_grad_();
        const torch::Tensor y = function(x, some_queries(), options);
        (y * some_numbers({9, 20}, 4).to(type)).sum().backward();
        results.push_back({y, x.query_RD.grad(), x.key_IND.grad(), x.value_IND.grad()});
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_LT(apart(results[0][i], results[1][i]), tolerance) << i;
      }
    }
  }
}

TEST(TopKAttention, HasTheGradientsOfTheKeptLogits) {
  Heads x{some_numbers({3, 4}, 1) * 3, some_numbers({2, 6, 4}, 2) * 3, some_numbers({2, 6, 4}, 3)};
  for (torch::Tensor* input : {&x.query_RD, &x.key_IND, &x.value_IND}) input->requires_grad_();
  const ImageQueries queries{torch::tensor({1, 5, 2}, torch::kInt64), {0, 2, 3}};
  for (TopKOptions options : {TopKOptions{2, 3}, window_options(2), pooled_options(3)}) {
    options.grid = {2, 3};
    EXPECT_LT(gradient_error([&] { return attend(x, queries, options); },
                             {x.query_RD, x.key_IND, x.value_IND}),
              1e-6);
  }
}

TEST(TopKAttention, ASubsetOfQueriesHasTheBitsOfAll) {
  const torch::Tensor x = some_numbers({2, 150, 3 * 32}, 1).to(torch::kFloat32);
  const std::vector<torch::Tensor> part = x.chunk(3, 2);  // views into wider rows
  const TopKOptions options{2, 40};
  const torch::Tensor all =
      top_k_attention(part[0].flatten(0, 1), part[1], part[2], {{}, {0, 150, 300}}, options);
  const torch::Tensor token_R = torch::tensor({1, 4, 149, 0, 70}, torch::kInt64);
  const torch::Tensor row_R = token_R + torch::tensor({0, 0, 0, 150, 150}, torch::kInt64);
  const torch::Tensor some = top_k_attention(part[0].flatten(0, 1).index_select(0, row_R), part[1],
                                             part[2], {token_R, {0, 3, 5}}, options);
  EXPECT_TRUE(torch::equal(some, all.index_select(0, row_R)));
}

TEST(TopKAttention, PooledBlocksAreThoseOfTheHighestMeanKeys) {
  // Blocks of 2 x 2 on a grid of 2 x 6; the query sees the two blocks with the highest mean key.
  const std::vector<double> key{1, 2, 9, -9, 4, 4, 1, 2, 0, 0, 3, 3};
  const std::vector<double> value{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  KeyCandidates candidates;
  candidates.from = CandidateKind::kPooled;
  candidates.block = 2;
  candidates.keep = 2;
  const torch::Tensor y =
      attend(numbers({1}, key, value), first_tokens(1), {1, 3, candidates, {2, 6}});
  EXPECT_NEAR(y.item<double>(), weighted({4, 4, 3}, {5, 6, 11}), 1e-12);
  EXPECT_EQ(num_candidates(candidates, {2, 6}), 8);
}

TEST(TopKAttention, ANaNReachesItsQueriesAndNoOthers) {
  Heads x = some_heads(20);
  x.query_RD[2][3] = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t k : {3, 99}) {
    const torch::Tensor y = attend(x, some_queries(), {2, k, {}, kGrid});
    EXPECT_TRUE(y[2].slice(0, 0, 10).isnan().all().item<bool>());
    EXPECT_FALSE(y.index_select(0, torch::tensor({0, 1, 3, 8})).isnan().any().item<bool>());
    EXPECT_FALSE(y[2].slice(0, 10, 20).isnan().any().item<bool>());
  }
}

TEST(TopKAttention, TakesBfloat16AndNoImages) {
  const Heads x = some_heads(20, torch::kBFloat16);
  const torch::Tensor y = attend(x, some_queries(), {2, 5});
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  const Heads wide{x.query_RD.to(torch::kFloat32), x.key_IND.to(torch::kFloat32),
                   x.value_IND.to(torch::kFloat32)};
  EXPECT_TRUE(torch::equal(y, attend(wide, some_queries(), {2, 5}).to(torch::kBFloat16)));
  const Heads none{torch::zeros({0, 4}), torch::zeros({0, 3, 4}), torch::zeros({0, 3, 4})};
  EXPECT_EQ(attend(none, {{}, {0}}, {2, 5}).sizes(), at::IntArrayRef({0, 4}));
}

}  // namespace
}  // namespace shoal
