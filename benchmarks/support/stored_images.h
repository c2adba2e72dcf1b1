#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/data_source.h"

namespace shoal::bench {

/// Images in memory, so that steps are timed and not the drawing of images.
class StoredImages final : public SampleSet {
 public:
  StoredImages(const ImageShape& shape, int64_t classes) {
    for (int64_t i = 0; i < 1024; ++i) {
      Sample sample;
      sample.shape = shape;
      sample.label = i % classes;
      for (int64_t j = 0; j < shape.bytes(); ++j) {
        sample.pixel_CHW.push_back(static_cast<uint8_t>((i * 7919 + j * 104729) >> 3));
      }
      samples_.push_back(std::move(sample));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    return samples_[static_cast<size_t>(index)];
  }

 private:
  std::vector<Sample> samples_;
};

/// The shape and normalisation of a source, of whose images none is read or augmented.
class StoredSource final : public DataSource {
 public:
  explicit StoredSource(std::shared_ptr<const DataSource> source) : source_(std::move(source)) {}
  DataShape shape() const override { return source_->shape(); }
  std::optional<ImageTransform> image_transform() const override {
    const ImageTransform whole = source_->image_transform().value();
    return ImageTransform{.shape = whole.shape, .augment = {}, .stats = whole.stats};
  }
  std::unique_ptr<SampleSet> open(Split /*split*/) const override {
    return std::make_unique<StoredImages>(shape().image.value(), shape().classes);
  }

 private:
  std::shared_ptr<const DataSource> source_;
};

}  // namespace shoal::bench
