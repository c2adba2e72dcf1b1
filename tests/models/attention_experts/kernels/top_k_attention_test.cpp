#include "models/attention_experts/kernels/top_k_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/gradient_check.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {
namespace {

using testing::apart;
using testing::gradient_error;
using testing::relative_error;
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

/// The tokens of the blocks whose mean key has the highest logits, of equal ones the first blocks.
std::vector<int64_t> in_best_blocks(const torch::Tensor& query_H, const torch::Tensor& key_NH,
                                    const TopKOptions& options) {
  const PatchGrid& grid = options.grid;
  const int64_t side = *options.candidates.block;
  std::vector<std::vector<int64_t>> blocks;
  for (int64_t top = 0; top < grid.rows; top += side) {
    for (int64_t left = 0; left < grid.columns; left += side) {
      blocks.emplace_back();
      for (int64_t row = top; row < std::min(top + side, grid.rows); ++row) {
        for (int64_t column = left; column < std::min(left + side, grid.columns); ++column) {
          blocks.back().push_back(row * grid.columns + column);
        }
      }
    }
  }
  std::vector<double> score;
  for (const std::vector<int64_t>& block : blocks) {
    score.push_back(
        key_NH.index_select(0, torch::tensor(block)).mean(0).dot(query_H).item<double>());
  }
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score[a] > score[b]; });
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(*options.candidates.keep));
       ++i) {
    tokens.insert(tokens.end(), blocks[order[i]].begin(), blocks[order[i]].end());
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<int64_t> candidates_of(int64_t token, const torch::Tensor& query_H,
                                   const torch::Tensor& key_NH, const TopKOptions& options) {
  if (options.candidates.from == CandidateKind::kPooled) {
    return in_best_blocks(query_H.detach(), key_NH.detach(), options);
  }
  const bool has_window = options.candidates.from == CandidateKind::kWindow;
  return window_of(token, options.grid, has_window ? *options.candidates.window : 99);
}

/// By sorting the candidates of one query and head after another.
torch::Tensor attend_one_by_one(const Heads& x, const ImageQueries& queries,
                                const TopKOptions& options) {
  const int64_t H = x.query_RD.size(1) / options.heads;
  std::vector<torch::Tensor> heads;
  for (int64_t head = 0; head < options.heads; ++head) {
    std::vector<torch::Tensor> rows;
    for (size_t i = 0; i + 1 < queries.offset_i1.size(); ++i) {
      const auto of_image = [&](const torch::Tensor& x_IND) {
        return x_IND[static_cast<int64_t>(i)].narrow(1, head * H, H);
      };
      const torch::Tensor key_NH = of_image(x.key_IND), value_NH = of_image(x.value_IND);
      for (int64_t r = queries.offset_i1[i]; r < queries.offset_i1[i + 1]; ++r) {
        const torch::Tensor query_H = x.query_RD[r].narrow(0, head * H, H);
        const int64_t token = queries.token_R[r].item<int64_t>();
        const torch::Tensor seen_C =
            torch::tensor(candidates_of(token, query_H, key_NH, options), torch::kInt64);
        const torch::Tensor logit_C =
            key_NH.index_select(0, seen_C).matmul(query_H) / std::sqrt(static_cast<double>(H));
        const torch::Tensor best_K = logit_C.detach()
                                         .argsort(/*stable=*/true, 0, /*descending=*/true)
                                         .slice(0, 0, options.k);
        rows.push_back(logit_C.index_select(0, best_K).softmax(0).matmul(
            value_NH.index_select(0, seen_C.index_select(0, best_K))));
      }
    }
    heads.push_back(torch::stack(rows));
  }
  return torch::cat(heads, 1);
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
      for (const TopKOptions& options :
           {TopKOptions{2, k, {}, kGrid}, window_options(k), pooled_options(k)}) {
        const torch::Tensor expected = attend_one_by_one(x, queries, options);
        EXPECT_LT(apart(attend(x, queries, options), expected), 1e-13)
            << "width " << width << ", k " << k;
      }
    }
  }
}

using Attention =
    std::function<torch::Tensor(const Heads&, const ImageQueries&, const TopKOptions&)>;

/// The output and the gradients of queries, keys and values under one loss.
std::vector<torch::Tensor> output_and_gradients(const Attention& function, const Heads& x,
                                                const ImageQueries& queries,
                                                const TopKOptions& options) {
  const auto leaf = [](const torch::Tensor& input) {
    return input.detach().clone().set_requires_grad(true);
  };
  const Heads leaves{leaf(x.query_RD), leaf(x.key_IND), leaf(x.value_IND)};
  const torch::Tensor y = function(leaves, queries, options);
  // Weights that all dtypes have: eighths.
  (y * (some_numbers(y.sizes(), 4) * 8).round().div(8).to(y.scalar_type())).sum().backward();
  return {y.detach(), leaves.query_RD.grad(), leaves.key_IND.grad(), leaves.value_IND.grad()};
}

