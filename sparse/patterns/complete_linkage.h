#pragma once

#include <cstdint>
#include <vector>

// m points
namespace shoal {

/// Agglomerative clustering with complete linkage: starting from single points, repeatedly merges
/// the two clusters whose farthest points are nearest, until `num_clusters` are left. O(m²) time
/// and memory. `distance_mm` is symmetric, row-major. Ties are merged in the order of
/// nearest-neighbour chains, which is deterministic.
///
/// Returns each point's cluster, numbered in order of the clusters' lowest points.
std::vector<int64_t> complete_linkage(std::vector<float> distance_mm, int64_t num_points,
                                      int64_t num_clusters);

}  // namespace shoal
