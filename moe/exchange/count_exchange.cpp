#include "moe/exchange/count_exchange.h"

#include <utility>

// C pieces  V units in the order of their ranks  u units on this rank  E ranks
namespace shoal {

CountExchange::CountExchange(torch::Tensor sent_CV, const UnitPlacement& placement,
                             Communicator& expert)
    : expert_(expert), sent_CV_(std::move(sent_CV)) {
  const RowCounts units_of_rank = placement.num_units_of_ranks();
  const int64_t num_pieces = sent_CV_.size(0);
  const int64_t own = units_of_rank[static_cast<size_t>(expert.rank())];
  std::vector<torch::Tensor> by_rank;
  RowCounts send;
  for (const torch::Tensor& counts_Cu : sent_CV_.split_with_sizes(units_of_rank, 1)) {
    by_rank.push_back(counts_Cu.flatten());
    send.push_back(counts_Cu.numel());
  }
  received_ECu_ = torch::empty({expert.size(), num_pieces, own}, sent_CV_.options());
  exchange_ = expert.start_all_to_all(torch::cat(by_rank), send, received_ECu_.view({-1}),
                                      RowCounts(send.size(), own * num_pieces));
  if (!sent_CV_.is_cpu()) start_copy();
}

void CountExchange::start_copy() {
  exchange_.wait();
  copy_.emplace(torch::cat({sent_CV_.flatten(), received_ECu_.flatten()}));
}

DispatchCounts CountExchange::wait() {
  if (!copy_) start_copy();
  const torch::Tensor& counts = copy_->wait();
  expert_.throw_if_failed();
  const int64_t* first = counts.const_data_ptr<int64_t>();
  const int64_t* received = first + sent_CV_.numel();
  return {{first, received}, {received, first + counts.numel()}, received_ECu_};
}

}  // namespace shoal
