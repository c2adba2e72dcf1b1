#include "runtime/data/loader/data_order.h"

#include <algorithm>

#include "runtime/random/keyed_permutation.h"

namespace shoal {

SampleRange samples_of_rank(SampleRange micro, int64_t group, int64_t rank, int64_t world) {
  const int64_t groups = (micro.count + group - 1) / group;
  const int64_t first = std::min(groups * rank / world * group, micro.count);
  const int64_t end = std::min(groups * (rank + 1) / world * group, micro.count);
  return {micro.first + first, end - first};
}

int64_t DataOrder::sample_at(int64_t position) const {
  const int64_t within = position % num_samples_;
  if (!shuffle_) return within;
  const auto epoch = static_cast<uint64_t>(epoch_of(position));
  return KeyedPermutation({seed_, Purpose::kDataOrder, 0, epoch}, num_samples_).at(within);
}

}  // namespace shoal
