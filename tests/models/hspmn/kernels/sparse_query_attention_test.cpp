#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/hspmn/kernels/sparse_query_attention.h"
#include "tests/support/gradient_check.h"

// B sequences  S tokens  N query heads  M heads of keys and values  H head width
// R queries of all sequences
namespace shoal {
namespace {

using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;

struct Sizes {
  int64_t tokens, heads, key_heads, width;
};

struct AttentionCase {
  torch::Tensor query_RNH, key_BMSH, value_BMSH;
  SparseQueries queries;
  double scale = 0.3;

  torch::Tensor out() const {
    return sparse_query_attention(query_RNH, key_BMSH, value_BMSH, queries, scale);
  }
  torch::Tensor portable(int64_t chunks) const {
    return sparse_query_attention_portable(query_RNH, key_BMSH, value_BMSH, queries,
                                           {scale, chunks});
  }
  AttentionCase to(torch::Dtype dtype) const {
    const auto leaf = [=](const torch::Tensor& x) {
      return x.detach().to(dtype).requires_grad_(x.requires_grad());
    };
    return {leaf(query_RNH), leaf(key_BMSH), leaf(value_BMSH), queries, scale};
  }
};

using Limits = std::vector<std::vector<int64_t>>;

AttentionCase attention_case(const Sizes& sizes, const Limits& limits,
                             torch::Dtype dtype = torch::kFloat64) {
  std::vector<int64_t> limit, offset{0};
  for (const std::vector<int64_t>& sequence : limits) {
    limit.insert(limit.end(), sequence.begin(), sequence.end());
    offset.push_back(static_cast<int64_t>(limit.size()));
  }
  const auto B = static_cast<int64_t>(limits.size());
  const auto R = static_cast<int64_t>(limit.size());
  const std::vector<int64_t> rows{B, sizes.key_heads, sizes.tokens, sizes.width};
  return {(some_numbers({R, sizes.heads, sizes.width}, 1) * 2).to(dtype).requires_grad_(),
          (some_numbers(rows, 2) * 2).to(dtype).requires_grad_(),
          some_numbers(rows, 3).to(dtype).requires_grad_(),
          {torch::tensor(limit, torch::kInt64), offset}};
}

/// Tokens first, first + step, ... below end.
std::vector<int64_t> every(int64_t step, int64_t end, int64_t first = 0) {
  std::vector<int64_t> result;
  for (int64_t token = first; token < end; token += step) result.push_back(token);
  return result;
}

/// float64, by definition: the softmax of each query's logits with the keys up to its limit, of
/// the head that shares its group.
torch::Tensor reference(const AttentionCase& c) {
  const torch::Tensor query = c.query_RNH.to(torch::kFloat64);
  const torch::Tensor key = c.key_BMSH.to(torch::kFloat64);
  const torch::Tensor value = c.value_BMSH.to(torch::kFloat64);
  const int64_t N = query.size(1), group = N / key.size(1);
  if (query.size(0) == 0) return query * 1.0 + (key.sum() + value.sum()) * 0.0;
  const torch::Tensor later = torch::arange(key.size(2)) > c.queries.limit_R.unsqueeze(1);
  std::vector<torch::Tensor> sequences;
  for (int64_t b = 0; b < key.size(0); ++b) {
    const int64_t begin = c.queries.offset_b1[b], count = c.queries.offset_b1[b + 1] - begin;
    std::vector<torch::Tensor> heads;
    for (int64_t n = 0; n < N; ++n) {
      const torch::Tensor rows = query.select(1, n).narrow(0, begin, count);
      const torch::Tensor logits =
          (torch::mm(rows, key[b][n / group].t()) * c.scale)
              .masked_fill(later.narrow(0, begin, count), -std::numeric_limits<double>::infinity());
      heads.push_back(torch::mm(logits.softmax(1), value[b][n / group]));
    }
    sequences.push_back(torch::stack(heads, 1));
  }
  return torch::cat(sequences);
}

struct Results {
  torch::Tensor out, query, key, value;

