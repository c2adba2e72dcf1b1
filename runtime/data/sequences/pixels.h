#pragma once

#include <memory>
#include <tuple>

#include "runtime/data/data_source.h"

namespace shoal {

/// Data source `pixels`: images of another source as sequences, row by row. Each pixel is a token,
/// its grey value from 0 to 255. Colours become grey as in the Long Range Arena: 0.2989 red +
/// 0.5870 green + 0.1140 blue (tf.image.rgb_to_grayscale). Labels stay the same.
class PixelsSource : public DataSource {
 public:
  struct Options {
    Choice<DataSource> images;

    static constexpr auto fields() {
      return std::tuple{
          required("images", &Options::images,
                   "the source of the images, with its keys: {source: cifar, path: ...}")};
    }
    /// Requires images of one size and 1 or 3 channels. Refuses the keys `augment`, `normalise`.
    void validate(Problems& problems) const;
  };

  static constexpr Sketch kSketch{
      .has_classes = true,
      .lines =
          "  images: {source: pathfinder, image_size: 20, length: 3, distractors: 1, "
          "distractor_length: 2}\n"};  ///< starter recipe of `shoal new`

  PixelsSource(const Options& options, const Context& context);

  DataShape shape() const override;
  /// Reports the problems that the source of the images reports.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  std::shared_ptr<const DataSource> images_;
};

}  // namespace shoal
