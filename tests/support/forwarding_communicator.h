#pragma once

#include <cstdlib>
#include <memory>
#include <utility>

#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"

namespace shoal::testing {

/// Does as `inner`; tests override what they want otherwise.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(*inner), owned_(std::move(inner)) {}
  int64_t rank() const override { return inner_.rank(); }
  int64_t size() const override { return inner_.size(); }
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic traffic) override {
    return inner_.split(color, key, traffic);
  }
  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    return inner_.start_all_reduce(buffer, op);
  }
  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    return inner_.start_all_to_all(in, send_rows, out, recv_rows);
  }
  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    return inner_.start_all_gather(in, out, rows);
  }
  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    return inner_.start_reduce_scatter(in, out, rows);
  }
  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    return inner_.start_broadcast(buffer, root);
  }
  void barrier(std::chrono::milliseconds limit) override { inner_.barrier(limit); }
  void throw_if_failed() const override { inner_.throw_if_failed(); }
  [[noreturn]] void abort(int exit_code) override {
    inner_.abort(exit_code);
    std::abort();
  }
  const Counters& counters() const override { return inner_.counters(); }

 protected:
  Communicator& inner_;

 private:
  std::unique_ptr<Communicator> owned_;  ///< null where another owns it
};

/// A group that fails while rows travel: what arrives are numbers of no meaning.
class FailedCommunicator : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    inner_.start_all_to_all(in, send_rows, out, recv_rows).wait();
    out.fill_(-7);
    return {};
  }
  void throw_if_failed() const override { throw CommError("the peer is gone"); }
};

}  // namespace shoal::testing
