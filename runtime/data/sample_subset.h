#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/random/keyed_permutation.h"

namespace shoal {

/// Some samples of a set, named by their indices, in this order. Files, texts and corrupt records
/// are told of the whole set.
class SampleSubset final : public SampleSet {
 public:
  SampleSubset(std::shared_ptr<const SampleSet> all, std::vector<int64_t> indices)
      : all_(std::move(all)), indices_(std::move(indices)) {}
  /// Draws `count` different samples, which keep their order; all if there are no more. The choice
  /// depends only on the seed and the size of the set.
  static std::unique_ptr<const SampleSet> draw(std::unique_ptr<const SampleSet> all, int64_t count,
                                               uint64_t seed) {
    if (count >= all->size()) return all;
    const KeyedPermutation permutation({seed, Purpose::kEvaluated}, all->size());
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < count; ++i) indices.push_back(permutation.at(i));
    std::ranges::sort(indices);
    return std::make_unique<SampleSubset>(std::move(all), std::move(indices));
  }

  int64_t size() const override { return std::ssize(indices_); }
  Sample read(int64_t index, int64_t epoch) const override {
    return all_->read(indices_[static_cast<size_t>(index)], epoch);
  }
  int64_t place(int64_t index) const override {
    return all_->place(indices_[static_cast<size_t>(index)]);
  }
  std::string name(int64_t index) const override {
    return all_->name(indices_[static_cast<size_t>(index)]);
  }
  std::vector<int64_t> substituted() const override { return all_->substituted(); }
  std::optional<TextCounts> text_counts() const override { return all_->text_counts(); }
  std::vector<std::string> notes() const override { return all_->notes(); }
  std::vector<std::string> warnings() const override { return all_->warnings(); }
  std::string fingerprint() const override { return all_->fingerprint(); }
  std::string tokenizer_identity() const override { return all_->tokenizer_identity(); }

 private:
  std::shared_ptr<const SampleSet> all_;
  std::vector<int64_t> indices_;
};

}  // namespace shoal
