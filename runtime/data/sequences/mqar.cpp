#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"

namespace shoal {

/// The tokens between the queries.
enum class MqarFiller { kRandom, kZero };

template <>
inline constexpr std::array kEnumWords<MqarFiller>{"random", "zero"};

namespace {

struct MqarOptions {
  int64_t sequence = 64;
  int64_t vocabulary = 8192;
  int64_t pairs = 8;
  double power_a = 0.01;
  MqarFiller filler = MqarFiller::kRandom;
  int64_t seed = 0;
  DrawnSplit<100000> train;
  DrawnSplit<3000> valid;

  static constexpr auto fields() {
    return std::tuple{field("sequence", &MqarOptions::sequence, "tokens per sample", unit("tokens"),
                            in_range(4, 1 << 20)),
                      field("vocabulary", &MqarOptions::vocabulary, "size of the vocabulary",
                            in_range(4, 1 << 20)),
                      field("pairs", &MqarOptions::pairs,
                            "number of key-value pairs, and of queries", in_range(1, 1 << 18)),
                      field("power_a", &MqarOptions::power_a,
                            "the smaller, the closer queries are to the pairs; 1: uniform",
                            in_range(above(0), 1)),
                      field("filler", &MqarOptions::filler, "tokens between the queries"),
                      field("seed", &MqarOptions::seed,
                            "seed of the samples, independent of run.seed", at_least(0)),
                      field("train", &MqarOptions::train, "what is trained on"),
                      field("valid", &MqarOptions::valid,
                            "what is evaluated on, from a stream of its own", changes_scores())};
  }
  /// Refuses sequences and vocabularies that are too small for the pairs.
  void validate(Problems& problems) const {
    if (sequence < 4 * pairs) {
      problems.add("sequence",
                   fmt::format("{} have no room for {} and their queries, which take {}",
                               counted(sequence, "token"), counted(pairs, "pair"), 4 * pairs));
    }
    if (vocabulary / 2 - 1 < pairs) {
      problems.add("vocabulary",
                   fmt::format("{} tokens give {}, and there are {}", vocabulary,
                               counted(vocabulary / 2 - 1, "key"), counted(pairs, "pair")));
    }
  }
};

/// What the numbers of a sample are for; part of what a seed means.
enum class MqarDraw : uint64_t { kKeys = 0, kValues = 1, kPlaces = 2, kFiller = 3 };

class MqarSet final : public SampleSet {
 public:
  MqarSet(const MqarOptions& options, Split split)
      : options_(options),
        size_(samples_of(options, split)),
        keys_(stream(split, MqarDraw::kKeys)),
        values_(stream(split, MqarDraw::kValues)),
        places_(stream(split, MqarDraw::kPlaces).key()),
        filler_(stream(split, MqarDraw::kFiller)) {
    const int64_t num_places = (options.sequence - 2 * options.pairs) / 2;
    for (int64_t place = 1; place <= num_places; ++place) {
      log_weight_.push_back((options.power_a - 1) * philox::log(static_cast<double>(place)));
    }
  }

  int64_t size() const override { return size_; }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const auto id = static_cast<uint64_t>(index);
    const int64_t half = options_.vocabulary / 2;
    const std::vector<int64_t> key = distinct(keys_, id, 1, half - 1);
    const std::vector<int64_t> value = distinct(values_, id, half, options_.vocabulary - half);
    const std::vector<int64_t> place = places(id);
    const auto length = static_cast<size_t>(options_.sequence);
    Sample sample;
    sample.token_S.assign(length, 0);
    sample.token_label_S.assign(length, kNoLabel);
    const size_t begin = 2 * key.size();
    std::vector<bool> is_taken(length);
    for (size_t pair = 0; pair < key.size(); ++pair) {
      sample.token_S[2 * pair] = key[pair];
      sample.token_S[2 * pair + 1] = value[pair];
      const size_t query = begin + 2 * static_cast<size_t>(place[pair]);
      sample.token_S[query] = key[pair];
      sample.token_label_S[query] = value[pair];
      is_taken[query] = true;
    }
    if (options_.filler == MqarFiller::kZero) return sample;
    for (size_t i = begin; i < length; ++i) {
      if (is_taken[i]) continue;
      sample.token_S[i] = filler_.integer(id, static_cast<uint32_t>(i), options_.vocabulary);
    }
    return sample;
  }

