#include "models/backbone.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"

// b images on this rank  C channels  H height  W width
namespace shoal {
namespace {

/// A baseline for probes and nearest neighbours: features are an image's normalised pixels.
class FlatPixels : public Backbone {
 public:
  using Options = NoOptions;

  FlatPixels(const Options& /*options*/, const Context& context)
      : width_(require_images(context.data, "model.backbone", "flat_pixels").bytes()) {
    if (context.features == Features::kPooled) return;
    throw ConfigError("model.backbone: flat_pixels is one vector per image; the task needs tokens");
  }

  ModelOutput forward(const ModelInput& input, const StepContext& /*step*/) override {
    return {.pooled_bD = at_least_float32(input.image_bCHW).flatten(1)};
  }
  int64_t feature_width() const override { return width_; }

 private:
  int64_t width_;
};

const Registration<Backbone, FlatPixels> registered_flat_pixels{
    "flat_pixels", "no model: the image itself, as a baseline"};

}  // namespace
}  // namespace shoal
