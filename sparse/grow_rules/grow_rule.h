#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "runtime/base/duration.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/random/random_stream.h"
#include "sparse/patterns/pattern.h"

// C cells of a pattern: sets of weights of a matrix that a mask switches on or off together
namespace shoal {

/// What a rule reads of one matrix. Pattern::pool makes one number of a cell's weights or
/// gradients: the L2 norm, or the value itself, with its sign, if the cell is one weight.
struct CellState {
  torch::Tensor is_on_C = {};     ///< bool
  torch::Tensor weight_C = {};    ///< pooled weights
  torch::Tensor gradient_C = {};  ///< pooled gradients of all weights, if needs_gradient()
  Stream stream = {};             ///< key of the random draws of this matrix and step
  int64_t rows = 0, columns = 0;  ///< outputs m and inputs n of the matrix
  /// bool: cells still on after the drops of this update; set for grow_score() if reads_kept().
  torch::Tensor is_kept_C = {};
};

/// Numbers of cells of a matrix: on now, on at the target density, and in all.
struct CellTotals {
  int64_t on = 0, target = 0, all = 0;
};

struct CellCounts {
  int64_t drop = 0, grow = 0;
};

/// Schedule by which the rule `soft_top_k` learns first masks. Products use each cell's weights
/// times a factor, from a softmax of the cells' scores, whose temperature falls until a layer keeps
/// its K best cells. Distance from this choice: sum of |factor - (1 if kept, else 0)| / K.
struct SoftChoice {
  double first_temperature = 0.0, last_temperature = 0.0;
  double lr = 0.0;          ///< learning rate of the cells' scores
  double threshold = 0.0;   ///< distance below which a layer makes its choice
  int64_t check_every = 0;  ///< steps between checks of the distance
  int64_t until = 0;        ///< step by which every layer makes its choice

  /// Softmax temperature at a step, counted from 0: cosine decay, first to last at `until`.
  double temperature(int64_t step) const;
};

/// Rule of dynamic sparse training, such as RigL or SET: when masks are updated, how many cells are
/// dropped and grown, and which. Registered under `rule`. An update of a matrix calls counts(),
/// keep_score() and grow_score(). Scores must be >= 0, and finite for finite weights and gradients.
/// All random numbers come from the stream of the matrix and step.
class GrowRule {
 public:
  struct Context {
    StepScale scale;  ///< sizes and length of the training, to convert durations into steps
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "grow rule";
  virtual ~GrowRule() = default;

  /// True if masks are updated in this step, counted from 0.
  virtual bool is_due(int64_t step) const = 0;
  /// First step from which masks stay as they are; default 0: masks never change.
  virtual int64_t rests_from() const { return 0; }
  /// Throws ConfigError, beginning with `layer`, if the rule cannot change masks of this pattern.
  virtual void check(const Pattern& /*pattern*/, const std::string& /*layer*/) const {}
  /// True if cells dropped by an update cannot be grown by it, unless too few others are left.
  virtual bool excludes_dropped() const { return false; }
  /// True if scores read the gradient of all weights, including those that are off.
  virtual bool needs_gradient() const { return false; }
  /// True if updates compute the mask between their drops and their growth, CellState::is_kept_C.
  virtual bool reads_kept() const { return false; }
  /// True if updates, after their drops, remove all outgoing weights of neurons without incoming
  /// ones, or vice versa, and grow as many more cells (chain_removal.h). Requires reads_kept().
  virtual bool removes_chains() const { return false; }
  /// Early stop: if at least this share of the cells that an update grows are cells that it has
  /// just dropped, the matrix keeps its mask from then on. Nullopt: never. Requires reads_kept().
  virtual std::optional<double> stop_overlap() const { return std::nullopt; }
  /// True if masks may have more than CellTotals::target cells until the last update (MEST's em_s).
  virtual bool may_exceed_density() const { return false; }
  /// True if the optimizer is skipped in steps that update masks (as in RigL).
  virtual bool replaces_step() const { return false; }
  /// Scores [C]; of the cells that are on, those with the lowest are dropped. Default: |weight_C|.
  virtual torch::Tensor keep_score(const CellState& cells) const { return cells.weight_C.abs(); }
  /// Scores [C]; of the cells not kept, those with the highest are grown.
  virtual torch::Tensor grow_score(const CellState& cells) const = 0;
  /// Numbers of cells that the update at `step` drops and grows. At most cells.target cells may be
  /// on afterwards, unless may_exceed_density().
  virtual CellCounts counts(int64_t step, const CellTotals& cells) const = 0;
  /// Schedule by which first masks are learned; null: first masks are random. A rule with a
  /// schedule must not be due before the choice, as there is no mask.
  virtual const SoftChoice* soft_choice() const { return nullptr; }
};

/// Decay of the share of cells that an update replaces, until the last update.
enum class FractionDecay { kCosine, kConstant };

template <>
inline constexpr std::array kEnumWords<FractionDecay>{"cosine", "constant"};

struct ReplaceOptions {
  Duration every = Duration::steps(100);
  double fraction = 0.3;
  Duration until = Duration::percent(75);
  FractionDecay decay = FractionDecay::kCosine;
  bool exclude_dropped = false;

  static constexpr auto fields() {
    return std::tuple{
        field("every", &ReplaceOptions::every, "interval between mask updates", above(0),
              kCountedUnits),
        field("fraction", &ReplaceOptions::fraction,
              "fraction of the active cells that an update replaces, before any decay",
              in_range(0.0, 1.0)),
        field("until", &ReplaceOptions::until, "when masks become fixed", above(0), kPlaceUnits),
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
  double fraction(int64_t step) const;  ///< f at a step
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

/// Uniform random scores, one per cell.
torch::Tensor random_scores(const CellState& cells);

}  // namespace shoal
