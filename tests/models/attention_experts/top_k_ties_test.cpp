#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "models/attention_experts/kernels/top_k_attention.h"
#include "tests/support/gradient_check.h"

// N tokens of the image  H width of its one head  R queries
namespace shoal {
namespace {

using testing::some_numbers;

constexpr PatchGrid kTieGrid{4, 6};
constexpr auto kBothWays = {top_k_attention, top_k_attention_portable};

/// The single token that each token of the image attends to: values are the tokens' numbers.
template <class Function>
torch::Tensor chosen(Function function, const torch::Tensor& query_RH, const torch::Tensor& key_NH,
                     const KeyCandidates& candidates) {
  const torch::Tensor value_NH =
      torch::arange(key_NH.size(0), key_NH.options()).unsqueeze(1).expand_as(key_NH);
  const ImageQueries queries{torch::arange(query_RH.size(0)), {0, query_RH.size(0)}};
  return function(query_RH, key_NH.unsqueeze(0), value_NH.unsqueeze(0), queries,
                  {1, 1, candidates, kTieGrid})
      .select(1, 0)
      .to(torch::kInt64);
}

/// The first of the highest, of those that `is_seen`.
int64_t first_highest(const torch::Tensor& score_N, const torch::Tensor& is_seen_N) {
  int64_t best = -1;
  for (int64_t n = 0; n < score_N.size(0); ++n) {
    if (!is_seen_N[n].item<bool>()) continue;
    if (best < 0 || score_N[n].item<double>() > score_N[best].item<double>()) best = n;
  }
  return best;
}

/// Whether tokens are in the window around a token, or in the block of this number.
torch::Tensor near(int64_t token, int64_t window) {
  const torch::Tensor n = torch::arange(kTieGrid.tokens());
  const auto row = [](const torch::Tensor& x) { return x.div(kTieGrid.columns, "floor"); };
  const torch::Tensor own = torch::full({1}, token);
  return ((row(n) - row(own)).abs() <= window / 2) &
         ((n % kTieGrid.columns - own % kTieGrid.columns).abs() <= window / 2);
}
torch::Tensor of_block(int64_t block) {  // of 2 x 2
  const torch::Tensor n = torch::arange(kTieGrid.tokens());
  return n.div(2 * kTieGrid.columns, "floor") * (kTieGrid.columns / 2) +
             (n % kTieGrid.columns).div(2, "floor") ==
         block;
}

int64_t expected_choice(int64_t token, const torch::Tensor& query_H, const torch::Tensor& key_NH,
                        const KeyCandidates& candidates) {
  const torch::Tensor product_N = key_NH.mv(query_H),
                      all = torch::ones({kTieGrid.tokens()}).to(torch::kBool);
  if (candidates.from == CandidateKind::kAll) return first_highest(product_N, all);
  if (candidates.from == CandidateKind::kWindow) {
    return first_highest(product_N, near(token, *candidates.window));
  }
  std::vector<double> mean_of;
  for (int64_t b = 0; b < 6; ++b) {
    mean_of.push_back(product_N.masked_select(of_block(b)).mean().item<double>());
  }
  const torch::Tensor mean_P = torch::tensor(mean_of, torch::kFloat64);
  return first_highest(product_N,
                       of_block(first_highest(mean_P, torch::ones({6}).to(torch::kBool))));
}

// Products of small integers are exact, and many of them equal; their scaled factors are rounded.
TEST(TopKTies, OfEqualProductsOfRowsTheEarlierIsTaken) {
  const std::vector<KeyCandidates> kinds{
      {}, {CandidateKind::kWindow, 3, 4, 4}, {CandidateKind::kPooled, 7, 2, 1}};
  for (const int64_t width : {2, 3, 10, 11}) {
    const auto integers = [&](int64_t seed) {
      return (some_numbers({kTieGrid.tokens(), width}, seed) * 4).round();
    };
    const torch::Tensor query_RH = integers(1), key_NH = integers(2);
    for (const KeyCandidates& candidates : kinds) {
      std::vector<int64_t> expected;
      for (int64_t r = 0; r < kTieGrid.tokens(); ++r) {
        expected.push_back(expected_choice(r, query_RH[r], key_NH, candidates));
      }
      for (const auto type : {torch::kFloat64, torch::kFloat32}) {
        for (const auto& function : kBothWays) {
          EXPECT_TRUE(torch::equal(chosen(function, query_RH.to(type), key_NH.to(type), candidates),
                                   torch::tensor(expected, torch::kInt64)))
              << enum_name(candidates.from) << ", width " << width << ", " << type;
        }
      }
    }
  }
}

// The key of token 13 is that of token 2, and the queries are equal, however many there are.
TEST(TopKTies, OfEqualKeysTheEarlierIsTakenBesideAnyNumberOfQueries) {
  for (const auto type : {torch::kFloat64, torch::kFloat32}) {
    for (const int64_t width : {8, 16, 33}) {
      const torch::Tensor number = torch::arange(15 * width, torch::kFloat64).view({15, width});
      const torch::Tensor key_NH = (0.7 * number + 0.1).sin().to(type);
      key_NH[13] = key_NH[2];
      for (int64_t count = 1; count <= 15; ++count) {
        for (const auto& function : kBothWays) {
          const torch::Tensor choice =
              chosen(function, 3 * key_NH[2].expand({count, width}), key_NH, {});
          EXPECT_TRUE((choice == 2).all().item<bool>())
              << count << " queries of width " << width << ": " << choice;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
