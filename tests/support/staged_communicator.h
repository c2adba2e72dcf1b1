#pragma once

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal::testing {

/// Puts a communicator on GPU tensors behind CPU tensors, so that the contract, which is written
/// for those, checks it: each call copies its buffers to the GPU, and what it writes back when it
/// is waited for.
class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> inner, torch::Device gpu)
      : inner_(std::move(inner)), gpu_(gpu) {}

  int64_t rank() const override { return inner_->rank(); }
  int64_t size() const override { return inner_->size(); }
  const Counters& counters() const override { return inner_->counters(); }

  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic traffic) override {
    return std::make_unique<StagedCommunicator>(inner_->split(color, key, traffic), gpu_);
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    const torch::Tensor staged = on_gpu(buffer);
    return back(inner_->start_all_reduce(staged, op), staged, buffer);
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    const torch::Tensor staged = on_gpu(out);
    return back(inner_->start_all_to_all(on_gpu(in), send_rows, staged, recv_rows), staged, out);
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    const torch::Tensor staged = on_gpu(out);
    return back(inner_->start_all_gather(on_gpu(in), staged, rows), staged, out);
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    const torch::Tensor staged = on_gpu(out);
    return back(inner_->start_reduce_scatter(on_gpu(in), staged, rows), staged, out);
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    const torch::Tensor staged = on_gpu(buffer);
    return back(inner_->start_broadcast(staged, root), staged, buffer);
  }

  void barrier(std::chrono::milliseconds limit) override { inner_->barrier(limit); }
  void throw_if_failed() const override { inner_->throw_if_failed(); }
  [[noreturn]] void abort(int exit_code) override {
    inner_->abort(exit_code);
    std::abort();
  }

 private:
  /// With the same strides: the contract hands in buffers that are to be refused for theirs.
  torch::Tensor on_gpu(const torch::Tensor& tensor) const {
    const torch::Tensor copy =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(gpu_));
    copy.copy_(tensor);
    return copy;
  }

  static Pending back(Pending pending, const torch::Tensor& staged, const torch::Tensor& to) {
    const auto shared = std::make_shared<Pending>(std::move(pending));
    return {[shared, staged, to] {
              shared->wait();
              to.copy_(staged);
            },
            {to}};
  }

  std::unique_ptr<Communicator> inner_;
  torch::Device gpu_;
};

}  // namespace shoal::testing
