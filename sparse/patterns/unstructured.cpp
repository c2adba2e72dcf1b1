#include "sparse/patterns/pattern.h"

namespace shoal {
namespace {

/// Unstructured sparsity: a cell is one weight. Used by SET, RigL, MEST, CHT and CHTs.
class Unstructured : public Pattern {
 public:
  using Options = NoOptions;
  Unstructured(const Options& /*options*/, const Context& context)
      : Pattern(context), num_on_(share_of(num_cells())) {}
  bool takes_any_weights() const override { return true; }
  int64_t num_on() const override { return num_on_; }

 private:
  int64_t num_on_;
};

const Registration<Pattern, Unstructured> registered_unstructured{"unstructured", "any weights"};

}  // namespace
}  // namespace shoal
