#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"
#include "runtime/data/sequences/listops_expression.h"

namespace shoal {
namespace {

constexpr int64_t kEquals = kListOpsVocabulary, kFiller = kListOpsVocabulary + 1;

/// The recipe's section `data.filler`.
struct FillerOptions {
  int64_t tokens = 32;
  int64_t successors = 4;

  static constexpr auto fields() {
    return std::tuple{
        field("tokens", &FillerOptions::tokens, "states of the Markov chain, a token each",
              in_range(1, 1 << 16)),
        field("successors", &FillerOptions::successors,
              "tokens that may follow each, with random probabilities", in_range(1, 1 << 10))};
  }
  /// Refuses more successors than tokens.
  void validate(Problems& problems) const {
    if (successors <= tokens) return;
    problems.add("successors",
                 fmt::format("{} different tokens, and there are {}", successors, tokens));
  }
};

struct MixedComplexityOptions {
  int64_t sequence = 256;
  int64_t islands = 4;
  ListOpsRule expression{.min_length = 3, .max_length = 24, .max_depth = 3, .max_args = 4};
  FillerOptions filler;
  int64_t seed = 0;
  DrawnSplit<100000> train;
  DrawnSplit<3000> valid;

  static constexpr auto fields() {
    return std::tuple{
        field("sequence", &MixedComplexityOptions::sequence, "tokens per sample", unit("tokens"),
              in_range(2, 1 << 20)),
        field("islands", &MixedComplexityOptions::islands, "expressions per sample",
              in_range(1, 1 << 16)),
        field("expression", &MixedComplexityOptions::expression, "what the islands are"),
        field("filler", &MixedComplexityOptions::filler, "what lies around them"),
        field("seed", &MixedComplexityOptions::seed,
              "seed of chain and samples, independent of run.seed", at_least(0)),
        field("train", &MixedComplexityOptions::train, "what is trained on"),
        field("valid", &MixedComplexityOptions::valid,
              "what is evaluated on; never an expression of the training", changes_scores())};
  }
  /// Refuses expressions that are drawn too rarely, and sequences too short for the islands.
  void validate(Problems& problems) const {
    expression.check_drawing(problems, "expression.");
    // The longest island has max_length - 1 tokens and the `=`.
    const int64_t most = islands * expression.max_length;
    if (most <= sequence) return;
    problems.add("sequence",
                 fmt::format("{} have no room for {}, which take up to {}; raise it, or "
                             "lower islands or expression.max_length",
                             counted(sequence, "token"), counted(islands, "island"), most));
  }
};

/// A chain of order 1 over states 0, 1, ...
class MarkovChain {
 public:
  MarkovChain(const FillerOptions& options, int64_t seed) : states_(options.tokens) {
    const ScalarDraws draws(
        {static_cast<uint64_t>(seed), Purpose::kSynthetic, hash_name("mixed_complexity.chain"), 0});
    std::vector<int64_t> all(static_cast<size_t>(states_)), swapped;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t state = 0; state < states_; ++state) {
      uint32_t used = 0;
      const auto id = static_cast<uint64_t>(state);
      std::vector<Successor>& successors = successors_.emplace_back();
      double sum = 0.0;
      for (int64_t i = 0; i < options.successors; ++i) {
        const int64_t other = i + draws.integer(id, used++, states_ - i);
        std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(other)]);
        swapped.push_back(other);
        sum += draws.uniform(id, used++);
        successors.push_back({all[static_cast<size_t>(i)], sum});
      }
      for (; !swapped.empty(); swapped.pop_back()) {  // back to 0, 1, ...
        std::swap(all[swapped.size() - 1], all[static_cast<size_t>(swapped.back())]);
      }
    }
  }

  int64_t first(double uniform) const {
    return std::min(states_ - 1, static_cast<int64_t>(uniform * static_cast<double>(states_)));
  }
  int64_t next(int64_t state, double uniform) const {
    const std::vector<Successor>& successors = successors_[static_cast<size_t>(state)];
    const double point = uniform * successors.back().weight_up_to;
    for (const Successor& successor : successors) {
      if (point < successor.weight_up_to) return successor.state;
    }
    return successors.back().state;
  }

 private:
  struct Successor {
    int64_t state;
    double weight_up_to;  // with those before it
  };
  int64_t states_;
  std::vector<std::vector<Successor>> successors_;
};