/// Images of 12 x 12 patches, so that 64 queries of a tile are some of them. Of the first only
/// tokens of the rows 2 to 11 are queries, of the second none, of the third all, from the last on.
constexpr PatchGrid kTiles{12, 12};
ImageQueries queries_of_tiles() {
  std::vector<int64_t> token_R;
  for (int64_t token = 30; token < 144; ++token) {
    if (token % 7 != 3) token_R.push_back(token);
  }
  const auto first = static_cast<int64_t>(token_R.size());
  for (int64_t token = 143; token >= 0; --token) token_R.push_back(token);
  return {torch::tensor(token_R, torch::kInt64), {0, first, first, first + 144}};
}
Heads heads_of_tiles(torch::ScalarType type) {
  const int64_t R = queries_of_tiles().offset_i1.back();
  // Rounded to bfloat16, so that all dtypes have the same numbers.
  const auto numbers_of = [&](at::IntArrayRef sizes, int64_t seed, double scale) {
    return (some_numbers(sizes, seed) * scale).to(torch::kBFloat16).to(type);
  };
  return {numbers_of({R, 20}, 1, 3), numbers_of({3, 144, 20}, 2, 3),
          numbers_of({3, 144, 20}, 3, 1)};
}

std::vector<TopKOptions> options_of_tiles() {
  const KeyCandidates window{CandidateKind::kWindow, 5, 4, 4},
      pooled{CandidateKind::kPooled, 7, 5, 3};
  return {{2, 20, {}, kTiles},     {2, 144, {}, kTiles},   {2, 7, window, kTiles},
          {2, 25, window, kTiles}, {2, 9, pooled, kTiles}, {2, 75, pooled, kTiles}};
}

// An output is a sum of at most 144 products, a gradient one of 144 queries: rounding of 144
// epsilons at most beside the largest number.
TEST(TopKAttention, IsTheSortedReferenceOverSeveralTilesForwardAndBackward) {
  const ImageQueries queries = queries_of_tiles();
  for (const TopKOptions& options : options_of_tiles()) {
    const auto expected =
        output_and_gradients(attend_one_by_one, heads_of_tiles(torch::kFloat64), queries, options);
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      const double epsilon = type == torch::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon();
      for (const auto& function : {attend, attend_portable}) {
        const auto result = output_and_gradients(function, heads_of_tiles(type), queries, options);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_LT(relative_error(result[i], expected[i]), 144 * epsilon)
              << enum_name(options.candidates.from) << ", k " << options.k << ": " << i;
        }
      }
    }
  }
}

// Heads of whole vectors, whose rows the kernel reads and writes in place; so many images that a
// thread computes all heads of one; from none to all tokens of an image as queries.
TEST(TopKAttention, IsTheSortedReferenceOfWholeVectorsAndManyImages) {
  const int64_t images = 8 * std::min(at::get_num_threads(), 2) + 1;
  std::vector<int64_t> token_R;
  ImageQueries queries{{}, {0}};
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t token = 0; token < 24; ++token) {
      if (i % 3 == 0 || (i % 3 == 1 && token % 5 == 2)) token_R.push_back(token);
    }
    queries.offset_i1.push_back(std::ssize(token_R));
  }
  queries.token_R = torch::tensor(token_R, torch::kInt64);
  const auto heads_of = [&](torch::ScalarType type) {
    const auto numbers_of = [&](at::IntArrayRef sizes, int64_t seed) {
      return (some_numbers(sizes, seed) * 3).to(torch::kFloat32).to(type);
    };
    return Heads{numbers_of({std::ssize(token_R), 64}, 1), numbers_of({images, 24, 64}, 2),
                 numbers_of({images, 24, 64}, 3)};
  };
  for (const TopKOptions& options :
       {TopKOptions{2, 7, {}, kGrid}, TopKOptions{2, 24, {}, kGrid}, window_options(4)}) {
    const auto expected =
        output_and_gradients(attend_one_by_one, heads_of(torch::kFloat64), queries, options);
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      const double epsilon = type == torch::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon();
      const auto result = output_and_gradients(attend, heads_of(type), queries, options);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(relative_error(result[i], expected[i]), 144 * epsilon)
            << enum_name(options.candidates.from) << ", k " << options.k << ": " << i;
      }
    }
  }
}

