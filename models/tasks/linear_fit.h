#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

// N rows  I inputs  O outputs
namespace shoal {

/// The affine map of inputs to outputs with the least squared error, by normal equations in
/// float64: y = W x + b.
class LinearFit {
 public:
  LinearFit(int64_t inputs, int64_t outputs, torch::Device device);
  /// Rows to fit: input_NI and output_NO, N may be 0.
  void add(const torch::Tensor& input_NI, const torch::Tensor& output_NO);
  /// Fits the rows of all ranks. Collective. To the inputs' variances a ridge of kRidge times their
  /// mean is added, so that the map is well defined, and equal on any ranks, where inputs depend on
  /// each other or outnumber the rows. TORCH_CHECK that there are rows.
  void solve(Communicator& world);
  bool is_solved() const { return bias_O_.defined(); }
  /// float64 [N, O]. TORCH_CHECK unless solved.
  torch::Tensor predict(const torch::Tensor& input_NI) const;

  static constexpr double kRidge = 1e-4;

 private:
  void add_pending();

  // Rows and a column of ones, whose products hold all sums: [1 + I, 1 + I + O].
  torch::Tensor products_;
  std::vector<torch::Tensor> pending_;  ///< [N, 1 + I + O], not in the products yet
  int64_t inputs_, pending_rows_ = 0;
  torch::Tensor weight_IO_, bias_O_;
};

}  // namespace shoal
