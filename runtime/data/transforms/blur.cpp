#include <tuple>

#include "runtime/data/transforms/gaussian_blur.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// A Gaussian blur of random width, as in SimCLR and MoCo v3.
class Blur final : public PixelTransform {
 public:
  struct Options {
    std::vector<double> sigma{0.1, 2.0};

    static constexpr auto fields() {
      return std::tuple{field("sigma", &Options::sigma, "least and most deviation of the Gaussian",
                              unit("pixels"), in_range(0, 100))};
    }
    void validate(Problems& problems) const { require_pair("sigma", sigma, problems); }
  };

  explicit Blur(const Options& options) : options_(options) {}
  bool needs_colours() const override { return false; }
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    gaussian_blur(image, draws.between(0, options_.sigma[0], options_.sigma[1]));
  }

 private:
  Options options_;
};

const Registration<PixelTransform, Blur> registered_blur{"blur", "Gaussian of random width"};

}  // namespace
}  // namespace shoal
