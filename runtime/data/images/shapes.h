#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"

namespace shoal {

/// Data source `shapes`, for trials without files: each image has one shape on a plain ground.
/// Either the shape or the ground is coloured; the other is dark grey. Place, size, colours and
/// noise are random. Class c is shape c mod 10 (disc, square, triangle, cross, ring, horizontal and
/// vertical stripes, diamond, diagonal cross, checkers); with over 10 classes, c / 10 selects a
/// band of hues. Mirroring keeps the class. An image is a function of (seed, split, index).
class ShapesSource : public DataSource {
 public:
  struct Options {
    int64_t image_size = 32;
    int64_t classes = 10;
    double noise = 0.1;
    int64_t seed = 0;
    DrawnSplit<8192> train;
    DrawnSplit<2048> valid;
    ImageOptions images;

    static constexpr auto fields() {
      return std::tuple{
          field("image_size", &Options::image_size, "height and width", unit("pixels"),
                in_range(8, 4096)),
          field("classes", &Options::classes, "number of classes", in_range(2, 10000)),
          field("noise", &Options::noise, "largest change of a pixel value in [0, 1]",
                in_range(0, 1)),
          field("seed", &Options::seed, "seed of the images, independent of run.seed", at_least(0)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on; never the training images",
                changes_scores()),
          inlined(&Options::images)};
    }
  };

  static constexpr Sketch kSketch{
      .image = ImageShape{3, 32, 32},
      .lines =
          "  image_size: 32\n"
          "  classes: 10\n"
          "  train: {samples: 8192}         # drawn images; no files are needed\n"
          "  valid: {samples: 1024}\n",
      .is_usual = true};  ///< starter recipe of `shoal new`

  explicit ShapesSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  std::vector<std::string> class_names() const override;
  std::optional<ImageTransform> image_transform() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
