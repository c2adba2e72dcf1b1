#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/exact_share.h"
#include "sparse/grow_rules/grow_rule.h"

namespace shoal {

/// How an update of MEST changes the density before it returns to its target.
enum class MestMode {
  kElastic,  ///< EM: drops below it and grows back
  kSoft,     ///< EM&S: the mask has more cells than asked for, fewer and fewer
};

template <>
inline constexpr std::array kEnumWords<MestMode>{"em", "em_s"};

namespace {

/// Drops the lowest |w| + lambda |g| and grows at random. An update replaces a share of all cells
/// that falls in steps: `extra` at first, half of it from `half_from` on, 0 from `until` on.
/// Source: Yuan et al. 2021 (MEST), section 3. Differs: drops by rank, so that ties drop no more.
class Mest : public GrowRule {
 public:
  struct Options {
    Duration every = Duration::epochs(5);
    MestMode mode = MestMode::kElastic;
    double lambda = 0.01;
    double extra = 0.02;
    Duration half_from{DurationUnit::kPercent, 5625, 100};  // epochs 90 and 120 of 160
    Duration until = Duration::percent(75);

    static constexpr auto fields() {
      return std::tuple{
          field("every", &Options::every, "interval between mask updates", above(0), kCountedUnits),
          field(
              "mode", &Options::mode,
              "em: drop below the density and grow back to it; em_s: stay above it until the end"),
          field("lambda", &Options::lambda, "weight of the gradient in the score", at_least(0.0)),
          field("extra", &Options::extra, "initial fraction of all cells that an update replaces",
                in_range(0.0, 1.0)),
          field("half_from", &Options::half_from, "from here on, the fraction is half of that",
                above(0), kPlaceUnits),
          field("until", &Options::until, "when masks become fixed", above(0), kPlaceUnits)};
    }
  };
  Mest(const Options& options, const Context& context)
      : options_(options),
        every_(steps_of("every", options.every, context.scale)),
        half_from_(steps_of("half_from", options.half_from, context.scale)),
        until_(steps_of("until", options.until, context.scale)),
        total_(context.scale.total_steps) {}

  /// em_s: the last update reduces the density to its target. Later updates change nothing, unless
  /// that step was skipped.
  bool is_due(int64_t step) const override {
    const bool is_regular = step > 0 && step % every_ == 0;
    if (options_.mode == MestMode::kSoft) return is_regular || step == until_;
    return is_regular && step < until_;
  }
  int64_t rests_from() const override {
    return options_.mode == MestMode::kSoft ? until_ + 1 : until_;
  }
  void check(const Pattern& pattern, const std::string& layer) const override {
    if (options_.mode == MestMode::kSoft && until_ >= total_) {
      throw ConfigError(layer +
                        ": masks of mode em_s come down to the density asked for at `until`, "
                        "so it must be before the end of the training");
    }
    if (options_.mode == MestMode::kSoft && !pattern.can_exceed_density()) {
      throw ConfigError(layer +
                        ": masks of this pattern cannot have more weights than asked for, as "
                        "mode em_s lets them; set mode: em");
    }
    const int64_t extra = extra_cells(0, pattern.num_cells());
    if (options_.mode == MestMode::kElastic && extra >= pattern.num_on()) {
      throw ConfigError(
          fmt::format("{}: an update would drop all of its {} cells that are on; set "
                      "rule.extra below its density",
                      layer, pattern.num_on()));
    }
  }
  bool needs_gradient() const override { return options_.lambda > 0.0; }
  bool may_exceed_density() const override { return options_.mode == MestMode::kSoft; }
  torch::Tensor keep_score(const CellState& cells) const override {
    const torch::Tensor size_C = cells.weight_C.abs();
    return needs_gradient() ? size_C + options_.lambda * cells.gradient_C.abs() : size_C;
  }
  torch::Tensor grow_score(const CellState& cells) const override { return random_scores(cells); }
  CellCounts counts(int64_t step, const CellTotals& cells) const override {
    const int64_t extra = extra_cells(step, cells.all);
    const bool is_elastic = options_.mode == MestMode::kElastic;
    const int64_t kept = is_elastic ? std::max<int64_t>(0, cells.target - extra) : cells.target;
    return {std::max<int64_t>(0, cells.on - kept), is_elastic ? cells.target - kept : extra};
  }

 private:
  int64_t extra_cells(int64_t step, int64_t all) const {
    if (step >= until_) return 0;
    const double share = step < half_from_ ? options_.extra : options_.extra / 2.0;
    return floor_share(all, decimal_of(share));
  }

  Options options_;
  int64_t every_, half_from_, until_, total_;
};

const Registration<GrowRule, Mest> registered_mest{
    "mest", "drops the lowest |w| + lambda |g|, grows at random, with a decreasing fraction"};

}  // namespace
}  // namespace shoal