 private:
  Stream stream(Split split, MqarDraw draw) const {
    return drawn_stream(options_.seed, "mqar", split, static_cast<uint64_t>(draw));
  }

  /// One for each pair, of [first, first + count), no two alike.
  std::vector<int64_t> distinct(const ScalarDraws& draws, uint64_t id, int64_t first,
                                int64_t count) const {
    std::vector<int64_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), first);
    for (int64_t i = 0; i < options_.pairs; ++i) {
      const int64_t other = i + draws.integer(id, static_cast<uint32_t>(i), count - i);
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(other)]);
    }
    all.resize(static_cast<size_t>(options_.pairs));
    return all;
  }

  /// Places of the queries, drawn without replacement: the highest log-weights plus Gumbel noise.
  std::vector<int64_t> places(uint64_t id) const {
    std::vector<double> score(log_weight_.size());
    constexpr uint32_t kLanes = philox::kLanes<double>;
    double gumbel[kLanes];
    for (size_t i = 0; i < score.size(); ++i) {
      const auto lane = static_cast<uint32_t>(i % kLanes);
      if (lane == 0) {
        const auto block = static_cast<uint32_t>(i / kLanes);
        philox::values_of<philox::Distribution::kGumbel>(philox::words_at(places_, id, block),
                                                         gumbel);
      }
      score[i] = log_weight_[i] + gumbel[lane];
    }
    std::vector<int64_t> place(score.size());
    std::iota(place.begin(), place.end(), 0);
    const auto is_before = [&](int64_t a, int64_t b) {
      const double score_a = score[static_cast<size_t>(a)], score_b = score[static_cast<size_t>(b)];
      return score_a != score_b ? score_a > score_b : a < b;
    };
    const auto end = place.begin() + options_.pairs;
    std::partial_sort(place.begin(), end, place.end(), is_before);
    place.erase(end, place.end());
    return place;
  }

  MqarOptions options_;
  int64_t size_;
  ScalarDraws keys_, values_;
  philox::StreamKey places_;
  ScalarDraws filler_;
  std::vector<double> log_weight_;
};

/// Data source `mqar`, multi-query associative recall: pairs of a key and a value, then each key
/// once more (a query), whose label is its value; other tokens have no label. Keys are from the
/// lower half of the vocabulary, values from the upper half, all different within a sample. A query
/// lies an even number of tokens behind the pairs; with n places for queries, place i of 1 to n is
/// chosen with probability proportional to i^(power_a - 1). Other tokens are filler: any token of
/// the vocabulary, or 0. Source: Arora et al. 2023 (Zoology), multiquery_ar.
class MqarSource : public DrawnSource<MqarOptions, MqarSet> {
 public:
  using DrawnSource::DrawnSource;

  static constexpr Sketch kSketch{
      .lines =
          "  sequence: 64                   # pairs of keys and values, then keys to answer\n"
          "  vocabulary: 128\n"
          "  pairs: 8\n"
          "  train: {samples: 100000}\n"
          "  valid: {samples: 1000}\n"};  ///< starter recipe of `shoal new`

  DataShape shape() const override {
    return {.source = "mqar",
            .sequence = options_.sequence,
            .vocabulary = options_.vocabulary,
            .token_labels = options_.pairs};
  }
};

const Registration<DataSource, MqarSource> registered_mqar_source{
    "mqar", "multi-query associative recall: keys labelled with their values; needs no files"};

}  // namespace
}  // namespace shoal
