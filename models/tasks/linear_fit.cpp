#include "models/tasks/linear_fit.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

// N rows  I inputs  O outputs
namespace shoal {

LinearFit::LinearFit(int64_t inputs, int64_t outputs, torch::Device device)
    : products_(at::zeros({1 + inputs, 1 + inputs + outputs},
                          torch::TensorOptions(torch::kFloat64).device(device))),
      inputs_(inputs) {}

void LinearFit::add(const torch::Tensor& input_NI, const torch::Tensor& output_NO) {
  // Rows are collected, since products of few rows mostly read and write the sums.
  constexpr int64_t kRowsAtOnce = 1024;
  const torch::Tensor one_N1 = at::ones({input_NI.size(0), 1}, products_.options());
  pending_.push_back(
      at::cat({one_N1, input_NI.to(torch::kFloat64), output_NO.to(torch::kFloat64)}, 1));
  pending_rows_ += input_NI.size(0);
  if (pending_rows_ >= kRowsAtOnce) add_pending();
}

void LinearFit::add_pending() {
  if (pending_.empty()) return;
  const torch::Tensor row_NX = at::cat(pending_);
  products_.addmm_(row_NX.narrow(1, 0, 1 + inputs_).t(), row_NX);
  pending_.clear();
  pending_rows_ = 0;
}

void LinearFit::solve(Communicator& world) {
  add_pending();
  torch::Tensor products = products_.to(torch::kCPU);
  all_reduce(world, products);
  const torch::Device device = products_.device();
  products_.reset();
  const double rows = products[0][0].item<double>();
  TORCH_CHECK(rows > 0, "a linear fit needs rows");
  products /= rows;
  const int64_t outputs = products.size(1) - 1 - inputs_;
  const torch::Tensor mean_I = products[0].narrow(0, 1, inputs_),
                      mean_O = products[0].narrow(0, 1 + inputs_, outputs);
  const torch::Tensor below = products.narrow(0, 1, inputs_);
  const torch::Tensor covariance_II = below.narrow(1, 1, inputs_) - mean_I.outer(mean_I);
  const torch::Tensor covariance_IO = below.narrow(1, 1 + inputs_, outputs) - mean_I.outer(mean_O);
  torch::Tensor variance_I = covariance_II.diagonal();
  // 1e-30 for inputs that are all constant, which have no variance.
  variance_I += kRidge * variance_I.mean().item<double>() + 1e-30;
  weight_IO_ = at::cholesky_solve(covariance_IO, at::linalg_cholesky(covariance_II)).to(device);
  bias_O_ = mean_O.to(device) - mean_I.to(device).matmul(weight_IO_);
}

torch::Tensor LinearFit::predict(const torch::Tensor& input_NI) const {
  TORCH_CHECK(is_solved(), "a linear fit predicts once it is solved");
  return at::addmm(bias_O_, input_NI.to(torch::kFloat64), weight_IO_);
}

}  // namespace shoal
