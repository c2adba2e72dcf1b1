#include "sparse/patterns/complete_linkage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace shoal {
namespace {

/// A merge of two clusters, each given by one of its points, and their distance.
struct Join {
  float distance;
  int64_t first, second;
};

class Clusters {
 public:
  Clusters(std::vector<float> distance, int64_t num_points)
      : distance_(std::move(distance)), num_points_(num_points) {
    is_there_.assign(static_cast<size_t>(num_points), true);
  }

  /// Merges all clusters by nearest-neighbour chains, which give the same tree as always merging
  /// the nearest pair, since with complete linkage a merge brings no other clusters nearer.
  std::vector<Join> join_all() {
    std::vector<Join> joins;
    std::vector<int64_t> chain;
    while (std::ssize(joins) + 1 < num_points_) {
      if (chain.empty()) chain.push_back(first_there());
      const int64_t last = chain.back();
      const int64_t before = chain.size() > 1 ? chain[chain.size() - 2] : -1;
      const int64_t nearest = nearest_to(last, before);
      if (nearest != before) {
        chain.push_back(nearest);
        continue;
      }
      chain.resize(chain.size() - 2);
      joins.push_back({at(last, before), std::min(last, before), std::max(last, before)});
      join(joins.back());
    }
    return joins;
  }

 private:
  float& at(int64_t a, int64_t b) { return distance_[static_cast<size_t>(a * num_points_ + b)]; }
  int64_t first_there() const { return std::ranges::find(is_there_, true) - is_there_.begin(); }
  /// Nearest cluster; ties go to `preferred`, then to the lowest.
  int64_t nearest_to(int64_t cluster, int64_t preferred) {
    int64_t nearest = preferred;
    float least = preferred < 0 ? std::numeric_limits<float>::infinity() : at(cluster, preferred);
    for (int64_t other = 0; other < num_points_; ++other) {
      if (other == cluster || !is_there_[static_cast<size_t>(other)]) continue;
      if (nearest >= 0 && at(cluster, other) >= least) continue;
      nearest = other;
      least = at(cluster, other);
    }
    return nearest;
  }
  /// Merges both clusters into the first.
  void join(const Join& join) {
    is_there_[static_cast<size_t>(join.second)] = false;
    for (int64_t other = 0; other < num_points_; ++other) {
      const float farthest = std::max(at(join.first, other), at(join.second, other));
      at(join.first, other) = at(other, join.first) = farthest;
    }
  }

  std::vector<float> distance_;
  int64_t num_points_;
  std::vector<bool> is_there_;
};

/// Root of a point in a forest of parents.
int64_t root_of(std::vector<int64_t>& parent, int64_t point) {
  while (parent[static_cast<size_t>(point)] != point) point = parent[static_cast<size_t>(point)];
  return point;
}

}  // namespace

std::vector<int64_t> complete_linkage(std::vector<float> distance_mm, int64_t num_points,
                                      int64_t num_clusters) {
  std::vector<Join> joins = Clusters(std::move(distance_mm), num_points).join_all();
  std::ranges::stable_sort(joins, {}, &Join::distance);
  std::vector<int64_t> parent(static_cast<size_t>(num_points));
  std::iota(parent.begin(), parent.end(), int64_t{0});
  for (size_t j = 0; j < static_cast<size_t>(std::max<int64_t>(0, num_points - num_clusters));
       ++j) {
    const int64_t a = root_of(parent, joins[j].first), b = root_of(parent, joins[j].second);
    parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::map<int64_t, int64_t> id;  // by lowest point
  std::vector<int64_t> cluster;
  for (int64_t point = 0; point < num_points; ++point) {
    const auto next = static_cast<int64_t>(id.size());
    cluster.push_back(id.try_emplace(root_of(parent, point), next).first->second);
  }
  return cluster;
}

}  // namespace shoal
