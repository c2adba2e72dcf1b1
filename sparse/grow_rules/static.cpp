#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// Never changes the first masks.
class Static : public GrowRule {
 public:
  using Options = NoOptions;
  explicit Static(const Options& /*options*/) {}
};

const Registration<GrowRule, Static> registered_static{"static", "keeps the initial masks"};

}  // namespace
}  // namespace shoal
