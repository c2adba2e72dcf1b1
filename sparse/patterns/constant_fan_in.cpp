#include <algorithm>
#include <cmath>
#include <limits>

#include "sparse/patterns/best_cells.h"
#include "sparse/patterns/pattern.h"

// m neurons (rows)  n inputs
namespace shoal {

/// Fan-in that `ablate_below` is a share of.
enum class AblationFanIn { kSparse, kDense };

template <>
inline constexpr std::array kEnumWords<AblationFanIn>{"sparse", "dense"};

namespace {

constexpr double kFirst = std::numeric_limits<double>::infinity();

/// Constant fan-in: each neuron that is not ablated has the same number of weights.
///
/// An update ablates neurons with too few salient weights; salient are those kept, and the highest
/// grow scores, as many as weights were dropped. The other neurons share all weights evenly: each
/// drops its lowest keep scores or grows its highest grow scores.
/// Source: Lasby et al. 2024 (SRigL), section 3. By default ablate_below is a share of the mask's
/// fan-in, rounded down, as there. Differs: a neuron with too many weights drops its lowest scores,
/// where the public code leaves the choice open; the weights shared out are m times the first
/// mask's fan-in; and enough neurons stay active that none needs more than n weights.
class ConstantFanIn : public Pattern {
 public:
  struct Options {
    double ablate_below = 0.0;
    AblationFanIn ablation_fan_in = AblationFanIn::kSparse;

    static constexpr auto fields() {
      return std::tuple{field("ablate_below", &Options::ablate_below,
                              "ablate neurons with fewer salient weights than this fraction of the "
                              "fan-in or, from 1 on, than this number; 0: none",
                              at_least(0.0)),
                        field("ablation_fan_in", &Options::ablation_fan_in,
                              "the fan-in of which ablate_below is a share: that of the mask or "
                              "that of the whole matrix")};
    }
  };
  ConstantFanIn(const Options& options, const Context& context)
      : Pattern(context), options_(options), fan_in_(share_of(num_cells()) / rows()) {
    if (fan_in_ < 1) refuse_density(columns(), "weights of a neuron");
  }
  bool can_exceed_density() const override { return false; }
  int64_t num_on() const override { return rows() * fan_in_; }
  torch::Tensor choose(const torch::Tensor& score_C) const override {
    return best_of_rows(score_C.view({rows(), columns()}), fan_in_).view({-1});
  }

  bool holds(const torch::Tensor& is_on_C) const override {
    const torch::Tensor fan_in_m = is_on_C.view({rows(), columns()}).sum(1);
    const int64_t active = (fan_in_m > 0).sum().item<int64_t>();
    if (active == 0) return false;
    const int64_t wanted = std::min(columns(), num_on() / active);
    return ((fan_in_m == 0) | (fan_in_m == wanted)).all().item<bool>();
  }
  torch::Tensor update(const CellUpdate& update) const override {
    const torch::Tensor kept = prune(update);
    const torch::Tensor grow = grow_scores(update, kept);
    const torch::Tensor salient_mn =
        (kept | best_cells(grow, update.num_grow, ~kept)).view({rows(), columns()});
    const torch::Tensor is_active_m = active_neurons(salient_mn.sum(1));
    const int64_t active = is_active_m.sum().item<int64_t>();
    const int64_t fan_in = std::min(columns(), num_on() / active);
    // For each neuron kept weights by keep score, then grown ones by grow score.
    const torch::Tensor kept_mn = kept.view({rows(), columns()});
    const torch::Tensor best_kept_mn = best_of_rows(
        update.keep_score_C.view({rows(), columns()}).masked_fill(~kept_mn, -1.0), fan_in);
    const torch::Tensor stays_mn = best_kept_mn & kept_mn;
    const torch::Tensor mask_mn =
        best_of_rows(grow.view({rows(), columns()}).masked_fill(stays_mn, kFirst), fan_in);
    return (mask_mn & is_active_m.unsqueeze(1)).view({-1});
  }

 private:
  /// Neurons with enough salient weights, bool [m]; at least as many as if each had n weights.
  torch::Tensor active_neurons(const torch::Tensor& salient_m) const {
    double least = options_.ablate_below;
    if (least < 1.0) {
      const bool is_sparse = options_.ablation_fan_in == AblationFanIn::kSparse;
      least = std::floor(least * static_cast<double>(is_sparse ? fan_in_ : columns()));
    }
    const torch::Tensor is_active_m = salient_m >= least;
    const int64_t fewest = std::max<int64_t>(1, (num_on() + columns() - 1) / columns());
    if (is_active_m.sum().item<int64_t>() >= fewest) return is_active_m;
    return best_cells(salient_m.to(torch::kFloat64), fewest);
  }

  Options options_;
  int64_t fan_in_;  ///< where no neuron is ablated
};

const Registration<Pattern, ConstantFanIn> registered_constant_fan_in{
    "constant_fan_in", "the same number of weights for each neuron (SRigL)"};

}  // namespace
}  // namespace shoal
