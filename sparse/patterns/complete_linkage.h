#pragma once

#include <cstdint>
#include <vector>

// m points
namespace shoal {

/// Agglomerative clustering with complete linkage, by which the pattern `shuffled_block` groups
/// rows of similar masks. Starting from single points, repeatedly merges the two clusters whose
/// farthest points are nearest, until `num_clusters` are left. O(m²) time and memory. `distance_mm`
/// is symmetric, row by row, of m = num_points. Ties are merged in a deterministic order.
///
/// Returns each point's cluster, numbered in order of the clusters' lowest points.
std::vector<int64_t> complete_linkage(std::vector<float> distance_mm, int64_t num_points,
                                      int64_t num_clusters);

}  // namespace shoal
