#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/drawn_samples.h"

namespace shoal {

/// The tokens between the queries.
enum class MqarFiller { kRandom, kZero };

template <>
struct EnumNames<MqarFiller> {
  static constexpr std::array names{std::pair{MqarFiller::kRandom, "random"},
                                    std::pair{MqarFiller::kZero, "zero"}};
};

/// Data source `mqar`, multi-query associative recall: pairs of a key and a value, then each key
/// once more (a query), whose label is its value; other tokens have no label. Keys are from the
/// lower half of the vocabulary, values from the upper half, all different within a sample. A query
/// lies an even number of tokens behind the pairs; with n places for queries, place i of 1 to n is
/// chosen with probability proportional to i^(power_a - 1). Other tokens are filler: any token of
/// the vocabulary, or 0. Source: Arora et al. 2023 (Zoology), multiquery_ar.
class MqarSource : public DataSource {
 public:
  struct Options {
    int64_t sequence = 64;
    int64_t vocabulary = 8192;
    int64_t pairs = 8;
    double power_a = 0.01;
    MqarFiller filler = MqarFiller::kRandom;
    int64_t seed = 0;
    DrawnSplit<100000> train;
    DrawnSplit<3000> valid;

    static constexpr auto fields() {
      return std::tuple{
          field("sequence", &Options::sequence, "tokens of a sample", unit("tokens"),
                in_range(4, 1 << 20)),
          field("vocabulary", &Options::vocabulary, "tokens that there are", in_range(4, 1 << 20)),
          field("pairs", &Options::pairs, "keys with a value, and as many queries",
                in_range(1, 1 << 18)),
          field("power_a", &Options::power_a,
                "the smaller, the nearer to the pairs queries lie; 1: anywhere alike",
                in_range(above(0), 1)),
          field("filler", &Options::filler, "what lies between the queries"),
          field("seed", &Options::seed, "of the samples; run.seed leaves them alone", at_least(0)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on, from a stream of its own",
                changes_scores())};
    }
    /// Refuses sequences and vocabularies that are too small for the pairs.
    void validate(Problems& problems) const;
  };

  static constexpr Sketch kSketch{
      .lines =
          "  sequence: 64                   # pairs of keys and values, then keys to answer\n"
          "  vocabulary: 128\n"
          "  pairs: 8\n"
          "  train: {samples: 100000}\n"
          "  valid: {samples: 1000}\n"};  ///< starter recipe of `shoal new`

  explicit MqarSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
