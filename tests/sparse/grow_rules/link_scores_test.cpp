#include "sparse/grow_rules/link_scores.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/sparse/patterns/pattern_fixture.h"

// m rows  n columns
namespace shoal {
namespace {

using testing::mask_of;
using testing::uniform_numbers;

constexpr LinkScore kAll[] = {LinkScore::kCh3L3p, LinkScore::kCh2L3p, LinkScore::kCh3L3n,
                              LinkScore::kCh2L3n};

/// The definitions, link by link and path by path.
class PlainScores {
 public:
  explicit PlainScores(const torch::Tensor& mask_mn) : rows_(mask_mn.size(0)) {
    for (int64_t u = 0; u < rows_; ++u) {
      for (int64_t v = 0; v < mask_mn.size(1); ++v) {
        if (!mask_mn[u][v].item<bool>()) continue;
        neighbours(u).insert(column(v));
        neighbours(column(v)).insert(u);
      }
    }
  }

  double score(int64_t row, int64_t column_index, LinkScore kind) {
    const int64_t u = row, v = column(column_index);
    if (neighbours(u).contains(v)) return 0.0;
    if (kind == LinkScore::kCh3L3n || kind == LinkScore::kCh2L3n) {
      return half_of_pairs(u, v, kind) + half_of_pairs(v, u, kind);
    }
    return over_paths(u, v, kind);
  }

 private:
  /// Nodes are rows, then columns.
  int64_t column(int64_t v) const { return rows_ + v; }
  std::set<int64_t>& neighbours(int64_t node) { return neighbours_[static_cast<size_t>(node)]; }
  int64_t common(int64_t node, const std::set<int64_t>& others) {
    int64_t count = 0;
    for (const int64_t other : neighbours(node)) count += others.contains(other) ? 1 : 0;
    return count;
  }
  int64_t degree(int64_t node) { return static_cast<int64_t>(neighbours(node).size()); }

  double over_paths(int64_t u, int64_t v, LinkScore kind) {
    std::vector<std::pair<int64_t, int64_t>> paths;
    std::set<int64_t> community;
    for (const int64_t c : neighbours(u)) {
      for (const int64_t r : neighbours(v)) {
        if (!neighbours(c).contains(r)) continue;
        paths.emplace_back(c, r);
        community.insert({c, r});
      }
    }
    double sum = 0.0;
    for (const auto& [c, r] : paths) {
      const auto internal_c = static_cast<double>(common(c, community));
      const auto internal_r = static_cast<double>(common(r, community));
      const double external_c = static_cast<double>(degree(c)) - 1 - internal_c;
      const double external_r = static_cast<double>(degree(r)) - 1 - internal_r;
      const double inside = kind == LinkScore::kCh2L3p ? (1 + internal_c) * (1 + internal_r) : 1.0;
      sum += std::sqrt(inside / ((1 + external_c) * (1 + external_r)));
    }
    return sum;
  }
  /// From a over the neighbours b of the other end.
  double half_of_pairs(int64_t a, int64_t end, LinkScore kind) {
    double sum = 0.0;
    for (const int64_t b : neighbours(end)) {
      const int64_t shared = common(b, neighbours(a));
      if (shared == 0) continue;
      const auto external = static_cast<double>(std::max<int64_t>(degree(b) - shared, 1) - 1);
      const double inside = kind == LinkScore::kCh2L3n ? static_cast<double>(shared + 1) : 1.0;
      sum += inside / (external + 1);
    }
    return sum;
  }

