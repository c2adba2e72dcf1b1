#include <fmt/format.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

/// 0.2989 red + 0.5870 green + 0.1140 blue in units of 1/255, scaled to 255.5 and rounded down, as
/// TensorFlow converts numbers in [0, 1] to bytes; in whole numbers.
int64_t grey_pixels_of(int64_t red, int64_t green, int64_t blue) {
  const int64_t sum = 2989 * red + 5870 * green + 1140 * blue;
  return sum * 511 / (510 * 10000);
}

class PixelsSet final : public SampleSet {
 public:
  explicit PixelsSet(std::unique_ptr<SampleSet> images) : images_(std::move(images)) {}

  int64_t size() const override { return images_->size(); }
  std::vector<int64_t> substituted() const override { return images_->substituted(); }
  std::vector<std::string> notes() const override { return images_->notes(); }
  std::vector<std::string> warnings() const override { return images_->warnings(); }
  std::string fingerprint() const override { return images_->fingerprint(); }
  std::string name(int64_t index) const override { return images_->name(index); }

  Sample read(int64_t index, int64_t epoch) const override {
    const Sample image = images_->read(index, epoch);
    const std::vector<uint8_t>& pixel = image.pixel_CHW;
    Sample sample;
    sample.label = image.label;
    if (image.shape.channels == 1) {
      sample.token_S.assign(pixel.begin(), pixel.end());
      return sample;
    }
    const size_t plane = pixel.size() / 3;
    for (size_t i = 0; i < plane; ++i) {
      sample.token_S.push_back(grey_pixels_of(pixel[i], pixel[plane + i], pixel[2 * plane + i]));
    }
    return sample;
  }

 private:
  std::unique_ptr<SampleSet> images_;
};

/// Problems of the section `images`.
class ImageProblems : public Problems {
 public:
  explicit ImageProblems(Problems& problems) : problems_(problems) {}
  void add(std::string_view path, std::string_view what) override {
    problems_.add(fmt::format("images.{}", path), what);
  }

 private:
  Problems& problems_;
};

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
                   "the source of the images, with its keys, as {source: cifar, path: ...}")};
    }
    /// Requires images of one size and 1 or 3 channels. Refuses the keys `augment`, `normalise`.
    void validate(Problems& problems) const {
      if (images.is_empty() || images.name() == "pixels") {
        if (!images.is_empty()) problems.add("images", "pixels needs a source of images");
        return;
      }
      const auto source = Registry<DataSource>::create(images, {});
      const std::optional<ImageShape> image = source->shape().image;
      if (!image || (image->channels != 1 && image->channels != 3)) {
        problems.add("images", fmt::format("pixels needs images of 1 or 3 channels, {} gives {}",
                                           images.name(), source->shape().text()));
        return;
      }
      const config::Node given =
          config::to_minimal_node(images.member()->options_type(), images.erased_options());
      for (const char* key : {"augment", "normalise"}) {
        if (!given.find(key)) continue;
        problems.add(fmt::format("images.{}", key),
                     "pixels reads images as they are; leave it out");
        return;
      }
      if (const auto transform = source->image_transform(); transform && transform->train_crop) {
        problems.add("images", fmt::format("pixels needs images of one size, {} crops its own",
                                           images.name()));
      }
    }
  };

  static constexpr Sketch kSketch{
      .has_classes = true,
      .lines =
          "  images: {source: pathfinder, image_size: 20, length: 3, distractors: 1, "
          "distractor_length: 2}\n"};  ///< starter recipe of `shoal new`

  PixelsSource(const Options& options, const Context& context)
      : images_(Registry<DataSource>::create(options.images, context)) {}

  DataShape shape() const override {
    const DataShape images = images_->shape();
    return {.source = "pixels",
            .sequence = images.image.value_or(ImageShape{}).pixels(),
            .vocabulary = 256,
            .classes = images.classes,
            .has_unknown_classes = images.has_unknown_classes};
  }
  std::vector<std::string> class_names() const override { return images_->class_names(); }
  /// Reports the problems that the source of the images reports.
  void check_training(Problems& problems) const override {
    ImageProblems image_problems(problems);
    images_->check_training(image_problems);
  }
  std::vector<std::string> files(Split split) const override { return images_->files(split); }
  std::unique_ptr<SampleSet> open(Split split) const override {
    return std::make_unique<PixelsSet>(images_->open(split));
  }

 private:
  std::shared_ptr<const DataSource> images_;
};

const Registration<DataSource, PixelsSource> registered_pixels_source{
    "pixels", "the pixels of another source's images, one after the other"};

}  // namespace
}  // namespace shoal
