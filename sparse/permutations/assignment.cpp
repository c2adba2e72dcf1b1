#include "sparse/permutations/assignment.h"

#include <limits>
#include <optional>

namespace shoal {
namespace {

/// The row maxima, if they lie in different columns; no other assignment has a larger sum then.
std::optional<std::vector<int64_t>> row_maxima(const torch::Tensor& score_nn) {
  const torch::Tensor column_n = score_nn.argmax(1).contiguous();
  const auto* column = column_n.const_data_ptr<int64_t>();
  std::vector<int64_t> chosen(column, column + column_n.size(0));
  std::vector<bool> is_taken(chosen.size());
  for (const int64_t c : chosen) {
    if (is_taken[static_cast<size_t>(c)]) return std::nullopt;
    is_taken[static_cast<size_t>(c)] = true;
  }
  return chosen;
}

/// Assigns rows one by one, each along the shortest path of reassignments by reduced cost.
class ShortestPaths {
 public:
  /// `cost`: row by row.
  ShortestPaths(const double* cost, size_t n)
      : cost_(cost), n_(n), row_price_(n), column_price_(n), row_of_column_(n, kNone) {
    for (size_t row = 0; row < n; ++row) assign(row);
  }

  std::vector<int64_t> columns() const {
    std::vector<int64_t> result(n_);
    for (size_t c = 0; c < n_; ++c) result[row_of_column_[c]] = static_cast<int64_t>(c);
    return result;
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  void assign(size_t first_row) {
    std::vector<double> distance(n_, std::numeric_limits<double>::infinity());
    std::vector<size_t> from_column(n_, kNone);
    std::vector<bool> is_done(n_);
    size_t row = first_row, last = kNone;  // last: the column that the path has reached
    double path = 0.0;
    do {
      size_t nearest = kNone;
      for (size_t c = 0; c < n_; ++c) {
        if (is_done[c]) continue;
        const double length = path + cost_[row * n_ + c] - row_price_[row] - column_price_[c];
        if (length < distance[c]) {
          distance[c] = length;
          from_column[c] = last;
        }
        if (nearest == kNone || distance[c] < distance[nearest]) nearest = c;
      }
      path = distance[nearest];
      last = nearest;
      is_done[last] = true;
      row = row_of_column_[last];
    } while (row != kNone);
    row_price_[first_row] += path;
    for (size_t c = 0; c < n_; ++c) {
      if (!is_done[c] || row_of_column_[c] == kNone) continue;
      row_price_[row_of_column_[c]] += path - distance[c];
      column_price_[c] -= path - distance[c];
    }
    while (last != kNone) {
      const size_t before = from_column[last];
      row_of_column_[last] = before == kNone ? first_row : row_of_column_[before];
      last = before;
    }
  }

  const double* cost_;
  size_t n_;
  std::vector<double> row_price_, column_price_;
  std::vector<size_t> row_of_column_;
};

}  // namespace

std::vector<int64_t> best_assignment(const torch::Tensor& score_nn) {
  TORCH_CHECK(score_nn.dim() == 2 && score_nn.size(0) == score_nn.size(1),
              "an assignment needs a square matrix, not ", score_nn.sizes());
  if (const auto maxima = row_maxima(score_nn)) return *maxima;
  const torch::Tensor cost_nn = score_nn.to(torch::kFloat64).neg().contiguous();
  return ShortestPaths(cost_nn.const_data_ptr<double>(), static_cast<size_t>(cost_nn.size(0)))
      .columns();
}

}  // namespace shoal
