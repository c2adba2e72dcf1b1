#include <cstdlib>
#include <utility>

#include "parallel/comm/communicator_checks.h"

namespace shoal {
namespace {

// Rows that stay in the process may be on any device.
constexpr BufferRules kRules{.device = std::nullopt};

/// A group of one: what is sent arrives at once, at the sender.
class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(std::shared_ptr<Counters> counters) : counters_(std::move(counters)) {}

  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }

  std::unique_ptr<Communicator> split(int64_t /*color*/, int64_t /*key*/,
                                      Traffic /*traffic*/) override {
    return std::make_unique<SelfCommunicator>(make_counters(counters_.get()));
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp /*op*/) override {
    check_all_reduce(buffer, kRules);
    count_call(*counters_, Collective::kAllReduce);
    return {};
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    check_all_to_all({*this, kRules}, in, send_rows, out, recv_rows);
    return copy(Collective::kAllToAll, in, out);
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    check_all_gather({*this, kRules}, in, out, rows);
    return copy(Collective::kAllGather, in, out);
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    check_reduce_scatter({*this, kRules}, in, out, rows);
    return copy(Collective::kReduceScatter, in, out);
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    check_broadcast({*this, kRules}, buffer, root);
    count_call(*counters_, Collective::kBroadcast);
    return {};
  }

  void barrier(std::chrono::milliseconds /*limit*/) override {}
  void throw_if_failed() const override {}

  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

  const Counters& counters() const override { return *counters_; }

 private:
  Pending copy(Collective kind, const torch::Tensor& in, torch::Tensor& out) {
    torch::NoGradGuard no_grad;
    count_call(*counters_, kind);
    out.copy_(in);
    return {};
  }

  std::shared_ptr<Counters> counters_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>(make_counters());
}

}  // namespace shoal