  std::vector<torch::Tensor> all() const { return {out, query, key, value}; }
};

Results results_of(const AttentionCase& c, const torch::Tensor& out) {
  for (torch::Tensor x : {c.query_RNH, c.key_BMSH, c.value_BMSH}) x.mutable_grad().reset();
  (out * some_numbers(out.sizes(), 4).to(out.scalar_type())).sum().backward();
  return {out.detach(), c.query_RNH.grad(), c.key_BMSH.grad(), c.value_BMSH.grad()};
}

void expect_near(const Results& found, const Results& expected, double tolerance,
                 const std::string& what) {
  const char* const names[] = {"output", "query", "key", "value"};
  for (size_t i = 0; i < 4; ++i) {
    const torch::Tensor x = found.all()[i], y = expected.all()[i];
    ASSERT_EQ(x.sizes(), y.sizes()) << what << ' ' << names[i];
    if (x.numel() == 0) continue;
    EXPECT_LE(relative_error(x, y), tolerance) << what << ' ' << names[i];
  }
}

void expect_equal(const Results& found, const Results& expected, const std::string& what) {
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(found.all()[i].equal(expected.all()[i])) << what << ' ' << i;
  }
}

/// Error of a result: sums of some hundred products and of some thousand probabilities, each in
/// order, relative to the largest number. sqrt(1000) roundings and some.
double tolerance_of(torch::Dtype dtype) {
  switch (dtype) {
    case torch::kFloat64:
      return 1e-13;
    case torch::kFloat32:
      return 1e-5;
    default:
      return 2e-2;  // inputs as given, results of 8 bits, of which the backward pass reads some
  }
}

void expect_is_reference(const AttentionCase& c, const std::string& what) {
  // The same numbers, bfloat16's too, in float64.
  const AttentionCase wide = c.to(torch::kFloat64);
  expect_near(results_of(c, c.out()), results_of(wide, reference(wide)),
              tolerance_of(c.query_RNH.scalar_type()), what);
}

const std::vector<Sizes>& groupings() {
  static const std::vector<Sizes> all{{130, 4, 4, 16}, {130, 8, 2, 16}, {130, 16, 2, 16}};
  return all;
}

TEST(SparseQueryAttention, OfGroupedHeadsIsThatOfHeadNOverGroupNotNModuloKeyHeads) {
  // Keys and values differ by head: n % M in place of n / (N / M) gives other results.
  for (const Sizes& sizes : groupings()) {
    expect_is_reference(attention_case(sizes, {every(5, 130), every(3, 130, 1)}),
                        std::to_string(sizes.heads) + " on " + std::to_string(sizes.key_heads));
  }
}

TEST(SparseQueryAttention, TakesRaggedBatchesAndSequencesWithoutQueries) {
  const Sizes sizes{200, 4, 2, 16};
  expect_is_reference(attention_case(sizes, {{}, {199}, every(7, 150), {}, {0, 1, 2}, {}}),
                      "ragged");
  expect_is_reference(attention_case(sizes, {{3}}), "one query");
  expect_is_reference(attention_case(sizes, {{0, 0, 5, 5, 5, 199, 199}}), "equal limits");
}

TEST(SparseQueryAttention, TakesNoQueriesAndNoSequences) {
  for (const Limits& limits : {Limits{}, Limits{{}}, Limits{{}, {}}}) {
    const AttentionCase c = attention_case({20, 4, 2, 16}, limits);
    const Results found = results_of(c, c.out());
    EXPECT_EQ(found.out.sizes(), (std::vector<int64_t>{0, 4, 16}));
    expect_equal(found, results_of(c, reference(c)), "no query");
    expect_equal(found, results_of(c, c.portable(2)), "no query, portable");
  }
}

TEST(SparseQueryAttention, OfAllTokensIsLibTorchsCausalAttention) {
  const int64_t S = 300;
  const AttentionCase c =
      attention_case({S, 8, 2, 24}, {every(1, S), every(1, S)}, torch::kFloat32);
  const auto causal = [&] {
    const torch::Tensor query = c.query_RNH.view({2, S, 8, 24}).transpose(1, 2);
    const auto expanded = [](const torch::Tensor& x) { return x.repeat_interleave(4, 1); };
    return at::scaled_dot_product_attention(query, expanded(c.key_BMSH), expanded(c.value_BMSH), {},
                                            0.0, /*is_causal=*/true, c.scale)
        .transpose(1, 2)
        .reshape({2 * S, 8, 24});
  };
  expect_near(results_of(c, c.out()), results_of(c, causal()), 1e-5, "causal");
}

TEST(SparseQueryAttention, OfEvery64thTokenIsTheReference) {
  expect_is_reference(attention_case({1100, 4, 1, 16}, {every(64, 1100), every(64, 1100)}),
                      "anchors");
}

// Several tiles of queries, several parts and chunks of keys in the backward pass, and of float64
// twice as many.
TEST(SparseQueryAttention, OfLongSequencesIsTheReference) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    expect_is_reference(
        attention_case({2700, 4, 2, 64}, {every(29, 2700), every(97, 2700, 11)}, dtype), "long");
  }
}