  int64_t rows_;
  std::map<size_t, std::set<int64_t>> neighbours_;
};

double worst_error(const torch::Tensor& mask_mn, LinkScore kind) {
  PlainScores plain(mask_mn);
  const torch::Tensor score_mn = link_scores(mask_mn, kind);
  double worst = 0.0;
  for (int64_t u = 0; u < mask_mn.size(0); ++u) {
    for (int64_t v = 0; v < mask_mn.size(1); ++v) {
      const double expected = plain.score(u, v, kind);
      worst = std::max(worst, std::abs(score_mn[u][v].item<double>() - expected) / (1 + expected));
    }
  }
  return worst;
}

torch::Tensor random_mask(int64_t rows, int64_t columns, double density, uint64_t number) {
  return (uniform_numbers(rows * columns, number) < density).view({rows, columns});
}

// Of u = row 0 and v = column 3 the paths are c0 r1, c0 r2 and c1 r2.
//
//     c0 has rows 0, 1, 2: internal 2, external 3 - 1 - 2 = 0
//     c1 has rows 0, 2:    internal 1, external 2 - 1 - 1 = 0
//     r1 has columns 0, 2, 3: internal 1 (c0), external 3 - 1 - 1 = 1
//     r2 has columns 0, 1, 3: internal 2,      external 3 - 1 - 2 = 0
//
//     CH3-L3p  1/sqrt(1·2) + 1/sqrt(1·1) + 1/sqrt(1·1) = 1/sqrt(2) + 2
//     CH2-L3p  sqrt(3·2 / (1·2)) + sqrt(3·3 / 1) + sqrt(2·3 / 1) = sqrt(3) + 3 + sqrt(6)
//
// L3n, with the rows r1, r2 of v: row 0 shares 1 of r1's 3 columns and 2 of r2's 3, so 1 + e is 2
// and 1; with the columns c0, c1 of u: v shares 2 of c0's 3 rows and 1 of c1's 2, 1 + e is 1 and 1.
//
//     CH3-L3n  1/2 + 1/1 + 1/1 + 1/1 = 3.5
//     CH2-L3n  2/2 + 3/1 + 3/1 + 2/1 = 9
//
// Of u = row 0 and v = column 2 the one path is c0 r1, with e = 1 and i = 1 of both nodes. L3n:
// r1 as above; c0 shares 1 of its 3 rows with v, c1 none.
TEST(LinkScores, AreThoseOfAGraphByHand) {
  const torch::Tensor mask_mn = mask_of({{1, 1, 0, 0}, {1, 0, 1, 1}, {1, 1, 0, 1}});
  const auto score = [&](LinkScore kind, int64_t u, int64_t v) {
    return link_scores(mask_mn, kind)[u][v].item<double>();
  };
  EXPECT_NEAR(score(LinkScore::kCh3L3p, 0, 3), 1 / std::sqrt(2.0) + 2, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh2L3p, 0, 3), std::sqrt(3.0) + 3 + std::sqrt(6.0), 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh3L3n, 0, 3), 3.5, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh2L3n, 0, 3), 9.0, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh3L3p, 0, 2), 1 / 2.0, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh2L3p, 0, 2), 1.0, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh3L3n, 0, 2), 1 / 2.0 + 1 / 2.0, 1e-9);
  EXPECT_NEAR(score(LinkScore::kCh2L3n, 0, 2), 2 / 2.0 + 2 / 2.0, 1e-9);
}

TEST(LinkScores, EqualTheirDefinitions) {
  uint64_t number = 0;
  for (const auto& [rows, columns] : {std::pair{13, 9}, {9, 13}, {1, 7}, {7, 1}, {16, 16}}) {
    for (const double density : {0.1, 0.4, 0.8}) {
      const torch::Tensor mask_mn = random_mask(rows, columns, density, ++number);
      for (const LinkScore kind : kAll) {
        // Parts are rounded to 53 bits less those of the largest sum.
        EXPECT_LT(worst_error(mask_mn, kind), 1e-12)
            << rows << " x " << columns << " at " << density << ", " << static_cast<int>(kind);
      }
    }
  }
}

TEST(LinkScores, OfTheTransposedMaskAreTransposed) {
  const torch::Tensor mask_mn = random_mask(40, 24, 0.2, 1);
  for (const LinkScore kind : kAll) {
    const torch::Tensor score_mn = link_scores(mask_mn, kind);
    EXPECT_TRUE(torch::allclose(link_scores(mask_mn.t(), kind).t(), score_mn, 1e-12, 1e-12));
  }
}

TEST(LinkScores, AreZeroWhereThereIsALinkAndWhereNoPathLeads) {
  for (const LinkScore kind : kAll) {
    EXPECT_TRUE(torch::equal(link_scores(torch::ones({5, 3}, torch::kBool), kind),
                             torch::zeros({5, 3}, torch::kFloat64)));
    EXPECT_TRUE(torch::equal(link_scores(torch::zeros({5, 3}, torch::kBool), kind),
                             torch::zeros({5, 3}, torch::kFloat64)));
    // A row and a column without links.
    const torch::Tensor score_mn = link_scores(mask_of({{1, 1, 0}, {1, 0, 0}, {0, 0, 0}}), kind);
    EXPECT_GT(score_mn[1][1].item<double>(), 0);
    EXPECT_EQ(score_mn.count_nonzero().item<int64_t>(), 1);
  }
}

TEST(LinkScores, ThreadsDoNotChangeABit) {
  const torch::Tensor mask_mn = random_mask(300, 170, 0.15, 2);
  const int threads = at::get_num_threads();
  for (const LinkScore kind : kAll) {
    at::set_num_threads(1);
    const torch::Tensor score_mn = link_scores(mask_mn, kind);
    at::set_num_threads(3);
    EXPECT_TRUE(torch::equal(link_scores(mask_mn, kind), score_mn));
  }
  at::set_num_threads(threads);
}

TEST(LinkScores, RefuseWhatIsNoMask) {
  EXPECT_THROW(link_scores(torch::ones({3, 3}), LinkScore::kCh3L3p), c10::Error);
  EXPECT_THROW(link_scores(torch::ones({3}, torch::kBool), LinkScore::kCh3L3p), c10::Error);
}

}  // namespace
}  // namespace shoal
