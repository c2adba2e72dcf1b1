#include "launch/evaluate/split_sums.h"

namespace shoal {

void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals) {
  if (totals.empty()) totals.resize(batch.size());
  TORCH_CHECK(totals.size() == batch.size(), "a task's evaluation gave ", totals.size(),
              " sums, then ", batch.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].name = batch[i].name;
    totals[i].sum += batch[i].sum;
    totals[i].weight += batch[i].weight;
  }
}

void sum_over_ranks(std::vector<NamedSum>& totals, Communicator& world) {
  std::vector<double> values;
  for (const NamedSum& total : totals) values.insert(values.end(), {total.sum, total.weight});
  const torch::Tensor sums = torch::tensor(values, torch::kFloat64);
  all_reduce(world, sums);
  const double* value = sums.const_data_ptr<double>();
  for (NamedSum& total : totals) {
    total.sum = *value++;
    total.weight = *value++;
  }
}

}  // namespace shoal
