#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/drawn_samples.h"

namespace shoal {

/// Data source `pathfinder`, Pathfinder-like images with one grey channel: two long dashed curves,
/// two dots and shorter distractor curves. Label 1: the dots are the two ends of one long curve; 0:
/// they are ends of different ones. Both labels are equally frequent, with equal numbers and
/// lengths of curves and equally distributed dots. Accuracies do not compare with those on the
/// files of Linsley et al. 2018 or the Long Range Arena, whose curves differ.
class PathfinderSource : public DataSource {
 public:
  struct Options {
    int64_t image_size = 32;
    int64_t length = 6;
    int64_t distractors = 2;
    int64_t distractor_length = 3;
    double dash = 2.0;
    double gap = 1.0;
    double turn = 40.0;
    int64_t seed = 0;
    DrawnSplit<160000> train;
    DrawnSplit<20000> valid;
    ImageOptions images;

    static constexpr auto fields() {
      return std::tuple{
          field("image_size", &Options::image_size, "height and width", unit("pixels"),
                in_range(8, 1024)),
          field("length", &Options::length, "dashes of the long curves", in_range(2, 1000)),
          field("distractors", &Options::distractors, "short curves", in_range(0, 1000)),
          field("distractor_length", &Options::distractor_length, "dashes of the short curves",
                in_range(1, 1000)),
          field("dash", &Options::dash, "length of a dash; half of it is its width", unit("pixels"),
                in_range(1, 100)),
          field("gap", &Options::gap, "between dashes", unit("pixels"), in_range(above(0), 100)),
          field("turn", &Options::turn, "largest angle between a dash and the next",
                unit("degrees"), in_range(0, 90)),
          field("seed", &Options::seed, "of the images; run.seed leaves them alone", at_least(0)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on, from a stream of its own",
                changes_scores()),
          inlined(&Options::images)};
    }
    /// Refuses curves that rarely fit into the image, or too many of them to place.
    void validate(Problems& problems) const;
  };

  static constexpr Sketch kSketch{
      .image = ImageShape{1, 32, 32},
      .lines =
          "  image_size: 32\n"
          "  length: 6                      # dashes of the long curves\n"
          "  distractors: 2                 # short curves\n"
          "  train: {samples: 8192}         # drawn images; no files are needed\n"
          "  valid: {samples: 1024}\n"};  ///< starter recipe of `shoal new`

  explicit PathfinderSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  std::optional<ImageTransform> image_transform() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
