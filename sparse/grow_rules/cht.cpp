#include "sparse/grow_rules/topological_rule.h"

namespace shoal {
namespace {

/// CHT: drops the smallest weights and neurons without paths through them, and grows the links with
/// the highest topological scores. A matrix keeps its mask once most grown links were just dropped.
/// If too few links have a score, links of score 0 are grown in order of their index.
/// Source: Zhang et al. 2024 (CHT).
class Cht : public TopologicalRule {
 public:
  struct Options : ReplaceOptions {
    Options() {
      every = Duration::epochs(1);
      until = Duration::percent(100);
      decay = FractionDecay::kConstant;
    }
    LinkScore score = LinkScore::kCh3L3p;
    bool chain_removal = true;
    std::optional<double> stop_overlap = 0.9;

    static constexpr auto fields() {
      return std::tuple_cat(
          ReplaceOptions::fields(),
          std::tuple{
              field("score", &Options::score, "score by which links are grown"),
              field("chain_removal", &Options::chain_removal,
                    "whether neurons without incoming or outgoing links lose the others, too"),
              field("stop_overlap", &Options::stop_overlap,
                    "a mask is fixed once this fraction of grown links was just dropped",
                    in_range(0.0, 1.0), unset_word("never"))});
    }
  };
  Cht(const Options& options, const Context& context)
      : TopologicalRule(options, context, options.score), options_(options) {}

  bool removes_chains() const override { return options_.chain_removal; }
  std::optional<double> stop_overlap() const override { return options_.stop_overlap; }

 private:
  Options options_;
};

const Registration<GrowRule, Cht> registered_cht{
    "cht", "drops the smallest weights, grows the links with the highest topological scores"};

}  // namespace
}  // namespace shoal
