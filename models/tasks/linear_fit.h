#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

// N rows  I inputs  O outputs
namespace shoal {

/// Least-squares fit of an affine map y = W x + b over all ranks, by normal equations in float64.
class LinearFit {
 public:
  LinearFit(int64_t inputs, int64_t outputs, torch::Device device);
  /// Adds rows to fit: input_NI and output_NO, N may be 0.
  void add(const torch::Tensor& input_NI, const torch::Tensor& output_NO);
  /// Fits the rows of all ranks. Collective. A ridge (kRidge times the mean input variance, added
  /// to each variance) keeps the solution unique, and equal for any number of ranks, when inputs
  /// are collinear or outnumber the rows. TORCH_CHECK that there are rows.
  void solve(Communicator& world);
  bool is_solved() const { return bias_O_.defined(); }
  /// Returns W x + b, float64 [N, O]. TORCH_CHECK unless solved.
  torch::Tensor predict(const torch::Tensor& input_NI) const;

  static constexpr double kRidge = 1e-4;

 private:
  void add_pending();

  // Sums of products of [inputs, 1] with [inputs, 1, outputs]: [1 + I, 1 + I + O].
  torch::Tensor products_;
  std::vector<torch::Tensor> pending_;  ///< rows [N, 1 + I + O] not yet added to products_
  int64_t inputs_, pending_rows_ = 0;
  torch::Tensor weight_IO_, bias_O_;
};

}  // namespace shoal
