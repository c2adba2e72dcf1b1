#include "launch/evaluate/reference_samples.h"

#include <algorithm>

namespace shoal {
namespace {

class SpreadSamples : public SampleSet {
 public:
  SpreadSamples(const SampleSet& all, int64_t most)
      : all_(all), size_(std::min(most, all.size())) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t epoch) const override {
    return all_.read(static_cast<int64_t>(static_cast<__int128>(index) * all_.size() / size_),
                     epoch);
  }

 private:
  const SampleSet& all_;
  int64_t size_;
};

}  // namespace

std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most) {
  return std::make_unique<SpreadSamples>(all, most);
}

}  // namespace shoal
