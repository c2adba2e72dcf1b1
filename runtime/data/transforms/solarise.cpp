#include <tuple>

#include "runtime/data/transforms/tone.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Inverts the bright pixels.
class Solarise final : public PixelTransform {
 public:
  struct Options {
    int64_t threshold = 128;

    static constexpr auto fields() {
      return std::tuple{field("threshold", &Options::threshold,
                              "least byte that is inverted; 256 = none", in_range(0, 256))};
    }
  };

  explicit Solarise(const Options& options) : threshold_(options.threshold) {}
  bool needs_colours() const override { return false; }
  void apply(EditedImage& image, const TransformDraws&) const override {
    solarise(image, threshold_);
  }

 private:
  int64_t threshold_;
};

const Registration<PixelTransform, Solarise> registered_solarise{"solarise",
                                                                 "bright pixels inverted"};

}  // namespace
}  // namespace shoal