class MixedComplexitySet final : public SampleSet {
 public:
  MixedComplexitySet(const MixedComplexityOptions& options, Split split)
      : options_(options),
        split_(split),
        size_(samples_of(options, split)),
        chain_(options.filler, options.seed),
        islands_(drawn_stream(options.seed, "mixed_complexity.islands", split)),
        places_(drawn_stream(options.seed, "mixed_complexity.places", split)),
        filler_(drawn_stream(options.seed, "mixed_complexity.filler", split)) {}

  int64_t size() const override { return size_; }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const auto id = static_cast<uint64_t>(index);
    std::vector<ListOpsExpression> islands;
    int64_t num_filler = options_.sequence;
    for (int64_t i = 0; i < options_.islands; ++i) {
      islands.push_back(draw_expression(options_.expression, split_, islands_,
                                        static_cast<uint64_t>(index * options_.islands + i),
                                        "data.expression"));
      num_filler -= std::ssize(islands.back().tokens) + 1;
    }
    std::vector<int64_t> place;  // tokens of filler before each island
    for (int64_t i = 0; i < options_.islands; ++i) {
      place.push_back(places_.integer(id, static_cast<uint32_t>(i), num_filler + 1));
    }
    std::ranges::sort(place);
    Sample sample;
    int64_t state = 0;
    auto island = islands.begin();
    for (int64_t i = 0; i <= num_filler; ++i) {
      for (; island != islands.end() && place[static_cast<size_t>(island - islands.begin())] == i;
           ++island) {
        write(*island, sample);
      }
      if (i == num_filler) break;
      const double uniform = filler_.uniform(id, static_cast<uint32_t>(i));
      state = i == 0 ? chain_.first(uniform) : chain_.next(state, uniform);
      sample.token_S.push_back(kFiller + state);
      sample.token_label_S.push_back(kNoLabel);
    }
    return sample;
  }

 private:
  static void write(const ListOpsExpression& island, Sample& sample) {
    sample.token_S.insert(sample.token_S.end(), island.tokens.begin(), island.tokens.end());
    sample.token_label_S.resize(sample.token_S.size(), kNoLabel);
    sample.token_S.push_back(kEquals);
    sample.token_label_S.push_back(kListOpsDigit + island.value);
  }

  MixedComplexityOptions options_;
  Split split_;
  int64_t size_;
  MarkovChain chain_;
  Stream islands_;
  ScalarDraws places_, filler_;
};

/// Data source `mixed_complexity`, for models that spend more compute on hard tokens: islands of
/// ListOps (nested MIN, MAX, MED, SM of digits) at random places in easy filler. The filler is
/// drawn from a first-order Markov chain that depends on the seed alone and continues behind an
/// island. Each island ends with `=`, the only labelled token, whose label is the digit that is the
/// expression's value. Token ids: those of ListOps, `=`, then the filler's. The paper "HSPMN v2.1:
/// Adaptive Computation via ..." names such a task without defining it; this definition is ours.
class MixedComplexitySource : public DrawnSource<MixedComplexityOptions, MixedComplexitySet> {
 public:
  using DrawnSource::DrawnSource;

  static constexpr Sketch kSketch{
      .lines =
          "  sequence: 128\n"
          "  islands: 3                     # expressions per sample\n"};  ///< for `shoal new`

  DataShape shape() const override {
    return {.source = "mixed_complexity",
            .sequence = options_.sequence,
            .vocabulary = kFiller + options_.filler.tokens,
            .token_labels = options_.islands};
  }
};

const Registration<DataSource, MixedComplexitySource> registered_mixed_complexity_source{
    "mixed_complexity",
    "ListOps expressions among filler, each labelled with its value; needs no files"};

}  // namespace
}  // namespace shoal
