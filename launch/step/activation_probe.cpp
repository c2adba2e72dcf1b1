#include "launch/step/activation_probe.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "launch/machine/machine_facts.h"
#include "launch/step/session.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/batch.h"
#include "runtime/device/tensor_memory.h"

namespace shoal {
namespace {

constexpr int64_t kManySamples = int64_t{1} << 20;
/// The second step reuses the memory that the first has freed, as all later ones do.
constexpr int kSteps = 2;

/// Samples of a shape with varied contents, so that routers and losses get different inputs.
class DrawnSamples final : public SampleSet {
 public:
  explicit DrawnSamples(DataShape shape) : shape_(std::move(shape)) {}
  int64_t size() const override { return kManySamples; }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample;
    if (shape_.image) {
      sample.shape = *shape_.image;
      sample.pixel_CHW.resize(static_cast<size_t>(shape_.image->bytes()));
      for (size_t i = 0; i < sample.pixel_CHW.size(); ++i) {
        sample.pixel_CHW[i] = static_cast<uint8_t>(number(index, static_cast<int64_t>(i)));
      }
    }
    for (int64_t i = 0; i < shape_.sequence; ++i) {
      const int64_t id = number(index, i) % shape_.vocabulary;
      sample.token_S.push_back(id);
      if (shape_.token_labels == 0) continue;
      sample.token_label_S.push_back(i < shape_.token_labels ? id : kNoLabel);
    }
    sample.value_N.assign(static_cast<size_t>(shape_.values), 0.5);
    if (shape_.classes > 0) sample.label = index % shape_.classes;
    sample.target_M.assign(static_cast<size_t>(shape_.targets), 0.5);
    return sample;
  }

 private:
  /// Returns the value at place i of a sample, which is not negative.
  static int64_t number(int64_t sample, int64_t i) {
    return static_cast<int64_t>(
        (static_cast<uint64_t>(sample) * 7919 + static_cast<uint64_t>(i)) * 2654435761U >> 8 &
        0xffffff);
  }

  DataShape shape_;
};

/// A source of drawn samples of a given shape, with the image transform of another source.
class DrawnSource final : public DataSource {
 public:
  DrawnSource(DataShape shape, std::optional<ImageTransform> images)
      : shape_(std::move(shape)), images_(std::move(images)) {}
  DataShape shape() const override { return shape_; }
  std::optional<ImageTransform> image_transform() const override { return images_; }
  std::unique_ptr<SampleSet> open(Split /*split*/) const override {
    return std::make_unique<DrawnSamples>(shape_);
  }

 private:
  DataShape shape_;
  std::optional<ImageTransform> images_;
};

/// The recipe as it is probed: one rank, one micro-step of these samples, in groups of its own.
Recipe probed_recipe(Recipe recipe, int64_t samples) {
  recipe.train.batch = samples;
  recipe.train.accumulate = 1;
  recipe.train.group = std::gcd(samples, recipe.train.group);
  recipe.parallel = ParallelOptions{};
  return recipe;
}

}  // namespace

DataShape probed_shape(DataShape shape, int64_t sequence) {
  if (shape.sequence == 0) return shape;
  if (shape.token_labels > 0) {
    shape.token_labels = std::max<int64_t>(1, shape.token_labels * sequence / shape.sequence);
  }
  shape.sequence = sequence;
  return shape;
}

ProbedMemory probe_memory(const Recipe& recipe, const DataSource& source, int64_t samples,
                          int64_t sequence) {
  const Recipe probed = probed_recipe(recipe, samples);
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const OpenSplit data =
      open_split(std::make_shared<DrawnSource>(probed_shape(source.shape(), sequence),
                                               source.image_transform()),
                 Split::kTrain);
  release_tensor_memory();
  const int64_t before = tensor_memory().used_bytes;
  Session session(probed, build_model(probed, data.source->shape(), {&grid, grid.device}), data,
                  grid);
  for (int step = 0; step < kSteps; ++step) session.step({});
  const TensorMemory memory = tensor_memory();
  return {memory.held_peak_bytes - before,
          resident_bytes() - memory.used_bytes - memory.cached_bytes};
}

}  // namespace shoal
