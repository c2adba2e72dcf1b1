#include <algorithm>

#include "sparse/grow_rules/topological_rule.h"

namespace shoal {

/// How CHTs selects the links to keep and to grow.
enum class LinkSelection {
  kSample,  ///< with chances in proportion to their scores
  kTop,     ///< the highest scores
};

template <>
inline constexpr std::array kEnumWords<LinkSelection>{"sample", "top"};

namespace {

/// CHT with random selection: keeps links with probabilities proportional to |w|^tau, where tau
/// grows linearly until the last update, and grows links with probabilities proportional to their
/// scores; if too few have a score, random links of score 0.
/// Source: Zhang et al. 2025 (CHTs).
class ChtS : public TopologicalRule {
 public:
  struct Options : ReplaceOptions {
    Options() { fraction = 0.1; }
    LinkScore score = LinkScore::kCh2L3n;
    LinkSelection selection = LinkSelection::kSample;
    double first_tau = 1.0, last_tau = 9.0;
    bool chain_removal = false;

    static constexpr auto fields() {
      return std::tuple_cat(
          ReplaceOptions::fields(),
          std::tuple{
              field("score", &Options::score, "score by which links are grown"),
              field("selection", &Options::selection,
                    "sample: kept and grown links are sampled in proportion to their scores; top: "
                    "the highest are selected"),
              field("first_tau", &Options::first_tau,
                    "initial exponent of |w| in the keep probability", in_range(0.0, 64.0)),
              field("last_tau", &Options::last_tau, "the same at `until`", in_range(0.0, 64.0)),
              field("chain_removal", &Options::chain_removal,
                    "whether neurons without incoming or outgoing links lose the others, too")});
    }
  };
  ChtS(const Options& options, const Context& context)
      : TopologicalRule(options, context, options.score), options_(options) {}

  bool removes_chains() const override { return options_.chain_removal; }
  torch::Tensor keep_score(const CellState& cells) const override {
    const torch::Tensor size_C = cells.weight_C.abs().to(torch::kFloat64);
    if (options_.selection == LinkSelection::kTop) return size_C;
    // Scaled to a maximum of 1, so that powers neither overflow nor all vanish.
    const double largest = std::max(size_C.max().item<double>(), kSmallest);
    const torch::Tensor chance_C =
        (size_C / largest).pow_(tau(static_cast<int64_t>(cells.stream.step)));
    return race_scores(chance_C, cells.stream, "keep");
  }
  torch::Tensor grow_score(const CellState& cells) const override {
    const torch::Tensor score_C = TopologicalRule::grow_score(cells);
    if (options_.selection == LinkSelection::kTop) return score_C;
    return race_scores(score_C, cells.stream, "grow");
  }

 private:
  static constexpr double kSmallest = 1e-300;

  double tau(int64_t step) const {
    return options_.first_tau + (options_.last_tau - options_.first_tau) * progress(step);
  }

  Options options_;
};

const Registration<GrowRule, ChtS> registered_cht_s{
    "cht_s", "like cht, but samples the links that it keeps and grows"};

}  // namespace
}  // namespace shoal