TEST(SparseQueryAttention, TakesAnyHeadWidth) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const int64_t width : {1, 5, 16, 24, 40, 48, 63, 64, 80, 96, 112, 128, 144, 200}) {
      expect_is_reference(attention_case({70, 6, 2, width}, {every(4, 70), every(9, 70)}, dtype),
                          "width " + std::to_string(width));
    }
  }
}

TEST(SparseQueryAttention, TakesMoreHeadsOfAGroupThanATileHasRows) {
  expect_is_reference(attention_case({60, 100, 1, 8}, {every(7, 60)}), "100 heads");
}

TEST(SparseQueryAttention, ReadsViewsOfAProjectionAndOfACache) {
  const AttentionCase c =
      attention_case({90, 4, 2, 16}, {every(4, 90), every(9, 90)}, torch::kFloat32);
  const Results expected = results_of(c, c.out());
  // [B, S, 3, M H], of which the keys are the second and the values the third.
  torch::Tensor projection = torch::zeros({2, 90, 3, 32});
  const auto view = [&](int64_t part) {
    return projection.select(2, part).view({2, 90, 2, 16}).transpose(1, 2);
  };
  view(1).copy_(c.key_BMSH.detach());
  view(2).copy_(c.value_BMSH.detach());
  projection.requires_grad_();
  torch::Tensor query = torch::zeros({c.query_RNH.size(0), 4, 20});
  query.narrow(2, 2, 16).copy_(c.query_RNH.detach());
  query.requires_grad_();
  const AttentionCase views{query.narrow(2, 2, 16), view(1), view(2), c.queries, c.scale};
  const torch::Tensor out = views.out();
  (out * some_numbers(out.sizes(), 4).to(torch::kFloat32)).sum().backward();
  const torch::Tensor grad = projection.grad();
  const auto part = [&](int64_t i) {
    return grad.select(2, i).reshape({2, 90, 2, 16}).transpose(1, 2);
  };
  EXPECT_TRUE(part(0).eq(0).all().item<bool>());
  expect_equal({out.detach(), query.grad().narrow(2, 2, 16), part(1), part(2)}, expected, "views");
}

TEST(SparseQueryAttention, NeverReadsBehindTheLastLimit) {
  const AttentionCase c =
      attention_case({300, 4, 2, 16}, {every(7, 130), {}, every(9, 200)}, torch::kFloat32);
  const Results expected = results_of(c, c.out());
  {
    const torch::NoGradGuard no_grad;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const torch::Tensor& x : {c.key_BMSH, c.value_BMSH}) {
      x[0].narrow(1, 127, 173).fill_(nan);
      x[1].fill_(nan);
      x[2].narrow(1, 199, 101).fill_(nan);
    }
  }
  expect_equal(results_of(c, c.out()), expected, "NaN behind the last limit");
  for (const torch::Tensor& grad : {expected.key, expected.value}) {
    EXPECT_TRUE(grad[0].narrow(1, 127, 173).eq(0).all().item<bool>());
    EXPECT_TRUE(grad[1].eq(0).all().item<bool>());
    EXPECT_TRUE(grad[2].narrow(1, 199, 101).eq(0).all().item<bool>());
  }
}

TEST(SparseQueryAttention, DoesNotChangeABitWithLaterKeys) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const AttentionCase c = attention_case({200, 8, 2, 24}, {every(3, 200)}, dtype);
    const torch::NoGradGuard no_grad;
    const torch::Tensor before = c.out();
    c.key_BMSH.narrow(2, 100, 100).mul_(-5).add_(3);
    c.value_BMSH.narrow(2, 100, 100).mul_(7).sub_(1);
    const torch::Tensor after = c.out();
    // Queries 0 .. 33 have limits up to 99.
    EXPECT_TRUE(after.narrow(0, 0, 34).equal(before.narrow(0, 0, 34)));
    EXPECT_FALSE(after[34].equal(before[34]));
  }
}

