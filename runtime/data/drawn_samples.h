#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "runtime/data/data_source.h"
#include "runtime/random/random_stream.h"

/// Shared by sources that generate samples: a sample is a function of (seed, split, index).
namespace shoal {

/// The recipe's section `data.train` or `data.valid`; kSamples is the default.
template <int64_t kSamples>
struct DrawnSplit {
  int64_t samples = kSamples;

  static constexpr auto fields() {
    return std::tuple{
        field("samples", &DrawnSplit::samples, "number of generated samples", in_range(1, 1e12))};
  }
};

/// Number of samples of a split.
template <class Options>
int64_t samples_of(const Options& options, Split split) {
  return split == Split::kTrain ? options.train.samples : options.valid.samples;
}

/// Base of these sources: `Set` has the samples of (options, split).
template <class SourceOptions, class Set>
class DrawnSource : public DataSource {
 public:
  using Options = SourceOptions;

  explicit DrawnSource(const Options& options) : options_(options) {}
  std::unique_ptr<SampleSet> open(Split split) const override {
    return std::make_unique<Set>(options_, split);
  }

 protected:
  Options options_;
};

/// Returns a random stream; each (seed, use, split, step) has its own. `use` names what is drawn (a
/// source may draw several things), `step` the attempt where unfit draws are repeated.
inline Stream drawn_stream(int64_t seed, std::string_view use, Split split, uint64_t step = 0) {
  const std::string name = std::string(use) + (split == Split::kTrain ? ".train" : ".valid");
  return {static_cast<uint64_t>(seed), Purpose::kSynthetic, hash_name(name), step};
}

}  // namespace shoal
