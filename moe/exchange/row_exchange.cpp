#include "moe/exchange/row_exchange.h"

#include "moe/exchange/node_exchange.h"

namespace shoal {
namespace {

/// Every row goes straight to the rank of its unit.
class FlatExchange : public RowExchange {
 public:
  FlatExchange(std::shared_ptr<DispatchPlans> plans, size_t plan, Communicator& expert,
               Payload payload)
      : plans_(std::move(plans)), plan_(plan), expert_(expert), payload_(payload) {}

  void start_dispatch(const torch::Tensor& x_TD) override {
    started_ = shoal::start_dispatch(x_TD, plan(), expert_, payload_);
    weights_ = start_weights(plan(), expert_);
  }
  ArrivedRows finish_dispatch() override {
    const torch::Tensor rows_RD = shoal::finish_dispatch(std::move(started_), plan());
    return {rows_RD, plan().rows_u, finish_weights(std::move(weights_), plan())};
  }
  void start_combine(const torch::Tensor& rows_RD) override {
    started_ = shoal::start_combine(rows_RD, plan(), expert_, payload_);
  }
  torch::Tensor finish_combine() override {
    return shoal::finish_combine(std::move(started_), plan());
  }

 private:
  const DispatchPlan& plan() const { return plans_->get()[plan_]; }

  std::shared_ptr<DispatchPlans> plans_;
  size_t plan_;
  Communicator& expert_;
  Payload payload_;
  StartedRows started_;
  StartedExchange weights_;
};

}  // namespace

std::vector<std::unique_ptr<RowExchange>> plan_exchange(const std::vector<TokenAssignments>& chunks,
                                                        const UnitPlacement& placement,
                                                        const RankGrid& grid,
                                                        const ExchangeOptions& options,
                                                        int64_t num_parts) {
  if (options.hierarchical && grid.num_nodes() > 1) {
    TORCH_CHECK(num_parts == 1, "exchange: ", num_parts, " parts on two levels, expected 1");
    return plan_node_exchange(chunks, placement, grid, options.payload);
  }
  TORCH_CHECK(num_parts == 1 || chunks.size() == 1, "exchange: ", chunks.size(), " chunks in ",
              num_parts, " parts, expected 1 of either");
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  const auto plans = std::make_shared<DispatchPlans>(chunks, placement, *grid.expert, num_parts);
  for (size_t plan = 0; plan < chunks.size() * static_cast<size_t>(num_parts); ++plan) {
    exchanges.push_back(std::make_unique<FlatExchange>(plans, plan, *grid.expert, options.payload));
  }
  return exchanges;
}

}  // namespace shoal
