#include "runtime/data/sample_subset.h"

#include <algorithm>
#include <utility>

#include "runtime/random/keyed_permutation.h"

namespace shoal {

SampleSubset::SampleSubset(std::shared_ptr<const SampleSet> all, std::vector<int64_t> indices)
    : all_(std::move(all)), indices_(std::move(indices)) {}

std::unique_ptr<const SampleSet> SampleSubset::draw(std::unique_ptr<const SampleSet> all,
                                                    int64_t count, uint64_t seed) {
  if (count >= all->size()) return all;
  const KeyedPermutation permutation({seed, Purpose::kEvaluated}, all->size());
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(permutation.at(i));
  std::ranges::sort(indices);
  return std::make_unique<SampleSubset>(std::move(all), std::move(indices));
}

}  // namespace shoal
