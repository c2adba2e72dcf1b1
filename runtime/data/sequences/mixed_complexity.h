#pragma once

#include <cstdint>
#include <memory>
#include <tuple>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/drawn_samples.h"
#include "runtime/data/sequences/listops_expression.h"

namespace shoal {

/// Data source `mixed_complexity`, for models that spend more compute on hard tokens: islands of
/// ListOps (nested MIN, MAX, MED, SM of digits) at random places in easy filler. The filler is
/// drawn from a first-order Markov chain that depends on the seed alone and continues behind an
/// island. Each island ends with `=`, the only labelled token, whose label is the digit that is the
/// expression's value. Token ids: those of ListOps, `=`, then the filler's. The paper "HSPMN v2.1:
/// Adaptive Computation via ..." names such a task without defining it; this definition is ours.
class MixedComplexitySource : public DataSource {
 public:
  /// The recipe's section `data.filler`.
  struct FillerOptions {
    int64_t tokens = 32;
    int64_t successors = 4;

    static constexpr auto fields() {
      return std::tuple{
          field("tokens", &FillerOptions::tokens, "states of the chain, a token each",
                in_range(1, 1 << 16)),
          field("successors", &FillerOptions::successors,
                "tokens that may follow one, with drawn probabilities", in_range(1, 1 << 10))};
    }
    /// Refuses more successors than tokens.
    void validate(Problems& problems) const;
  };
  struct Options {
    int64_t sequence = 256;
    int64_t islands = 4;
    ListOpsRule expression{.min_length = 3, .max_length = 24, .max_depth = 3, .max_args = 4};
    FillerOptions filler;
    int64_t seed = 0;
    DrawnSplit<100000> train;
    DrawnSplit<3000> valid;

    static constexpr auto fields() {
      return std::tuple{
          field("sequence", &Options::sequence, "tokens of a sample", unit("tokens"),
                in_range(2, 1 << 20)),
          field("islands", &Options::islands, "expressions of a sample", in_range(1, 1 << 16)),
          field("expression", &Options::expression, "what the islands are"),
          field("filler", &Options::filler, "what lies around them"),
          field("seed", &Options::seed, "of chain and samples; run.seed leaves them alone",
                at_least(0)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid,
                "what is evaluated on; never an expression of the training", changes_scores())};
    }
    /// Refuses expressions that are drawn too rarely, and sequences too short for the islands.
    void validate(Problems& problems) const;
  };

  static constexpr int64_t kEquals = kListOpsVocabulary, kFiller = kListOpsVocabulary + 1;

  static constexpr Sketch kSketch{
      .lines =
          "  sequence: 128\n"
          "  islands: 3                     # expressions of a sample\n"};  ///< for `shoal new`

  explicit MixedComplexitySource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
