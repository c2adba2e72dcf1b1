#include "runtime/data/transforms/enhance.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Takes the colours away and keeps three channels.
class Grey final : public PixelTransform {
 public:
  using Options = NoOptions;

  explicit Grey(const Options&) {}
  void apply(EditedImage& image, const TransformDraws&) const override { make_grey(image); }
};

const Registration<PixelTransform, Grey> registered_grey{"grey", "no colours"};

}  // namespace
}  // namespace shoal