TEST(SparseQueryAttention, OfAQueryIsIndependentOfOtherQueriesAndSequences) {
  const Limits limits{every(3, 400), every(11, 400), {399}};
  const AttentionCase c = attention_case({400, 4, 2, 40}, limits, torch::kFloat32);
  const Results whole = results_of(c, c.out());
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t begin = c.queries.offset_b1[b], count = c.queries.offset_b1[b + 1] - begin;
    const auto leaf = [](const torch::Tensor& x) { return x.detach().clone().requires_grad_(); };
    const AttentionCase one{leaf(c.query_RNH.narrow(0, begin, count)),
                            leaf(c.key_BMSH.narrow(0, b, 1)),
                            leaf(c.value_BMSH.narrow(0, b, 1)),
                            {c.queries.limit_R.narrow(0, begin, count), {0, count}},
                            c.scale};
    const torch::Tensor out = one.out();
    const torch::Tensor upstream = some_numbers(whole.out.sizes(), 4).to(torch::kFloat32);
    (out * upstream.narrow(0, begin, count)).sum().backward();
    expect_equal({out.detach(), one.query_RNH.grad(), one.key_BMSH.grad(), one.value_BMSH.grad()},
                 {whole.out.narrow(0, begin, count), whole.query.narrow(0, begin, count),
                  whole.key.narrow(0, b, 1), whole.value.narrow(0, b, 1)},
                 "sequence " + std::to_string(b));
  }
}

// A later token may add queries: those before must keep their bits. Of many queries each thread
// takes some, of few the threads share the keys.
TEST(SparseQueryAttention, OfManyQueriesHasTheBitsOfEachAlone) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const AttentionCase c = attention_case({5000, 4, 2, 24}, {every(5, 5000)}, dtype);
    const torch::NoGradGuard no_grad;
    const torch::Tensor whole = c.out();
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {999, 1}, {500, 1}, {411, 3}, {412, 2}, {820, 90}, {0, 999}}) {
      const AttentionCase part{c.query_RNH.narrow(0, first, count),
                               c.key_BMSH,
                               c.value_BMSH,
                               {c.queries.limit_R.narrow(0, first, count), {0, count}},
                               c.scale};
      EXPECT_TRUE(part.out().equal(whole.narrow(0, first, count))) << first << ' ' << dtype;
    }
    EXPECT_LE(relative_error(whole, reference(c)), tolerance_of(dtype));
  }
}

TEST(SparseQueryAttention, IsTheSameForAnyNumberOfThreads) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const AttentionCase c =
        attention_case({2200, 4, 2, 24}, {every(17, 2200), every(5, 300), {}}, dtype);
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const Results one = results_of(c, c.out());
    for (const int count : {2, 3, 4}) {
      at::set_num_threads(count);
      expect_equal(results_of(c, c.out()), one, std::to_string(count) + " threads");
    }
    at::set_num_threads(threads);
  }
}

TEST(SparseQueryAttention, Float32AndBfloat16AreFloat64sToRounding) {
  const AttentionCase c =
      attention_case({700, 8, 2, 64}, {every(5, 700), every(50, 700, 3)}, torch::kBFloat16);
  expect_is_reference(c, "bfloat16");
  expect_is_reference(c.to(torch::kFloat32), "float32");
  expect_is_reference(c.to(torch::kFloat64), "float64");
}

// Logits of some thousands: exp would overflow but for the highest, and others vanish.
TEST(SparseQueryAttention, TakesLargeLogits) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    AttentionCase c = attention_case({200, 4, 2, 16}, {every(7, 200)}, dtype);
    c.scale = 1000.0;
    const torch::NoGradGuard no_grad;
    const torch::Tensor found = c.out(), expected = reference(c.to(torch::kFloat64));
    EXPECT_TRUE(found.isfinite().all().item<bool>());
    // A logit of 2^13 has an error of 2^-11 in float32, which the exponential keeps.
    EXPECT_LE(relative_error(found, expected), dtype == torch::kFloat32 ? 2e-2 : 1e-10);
  }
}

TEST(SparseQueryAttention, IsNotANumberWhereAKeyIsNone) {
  const AttentionCase c = attention_case({200, 4, 2, 16}, {every(7, 200)}, torch::kFloat32);
  const torch::NoGradGuard no_grad;
  c.key_BMSH[0][1][100][3] = std::numeric_limits<double>::quiet_NaN();
  const torch::Tensor out = c.out();
  EXPECT_TRUE(out.narrow(1, 0, 2).isfinite().all().item<bool>());
  EXPECT_TRUE(out.narrow(0, 15, 14).narrow(1, 2, 2).isnan().all().item<bool>());
  EXPECT_TRUE(out.narrow(0, 0, 14).isfinite().all().item<bool>());
}

