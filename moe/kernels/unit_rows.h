#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

// R rows on this rank  u units on this rank
namespace shoal {

/// Units [first, first + count).
struct UnitRange {
  int64_t first, count;
};

/// Number of rows (tokens sent to a unit, that is an expert) of each unit on this rank. The counts
/// are on the host, on the GPU, where copying them to the host would make it wait, or on both.
class UnitRows {
 public:
  UnitRows() = default;
  UnitRows(std::vector<int64_t> rows_u) : rows_u_(std::move(rows_u)) {}
  UnitRows(std::initializer_list<int64_t> rows_u) : rows_u_(rows_u) {}
  /// Takes counts on a GPU, int64 [u]; copies nothing to the host.
  explicit UnitRows(const torch::Tensor& rows_u)
      : end_u_(rows_u.cumsum(0, torch::kInt64).to(torch::kInt32)), is_on_host_(false) {}
  /// Takes counts that are on both. `end_u`: their inclusive sums on a GPU, int32 [u].
  UnitRows(std::vector<int64_t> rows_u, torch::Tensor end_u)
      : rows_u_(std::move(rows_u)), end_u_(std::move(end_u)) {}

  bool is_on_host() const { return is_on_host_; }
  /// TORCH_CHECK unless is_on_host.
  const std::vector<int64_t>& rows_u() const {
    TORCH_CHECK(is_on_host(), "counts of rows are only on the GPU");
    return rows_u_;
  }
  /// Returns the inclusive sums of the counts, int32 [u], on the GPU; undefined if not there.
  const torch::Tensor& end_u() const { return end_u_; }
  /// Returns the counts of some units. Requires that units before them have no rows. TORCH_CHECK
  /// otherwise, and unless is_on_host.
  UnitRows part(const UnitRange& range) const;
  /// Returns the counts on the host. Waits for the GPU if they are only there.
  std::vector<int64_t> to_host() const;

 private:
  std::vector<int64_t> rows_u_;
  torch::Tensor end_u_;
  bool is_on_host_ = true;
};

/// Returns the inclusive sums of rows_u on a GPU, int32 [u], copied without a wait.
torch::Tensor ends_of(at::IntArrayRef rows_u, const torch::Device& gpu);

/// Cuts `num_units` units into `num_parts` runs, as equal as possible; returns run `part`, from 0.
UnitRange part_of(int64_t num_units, int64_t part, int64_t num_parts);

/// Calls `run` with counts on the host and with the rows that belong to units, without the padding
/// rows that may follow them on a GPU. The result is padded with zero rows: [R, D] -> [R, D].
torch::Tensor run_on_host_counts(
    const torch::Tensor& rows, const UnitRows& rows_u,
    const std::function<torch::Tensor(const torch::Tensor&, const std::vector<int64_t>&)>& run);

}  // namespace shoal
