#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/duration.h"
#include "runtime/base/keyed_steps.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/random/random_stream.h"
#include "sparse/patterns/pattern.h"

// C cells of a pattern: sets of weights of a matrix that a mask switches on or off together
namespace shoal {

/// What a rule reads of one matrix, by cell: the current mask, weights and gradients.
struct CellState {
  torch::Tensor is_on_C = {};     ///< bool
  torch::Tensor weight_C = {};    ///< Pattern::pool of the weights, one number per cell
  torch::Tensor gradient_C = {};  ///< pool of the gradient of all weights, if needs_gradient()
  Stream stream = {};             ///< key of the random draws of this matrix and step
  int64_t rows = 0, columns = 0;  ///< outputs m and inputs n of the matrix
  /// bool: cells left after this update's drops; set for grow_score() if reads_kept().
  torch::Tensor is_kept_C = {};
};

/// Numbers of cells of a matrix: on now, on at the target density, and in all.
struct CellTotals {
  int64_t on = 0, target = 0, all = 0;
};

/// Numbers of cells that an update drops and grows.
struct CellCounts {
  int64_t drop = 0, grow = 0;
};

/// Schedule by which the rule `soft_top_k` learns first masks: every cell is trained and weighted
/// by a softmax of its score, whose temperature falls until each layer keeps its best cells.
struct SoftChoice {
  double first_temperature = 0.0, last_temperature = 0.0;
  double lr = 0.0;          ///< learning rate of the cells' scores
  double threshold = 0.0;   ///< SoftCells::distance() below which a layer's choice becomes hard
  int64_t check_every = 0;  ///< steps between checks of that distance
  int64_t until = 0;        ///< step at which the choice of every layer becomes hard

  /// Softmax temperature at a step, counted from 0: cosine decay, first to last at `until`.
  double temperature(int64_t step) const;
};

/// Rule of dynamic sparse training, such as RigL or SET: when masks are updated, how many cells are
/// dropped and grown, and which. Registered under `rule`. Scores must be >= 0, and finite for
/// finite weights and gradients. All random numbers come from the stream of the matrix and step.
class GrowRule {
 public:
  struct Context {
    StepScale scale;  ///< sizes and length of the training, to convert durations into steps
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "grow rule";
  virtual ~GrowRule() = default;

  /// True if masks are updated in this step, counted from 0. Default: never.
  virtual bool is_due(int64_t /*step*/) const { return false; }
  /// First step from which masks stay as they are; default 0: masks never change.
  virtual int64_t rests_from() const { return 0; }
  /// Throws ConfigError, beginning with `layer`, if the rule cannot change masks of this pattern.
  virtual void check(const Pattern& pattern, const std::string& layer) const {
    (void)pattern, (void)layer;
  }
  /// True if cells dropped by an update cannot be grown by it, unless too few others are left.
  virtual bool excludes_dropped() const { return false; }
  /// True if scores read the gradient of all weights, including those that are off.
  virtual bool needs_gradient() const { return false; }
  /// True if grow_score() reads CellState::is_kept_C.
  virtual bool reads_kept() const { return false; }
  /// True if an update also removes all outgoing weights of neurons that lost all incoming ones, or
  /// vice versa, and grows that many more cells (chain_removal.h). Requires reads_kept().
  virtual bool removes_chains() const { return false; }
  /// Early stop: a matrix keeps its mask for good after an update that had dropped this share, or
  /// more, of the cells that it grew; nullopt: never. Requires reads_kept().
  virtual std::optional<double> stop_overlap() const { return std::nullopt; }
  /// True if masks may have more cells than the target density until the last update.
  virtual bool may_exceed_density() const { return false; }
  /// True if the optimizer is skipped in steps that update masks (as in RigL).
  virtual bool replaces_step() const { return false; }
  /// Scores [C] of cells that are on; the lowest are dropped. Default: magnitude of the weights.
  virtual torch::Tensor keep_score(const CellState& cells) const { return cells.weight_C.abs(); }
  /// Scores [C]; of the cells not kept, those with the highest are grown. Default: uniformly
  /// random.
  virtual torch::Tensor grow_score(const CellState& cells) const;
  /// Numbers of cells that the update at `step` drops and grows. Default: none.
  virtual CellCounts counts(int64_t /*step*/, const CellTotals& /*cells*/) const { return {}; }
  /// Schedule by which first masks are learned; null: first masks are random.
  virtual const SoftChoice* soft_choice() const { return nullptr; }
};

/// Decay of the share of cells that an update replaces, until the last update.
enum class FractionDecay { kCosine, kConstant };

template <>
struct EnumNames<FractionDecay> {
  static constexpr std::array names{std::pair{FractionDecay::kCosine, "cosine"},
                                    std::pair{FractionDecay::kConstant, "constant"}};
};

/// Options of rules that replace a share of the active cells.
struct ReplaceOptions {
  Duration every = Duration::steps(100);
  double fraction = 0.3;
  Duration until = Duration::percent(75);
  FractionDecay decay = FractionDecay::kCosine;
  bool exclude_dropped = false;

  static constexpr auto fields() {
    return std::tuple{
        field("every", &ReplaceOptions::every, "from one update of the masks to the next", above(0),
              kCountedUnits),
        field("fraction", &ReplaceOptions::fraction,
              "share of the active cells that an update replaces, before any decay",
              in_range(0.0, 1.0)),
        field("until", &ReplaceOptions::until, "from here on masks stay", above(0), kPlaceUnits),
        field("decay", &ReplaceOptions::decay,
              "cosine: the share falls to 0 at `until`; constant: it stays"),
        field("exclude_dropped", &ReplaceOptions::exclude_dropped,
              "whether an update excludes the weights that it drops from growing")};
  }
};

/// Base of rules that regularly replace a share f of the active cells. Constant: f = fraction;
/// cosine: f = fraction / 2 (1 + cos(pi step / until)). Source: Evci et al. 2020 (RigL), section 3.
class ReplaceRule : public GrowRule {
 public:
  using Options = ReplaceOptions;
  ReplaceRule(const Options& options, const Context& context)
      : options_(options),
        every_(steps_of("every", options.every, context.scale)),
        until_(steps_of("until", options.until, context.scale)) {}

  bool is_due(int64_t step) const override {
    return step > 0 && step % every_ == 0 && step < until_;
  }
  int64_t rests_from() const override { return until_; }
  bool excludes_dropped() const override { return options_.exclude_dropped; }
  /// The share f at a step.
  double fraction(int64_t step) const;
  /// Drops and grows floor(f · active cells) cells.
  CellCounts counts(int64_t step, const CellTotals& cells) const override;

 protected:
  /// Progress of the mask updates: 0 at the first step, 1 at `until`.
  double progress(int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(until_);
  }

 private:
  Options options_;
  int64_t every_, until_;
};

}  // namespace shoal