// Computed in float32 and rounded once, to half an epsilon: the gradients too, as none is added to
// another in bfloat16.
TEST(TopKAttention, Bfloat16IsFloat32RoundedForwardAndBackward) {
  const ImageQueries queries = queries_of_tiles();
  for (const TopKOptions& options : options_of_tiles()) {
    const auto wide =
        output_and_gradients(attend, heads_of_tiles(torch::kFloat32), queries, options);
    const auto portable =
        output_and_gradients(attend_portable, heads_of_tiles(torch::kBFloat16), queries, options);
    const auto result =
        output_and_gradients(attend, heads_of_tiles(torch::kBFloat16), queries, options);
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(result[i].scalar_type(), torch::kBFloat16);
      EXPECT_TRUE(result[i].equal(wide[i].to(torch::kBFloat16))) << i;
      EXPECT_LT(relative_error(portable[i], wide[i]),
                0.51 * std::numeric_limits<c10::BFloat16>::epsilon())
          << i;
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

/// Two parts that share keys and values, as columns of one tensor; their queries are rows of
/// another, their weights columns of a third.
void expect_parts_are_those_of_each(const std::vector<TopKOptions>& options, int64_t dim,
                                    int64_t width) {
  const Heads x = some_heads(width);
  const int64_t R = x.query_RD.size(0);
  const torch::Tensor query =
      at::cat({x.query_RD, 2 * x.query_RD}).detach().clone().requires_grad_();
  const torch::Tensor both_TD =
      at::cat({x.key_IND, x.value_IND}, 2).flatten(0, 1).detach().clone().requires_grad_();
  const torch::Tensor weight = some_numbers({R, 2}, 31).requires_grad_();
  const auto heads = [&](int64_t first) {
    return both_TD.narrow(1, first, width).unflatten(0, x.key_IND.sizes().slice(0, 2));
  };
  std::vector<torch::Tensor> each;
  std::vector<TopKPart> parts;
  for (int64_t p = 0; p < 2; ++p) {
    const TopKOptions& own = options[static_cast<size_t>(p)];
    each.push_back(
        top_k_attention(query.narrow(0, p * R, R), heads(0), heads(width), some_queries(), own) *
        weight.select(1, p).unsqueeze(1));
    parts.push_back({{0, 0}, p * R, {1, 0}, {1, width}, some_queries(), own, Columns{2, p}});
  }
  const torch::Tensor together = top_k_attention_of({query, both_TD, weight}, parts, width, dim);
  const torch::Tensor expected = at::cat(each, dim);
  EXPECT_TRUE(torch::allclose(together, expected, 1e-14, 1e-14));
  const torch::Tensor factor = some_numbers(expected.sizes(), 32);
  const auto gradients = [&](const torch::Tensor& y) {
    return torch::autograd::grad({(y * factor).square().sum()}, {query, both_TD, weight});
  };
  const auto wanted = gradients(expected), found = gradients(together);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i], wanted[i], 1e-12, 1e-12)) << "input " << i;
  }
}

TEST(TopKAttention, OfSeveralPartsIsThatOfEach) {
  KeyCandidates pooled;
  pooled.from = CandidateKind::kPooled;
  pooled.block = 2;
  pooled.keep = 2;
  for (const int64_t dim : {0, 1}) {
    for (const int64_t width : {20, 32}) {
      expect_parts_are_those_of_each({{2, 3, {}, kGrid}, {2, 99, {}, kGrid}}, dim, width);
      // The second has no kernel.
      expect_parts_are_those_of_each({{2, 3, {}, kGrid}, {2, 5, pooled, kGrid}}, dim, width);
    }
  }
}

TEST(TopKAttention, RefusesPartsThatDoNotFit) {
  const Heads x = some_heads(20);
  const torch::Tensor both_TD = at::cat({x.key_IND, x.value_IND}, 2).flatten(0, 1);
  const TopKOptions all{2, 3, {}, kGrid};
  const TopKPart part{{0, 0}, 0, {1, 0}, {1, 20}, some_queries(), all};
  const auto refuses = [&](const std::vector<TopKPart>& parts, int64_t dim,
                           const torch::Tensor& keys) {
    EXPECT_THROW(top_k_attention_of({x.query_RD, keys}, parts, 20, dim), c10::Error);
  };
  EXPECT_NO_THROW(top_k_attention_of({x.query_RD, both_TD}, {part, part}, 20, 1));
  refuses({}, 0, both_TD);
  refuses({part}, 2, both_TD);
  refuses({part}, 0, both_TD.to(torch::kFloat32));
  refuses({part}, 0, both_TD.narrow(0, 0, 70));
  TopKPart other = part;
  other.value = {1, 0};
  refuses({part, other}, 0, both_TD);
  other = part;
  other.queries = {torch::tensor({5, 7}, torch::kInt64), {0, 1, 1, 2}};
  EXPECT_NO_THROW(top_k_attention_of({x.query_RD, both_TD}, {part, other}, 20, 0));
  refuses({part, other}, 1, both_TD);
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
