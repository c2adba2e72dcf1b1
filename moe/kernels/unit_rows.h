#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

// R rows on this rank  u units on this rank
namespace shoal {

/// How many rows each unit of this rank has: counts on the host, or only on the GPU.
class UnitRows {
 public:
  UnitRows() = default;
  UnitRows(std::vector<int64_t> rows_u) : rows_u_(std::move(rows_u)) {}
  UnitRows(std::initializer_list<int64_t> rows_u) : rows_u_(rows_u) {}
  /// Of int64 [u] on a GPU; copies nothing to the host.
  explicit UnitRows(const torch::Tensor& rows_u)
      : end_u_(rows_u.cumsum(0, torch::kInt64).to(torch::kInt32)) {}

  bool is_on_host() const { return !end_u_.defined(); }
  /// TORCH_CHECK unless is_on_host.
  const std::vector<int64_t>& rows_u() const {
    TORCH_CHECK(is_on_host(), "rows of units that only the GPU knows");
    return rows_u_;
  }
  /// int32 [u], inclusive sums, on the GPU; undefined if is_on_host.
  const torch::Tensor& end_u() const { return end_u_; }
  /// The counts in any case. Waits for the GPU where only it has them.
  std::vector<int64_t> to_host() const;

 private:
  std::vector<int64_t> rows_u_;
  torch::Tensor end_u_;
};

/// Inclusive sums of rows on a GPU, int32 [u], by way of pinned memory: no wait.
torch::Tensor ends_of(at::IntArrayRef rows_u, const torch::Device& gpu);

/// Units [first, first + count).
struct UnitRange {
  int64_t first, count;
};

/// One of `num_parts` runs of neighbours, as equal as can be.
UnitRange part_of(int64_t num_units, int64_t part, int64_t num_parts);

/// `run` on the rows that belong to a unit, which come first, with counts on the host; the rows
/// after them are zero in the result. [R, ...] -> [R, ...].
torch::Tensor run_on_host_counts(
    const torch::Tensor& rows, const UnitRows& rows_u,
    const std::function<torch::Tensor(const torch::Tensor&, const std::vector<int64_t>&)>& run);

}  // namespace shoal
