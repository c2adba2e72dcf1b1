#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

// N rows  I inputs  O outputs
namespace shoal {

/// The affine map y = W x + b with the least squared error, by normal equations in float64.
class LinearFit {
 public:
  LinearFit(int64_t inputs, int64_t outputs, torch::Device device);
  /// Adds rows to fit: input_NI and output_NO, N may be 0.
  void add(const torch::Tensor& input_NI, const torch::Tensor& output_NO);
  /// Fits the rows of all ranks. Collective. Adds a ridge of kRidge times the mean variance of the
  /// inputs to their variances, so that the map is well defined, and independent of the number of
  /// ranks, even if inputs depend on each other or outnumber the rows. TORCH_CHECK that there are
  /// rows.
  void solve(Communicator& world);
  bool is_solved() const { return bias_O_.defined(); }
  /// Returns float64 [N, O]. TORCH_CHECK unless solved.
  torch::Tensor predict(const torch::Tensor& input_NI) const;

  static constexpr double kRidge = 1e-4;

 private:
  void add_pending();

  // Products of all columns, a column of ones included, summed over rows: [1 + I, 1 + I + O].
  torch::Tensor products_;
  std::vector<torch::Tensor> pending_;  ///< [N, 1 + I + O], not yet added to the products
  int64_t inputs_, pending_rows_ = 0;
  torch::Tensor weight_IO_, bias_O_;
};

}  // namespace shoal
