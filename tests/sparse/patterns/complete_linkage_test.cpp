#include "sparse/patterns/complete_linkage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/sparse/patterns/pattern_fixture.h"

namespace shoal {
namespace {

using testing::uniform_numbers;

std::vector<float> distances(const std::vector<float>& points) {
  std::vector<float> result;
  for (const float a : points) {
    for (const float b : points) result.push_back(std::abs(a - b));
  }
  return result;
}

/// By the definition: joins the two nearest clusters until enough are joined.
std::vector<int64_t> by_definition(const std::vector<float>& distance_mm, int64_t m,
                                   int64_t num_clusters) {
  std::vector<int64_t> cluster(static_cast<size_t>(m));
  for (int64_t i = 0; i < m; ++i) cluster[static_cast<size_t>(i)] = i;
  for (int64_t left = m; left > num_clusters; --left) {
    std::pair<int64_t, int64_t> nearest;
    float least = INFINITY;
    for (int64_t a = 0; a < m; ++a) {
      for (int64_t b = a + 1; b < m; ++b) {
        float farthest = -1.0F;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < m; ++j) {
            if (cluster[static_cast<size_t>(i)] != a || cluster[static_cast<size_t>(j)] != b) {
              continue;
            }
            farthest = std::max(farthest, distance_mm[static_cast<size_t>(i * m + j)]);
          }
        }
        if (farthest >= 0.0F && farthest < least) {
          least = farthest;
          nearest = {a, b};
        }
      }
    }
    for (int64_t& id : cluster) {
      if (id == nearest.second) id = nearest.first;
    }
  }
  return cluster;
}

TEST(CompleteLinkage, JoinsByTheFarthestPoints) {
  // 0 and 1 first, then 5 and 6.5; 3 is 3 from the farthest of the first pair, 3.5 of the second.
  const std::vector<float> points{0.0F, 5.0F, 1.0F, 3.0F, 6.5F};
  EXPECT_EQ(complete_linkage(distances(points), 5, 3), (std::vector<int64_t>{0, 1, 0, 2, 1}));
  EXPECT_EQ(complete_linkage(distances(points), 5, 2), (std::vector<int64_t>{0, 1, 0, 0, 1}));
  EXPECT_EQ(complete_linkage(distances(points), 5, 5), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(complete_linkage(distances(points), 5, 1), (std::vector<int64_t>{0, 0, 0, 0, 0}));
}

TEST(CompleteLinkage, IsItsDefinition) {
  for (uint64_t number = 0; number < 20; ++number) {
    const torch::Tensor x = uniform_numbers(12, number);
    const std::vector<float> points(x.data_ptr<float>(), x.data_ptr<float>() + 12);
    for (const int64_t clusters : {2, 4, 7}) {
      const std::vector<int64_t> found = complete_linkage(distances(points), 12, clusters);
      const std::vector<int64_t> expected = by_definition(distances(points), 12, clusters);
      for (size_t i = 0; i < 12; ++i) {
        for (size_t j = 0; j < 12; ++j) {
          EXPECT_EQ(found[i] == found[j], expected[i] == expected[j]) << number;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
