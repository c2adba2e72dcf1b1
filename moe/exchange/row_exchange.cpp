#include "moe/exchange/row_exchange.h"

#include "moe/exchange/node_exchange.h"

namespace shoal {
namespace {

/// Every row goes straight to the rank of its unit.
class FlatExchange : public RowExchange {
 public:
  /// The plan with this number; weight_A are the combine weights of its chunk.
  struct Planned {
    std::shared_ptr<PendingPlans> plans;
    size_t number;
    torch::Tensor weight_A;
  };
  FlatExchange(Planned planned, Communicator& expert, Payload payload)
      : planned_(std::move(planned)), expert_(expert), payload_(payload) {}

  void start_dispatch(const torch::Tensor& x_TD) override {
    dispatch_ = shoal::start_dispatch(x_TD, planned_.weight_A, plan(), expert_, payload_);
  }
  ArrivedRows finish_dispatch() override {
    const auto [rows_RD, weight_R] = shoal::finish_dispatch(std::move(dispatch_), plan());
    return {rows_RD, plan().rows_u, weight_R};
  }
  void start_combine(const torch::Tensor& rows_RD) override {
    combine_ = shoal::start_combine(rows_RD, plan(), expert_, payload_);
  }
  torch::Tensor finish_combine() override {
    return shoal::finish_combine(std::move(combine_), plan());
  }

 private:
  const DispatchPlan& plan() const { return planned_.plans->get()[planned_.number]; }

  Planned planned_;
  Communicator& expert_;
  Payload payload_;
  StartedDispatch dispatch_;
  StartedRows combine_;
};

}  // namespace

std::vector<std::unique_ptr<RowExchange>> plan_exchange(const std::vector<TokenAssignments>& chunks,
                                                        const UnitPlacement& placement,
                                                        const RankGrid& grid,
                                                        const ExchangeOptions& options,
                                                        int64_t num_parts) {
  if (options.hierarchical && grid.num_nodes() > 1) {
    TORCH_CHECK(num_parts == 1, "exchange: ", num_parts,
                " parts of units in two levels, expected 1");
    return plan_node_exchange(chunks, placement, grid, options.payload);
  }
  TORCH_CHECK(num_parts == 1 || chunks.size() == 1, "exchange: ", chunks.size(), " chunks in ",
              num_parts, " parts, expected 1 of either");
  const auto plans = std::make_shared<PendingPlans>(chunks, placement, *grid.expert, num_parts);
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  for (const TokenAssignments& chunk : chunks) {
    for (int64_t part = 0; part < num_parts; ++part) {
      exchanges.push_back(std::make_unique<FlatExchange>(
          FlatExchange::Planned{plans, exchanges.size(), chunk.weight_A}, *grid.expert,
          options.payload));
    }
  }
  return exchanges;
}

}  // namespace shoal