TEST(SparseQueryAttention, HasTheGradientsOfFiniteDifferences) {
  const AttentionCase c = attention_case({7, 4, 2, 3}, {{0, 2, 5}, {}, {6}});
  EXPECT_LE(gradient_error([&] { return c.out(); }, {c.query_RNH, c.key_BMSH, c.value_BMSH}), 1e-6);
}

TEST(SparseQueryAttention, PortablePathIsTheSame) {
  for (const Sizes& sizes : groupings()) {
    const AttentionCase c = attention_case(sizes, {every(5, 130), {}, every(40, 130, 1)});
    const Results expected = results_of(c, c.out());
    for (const int64_t chunks : {1, 3, 100}) {
      expect_near(results_of(c, c.portable(chunks)), expected, 1e-12, std::to_string(chunks));
    }
  }
  const AttentionCase narrow = attention_case({130, 8, 2, 16}, {every(5, 130)}, torch::kBFloat16);
  expect_near(results_of(narrow, narrow.portable(2)), results_of(narrow, narrow.out()), 3e-2, "16");
}

TEST(SparseQueryAttention, DifferentiatesOnlyWhatIsTrained) {
  const AttentionCase c = attention_case({40, 4, 2, 8}, {every(5, 40)});
  const Results all = results_of(c, c.out());
  c.key_BMSH.requires_grad_(false);
  for (torch::Tensor x : {c.query_RNH, c.key_BMSH, c.value_BMSH}) x.mutable_grad().reset();
  const torch::Tensor out = c.out();
  (out * some_numbers(out.sizes(), 4)).sum().backward();
  EXPECT_FALSE(c.key_BMSH.grad().defined());
  EXPECT_TRUE(c.query_RNH.grad().equal(all.query));
  EXPECT_TRUE(c.value_BMSH.grad().equal(all.value));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(c.out().requires_grad());
  EXPECT_TRUE(c.out().equal(all.out));
}

TEST(SparseQueryAttention, RefusesSecondDerivatives) {
  const AttentionCase c = attention_case({20, 2, 2, 8}, {every(5, 20)});
  EXPECT_THROW(torch::autograd::grad({c.out().sum()}, {c.query_RNH}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::Error);
}

TEST(SparseQueryAttention, RefusesWhatDoesNotFit) {
  const AttentionCase good = attention_case({20, 4, 2, 8}, {every(5, 20), {3}});
  const auto refuses = [&](const std::function<void(AttentionCase&)>& spoil) {
    AttentionCase c = good;
    spoil(c);
    EXPECT_THROW(c.out(), c10::Error);
    EXPECT_THROW(c.portable(2), c10::Error);
  };
  refuses([](AttentionCase& c) { c.query_RNH = some_numbers({5, 3, 8}, 1); });  // 3 heads on 2
  refuses([](AttentionCase& c) { c.query_RNH = some_numbers({5, 4, 9}, 1); });
  refuses([](AttentionCase& c) { c.query_RNH = c.query_RNH.to(torch::kFloat32); });
  refuses([](AttentionCase& c) { c.value_BMSH = c.value_BMSH.narrow(2, 0, 19); });
  refuses([](AttentionCase& c) {
    c.key_BMSH = c.key_BMSH.transpose(2, 3).contiguous().transpose(2, 3);
  });
  refuses([](AttentionCase& c) { c.queries.offset_b1 = {0, 5}; });
  refuses([](AttentionCase& c) { c.queries.offset_b1 = {0, 6, 5}; });
  refuses([](AttentionCase& c) { c.queries.offset_b1 = {0, 4, 4}; });
  for (const int64_t limit : {-1, 20, 2}) {  // 2: descends
    refuses([=](AttentionCase& c) {
      c.queries.limit_R = c.queries.limit_R.clone();
      c.queries.limit_R[limit == -1 ? 0 : 3] = limit;
    });
  }
  refuses([](AttentionCase& c) { c.queries.limit_R = c.queries.limit_R.to(torch::kInt32); });
  refuses([](AttentionCase& c) { c.queries.limit_R = c.queries.limit_R.narrow(0, 0, 4); });
  EXPECT_THROW(good.portable(0), c10::Error);
}

}  // namespace
}  // namespace shoal
