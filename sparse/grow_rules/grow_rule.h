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

// C cells
namespace shoal {

/// What a rule knows of a matrix whose mask is to be updated.
struct CellState {
  torch::Tensor is_on_C = {};   ///< bool
  torch::Tensor weight_C = {};  ///< Pattern::pool of the weights
  torch::Tensor gradient_C =
      {};              ///< of the summed gradient of all weights, if the rule asks for it
  Stream stream = {};  ///< of this matrix and step
  int64_t rows = 0, columns = 0;  ///< outputs and inputs of the matrix
  /// bool: those that stay in this update, if the rule asks for them to score what grows.
  torch::Tensor is_kept_C = {};
};

/// Cells of a matrix: those that are on, those of the density asked for, and all.
struct CellTotals {
  int64_t on = 0, target = 0, all = 0;
};

/// How many cells an update drops and grows.
struct CellCounts {
  int64_t drop = 0, grow = 0;
};

/// How the cells of a matrix are chosen while all of them are still trained (soft_cells.h).
struct SoftChoice {
  double first_temperature = 0.0, last_temperature = 0.0;
  double lr = 0.0;          ///< of the cells' scores
  double threshold = 0.0;   ///< the choice is made once it is this near to being hard
  int64_t check_every = 0;  ///< steps from one look at that to the next
  int64_t until = 0;        ///< every layer's choice is made from this step on

  /// Falls by a cosine from the first to the last at `until`.
  double temperature(int64_t step) const;
};

/// Which cells dynamic sparse training drops and grows, how many of them, and when.
///
/// Registered under `rule`. Scores are >= 0, and finite where weights and gradients are. All
/// randomness comes from the stream of the matrix and step.
class GrowRule {
 public:
  struct Context {
    StepScale scale;  ///< of the training
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "grow rule";
  virtual ~GrowRule() = default;

  /// Whether masks are updated in this step, counted from 0.
  virtual bool is_due(int64_t step) const = 0;
  /// From this step on no update changes a mask any more. Default: none ever does.
  virtual int64_t rests_from() const { return 0; }
  /// Throws ConfigError, beginning with `layer`, where masks of this pattern cannot follow the
  /// rule.
  virtual void check(const Pattern& pattern, const std::string& layer) const {
    (void)pattern, (void)layer;
  }
  /// Whether a cell that was just dropped may not grow again at once, unless too few are left.
  virtual bool excludes_dropped() const { return false; }
  /// Whether scores read the gradients of all weights, also of those that are off.
  virtual bool needs_gradient() const { return false; }
  /// Whether grow scores read CellState::is_kept_C.
  virtual bool reads_kept() const { return false; }
  /// Whether neurons without incoming or without outgoing links lose the others as well before
  /// cells grow, which as many more do (chain_removal.h). Of rules that read kept cells.
  virtual bool removes_chains() const { return false; }
  /// The share of an update's grown cells that it had just dropped from which on a matrix keeps its
  /// mask for good; nullopt: no share. Of rules that read kept cells.
  virtual std::optional<double> stop_overlap() const { return std::nullopt; }
  /// Whether masks may have more cells than asked for until the last update.
  virtual bool may_exceed_density() const { return false; }
  /// Whether an update takes the place of the optimizer's step.
  virtual bool replaces_step() const { return false; }
  /// Of cells that are on, the lowest are dropped. Default: the size of the weights.
  virtual torch::Tensor keep_score(const CellState& cells) const { return cells.weight_C.abs(); }
  /// Of cells that are not kept, the highest are grown.
  virtual torch::Tensor grow_score(const CellState& cells) const = 0;
  virtual CellCounts counts(int64_t step, const CellTotals& cells) const = 0;
  /// How the first masks are learned; null if they are drawn.
  virtual const SoftChoice* soft_choice() const { return nullptr; }
};

/// How the share of cells that an update replaces changes until the last one.
enum class FractionDecay { kCosine, kConstant };

template <>
struct EnumNames<FractionDecay> {
  static constexpr std::array names{std::pair{FractionDecay::kCosine, "cosine"},
                                    std::pair{FractionDecay::kConstant, "constant"}};
};

/// Steps between updates.
inline constexpr auto kUpdateUnits =
    accepts(DurationUnit::kStep, DurationUnit::kEpoch, DurationUnit::kToken);
/// A place in the training.
inline constexpr auto kPlaceUnits = accepts(DurationUnit::kStep, DurationUnit::kEpoch,
                                            DurationUnit::kToken, DurationUnit::kPercent);

/// Options of the rules that replace a share of the cells that are on.
struct ReplaceOptions {
  Duration every = Duration::steps(100);
  double fraction = 0.3;
  Duration until = Duration::percent(75);
  FractionDecay decay = FractionDecay::kCosine;
  bool exclude_dropped = false;

  static constexpr auto fields() {
    return std::tuple{
        field("every", &ReplaceOptions::every, "from one update of the masks to the next", above(0),
              kUpdateUnits),
        field("fraction", &ReplaceOptions::fraction,
              "share of the cells that are on which an update replaces, at first",
              in_range(0.0, 1.0)),
        field("until", &ReplaceOptions::until, "from here on masks stay", above(0), kPlaceUnits),
        field("decay", &ReplaceOptions::decay,
              "cosine: the share falls to 0 until then; constant: it stays"),
        field("exclude_dropped", &ReplaceOptions::exclude_dropped,
              "whether a weight that an update drops may not grow again in it")};
  }
};

/// A rule that every so many steps replaces a share f of the cells that are on, with cosine decay
/// f = fraction / 2 (1 + cos(pi step / until)). Source: Evci et al. 2020 (RigL), section 3.
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
  /// f.
  double fraction(int64_t step) const;
  /// floor(f · those that are on), dropped and grown.
  CellCounts counts(int64_t step, const CellTotals& cells) const override;

 protected:
  /// How much of the time in which masks change has passed: 0 at first, 1 at `until`.
  double progress(int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(until_);
  }

 private:
  Options options_;
  int64_t every_, until_;
};

/// Uniform random scores of the cells.
torch::Tensor random_scores(const CellState& cells);

}  // namespace shoal
