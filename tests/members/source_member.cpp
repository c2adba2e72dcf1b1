#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"

namespace shoal {
namespace {

constexpr ImageShape kStripesShape{1, 4, 4};

/// Images whose rows are bright in turn, of class 0, or whose columns are, of class 1.
class StripesSet final : public SampleSet {
 public:
  StripesSet(int64_t size, double phase) : size_(size), phase_(phase) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample{.shape = kStripesShape, .pixel_CHW = {}, .label = index % 2};
    for (int64_t pixel = 0; pixel < kStripesShape.pixels(); ++pixel) {
      const int64_t place = sample.label == 0 ? pixel / 4 : pixel % 4;
      const double noise = std::sin(0.7 * static_cast<double>(index * 16 + pixel) + phase_);
      sample.pixel_CHW.push_back(
          static_cast<uint8_t>(60 + 100 * (place % 2) + std::lround(50 * noise)));
    }
    return sample;
  }

 private:
  int64_t size_;
  double phase_;
};

class StripesSource final : public DataSource {
 public:
  struct Options {
    double phase = 0.0;
    std::string cache = "unused";
    DrawnSplit<48> train;
    DrawnSplit<16> valid;

    static constexpr auto fields() {
      return std::tuple{field("phase", &Options::phase, "of the noise"),
                        field("cache", &Options::cache, "a folder that holds nothing", file_path(),
                              on_resume(OnResume::kFree)),
                        field("train", &Options::train, "what is trained on"),
                        field("valid", &Options::valid, "what is evaluated on", changes_scores())};
    }
  };
  static constexpr Sketch kSketch{.image = kStripesShape,
                                  .lines =
                                      "  train: {samples: 64}\n"
                                      "  valid: {samples: 32}\n"};

  explicit StripesSource(Options options) : options_(std::move(options)) {}
  DataShape shape() const override {
    return {.source = "stripes", .image = kStripesShape, .classes = 2};
  }
  std::optional<ImageTransform> image_transform() const override {
    return ImageTransform{.shape = kStripesShape, .augment = {}, .stats = {{0.5}, {0.25}}};
  }
  std::unique_ptr<SampleSet> open(Split split) const override {
    return std::make_unique<StripesSet>(samples_of(options_, split),
                                        options_.phase + (split == Split::kTrain ? 0.0 : 0.3));
  }

 private:
  Options options_;
};

const Registration<DataSource, StripesSource> registered_stripes_source{"stripes", "for this test"};

}  // namespace
}  // namespace shoal
