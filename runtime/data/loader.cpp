#include "runtime/data/loader.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/error.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {
namespace {

LoaderSettings checked(const LoaderSettings& settings) {
  const StepCut& cut = settings.cut;
  TORCH_CHECK(
      cut.accumulate > 0 && cut.group > 0 && cut.batch > 0 && cut.batch % cut.accumulate == 0,
      "batch ", cut.batch, " cannot be cut into ", cut.accumulate, " micro-steps");
  TORCH_CHECK(settings.dtype == torch::kFloat32 || settings.dtype == torch::kFloat64 ||
                  settings.dtype == torch::kBFloat16,
              "images are float32, float64 or bfloat16, not ", settings.dtype);
  return settings;
}

std::string text_of(ImageShape shape) {
  return "[" + std::to_string(shape.channels) + ", " + std::to_string(shape.height) + ", " +
         std::to_string(shape.width) + "] values";
}

/// The host does not wait for the copies.
void send_to(c10::Device device, Batch& batch) {
  for (torch::Tensor* tensor :
       {&batch.image_bCHW, &batch.label_b, &batch.context.sample_b, &batch.context.view_b}) {
    if (tensor->defined()) *tensor = tensor->to(device, /*non_blocking=*/true);
  }
}

class Stopwatch {
 public:
  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

BatchMaker::BatchMaker(const SampleSet& samples, ImageShape shape, const LoaderSettings& settings,
                       bool is_training)
    : samples_(samples),
      shape_(shape),
      settings_(checked(settings)),
      is_training_(is_training),
      order_(settings.seed, samples.size(), is_training),
      writer_(shape, settings.stats) {}

Batch BatchMaker::make(SampleRange micro) const {
  const StepCut& cut = settings_.cut;
  const SampleRange mine = samples_of_rank(micro, cut.group, settings_.rank, settings_.world);
  Batch batch;
  batch.micro = micro;
  batch.ends_step = is_training_ && micro.end() % cut.batch == 0;
  const bool is_pinned = settings_.device.is_cuda();
  const bool is_double = settings_.dtype == torch::kFloat64;
  batch.image_bCHW = torch::empty(
      {mine.count, shape_.channels, shape_.height, shape_.width},
      torch::TensorOptions(is_double ? torch::kFloat64 : torch::kFloat32).pinned_memory(is_pinned));
  batch.label_b =
      torch::empty({mine.count}, torch::TensorOptions(torch::kInt64).pinned_memory(is_pinned));
  batch.context.seed = settings_.seed;
  batch.context.step = is_training_ ? micro.first / cut.batch : 0;
  batch.context.training = is_training_;
  batch.context.sample_b = torch::arange(mine.first, mine.end(), torch::kInt64);
  if (is_pinned) batch.context.sample_b = batch.context.sample_b.pin_memory();
  batch.context.samples_per_group = cut.group;
  batch.context.samples_in_step = is_training_ ? cut.batch : samples_.size();
  batch.context.samples_in_micro = micro.count;
  if (is_double) {
    fill<double>(batch, mine);
  } else {
    fill<float>(batch, mine);
  }
  if (settings_.dtype == torch::kBFloat16) {
    const torch::Tensor wide = batch.image_bCHW;
    batch.image_bCHW =
        torch::empty(wide.sizes(), torch::TensorOptions(settings_.dtype).pinned_memory(is_pinned));
    batch.image_bCHW.copy_(wide);
  }
  return batch;
}

template <class T>
void BatchMaker::fill(Batch& batch, SampleRange mine) const {
  const auto values_per_image = static_cast<size_t>(shape_.bytes());
  T* image = batch.image_bCHW.mutable_data_ptr<T>();
  int64_t* label = batch.label_b.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < mine.count; ++i) {
    const int64_t position = mine.first + i;
    const int64_t index = order_.sample_at(position);
    const Sample sample = samples_.read(index);
    if (sample.shape != shape_ || sample.pixel_CHW.size() != values_per_image) {
      throw DataError("sample " + std::to_string(index) + " is an image of " +
                      text_of(sample.shape) + ", not of " + text_of(shape_));
    }
    const AugmentDraw draw =
        is_training_ ? draw_augment(settings_.augment, settings_.seed, position, 0) : AugmentDraw{};
    writer_.write<T>(
        sample.pixel_CHW, draw,
        std::span<T>(image + static_cast<size_t>(i) * values_per_image, values_per_image));
    label[i] = sample.label;
  }
}

TrainLoader::TrainLoader(const SampleSet& samples, ImageShape shape, const LoaderSettings& settings)
    : maker_(samples, shape, settings, true) {
  TORCH_CHECK(samples.size() > 0, "there are no samples to train on");
  const StepCut& cut = settings.cut;
  TORCH_CHECK(cut.micro_samples() % cut.group == 0, "a micro-step of ", cut.micro_samples(),
              " samples is no multiple of the routing group of ", cut.group);
}

Batch TrainLoader::next() {
  const int64_t micro = maker_.settings().cut.micro_samples();
  if (!prefetcher_) {
    prefetcher_ = std::make_unique<Prefetcher<Batch>>(
        [this, micro](int64_t index) {
          return maker_.make({index * micro, micro});
        },
        cursor_ / micro, maker_.settings().prefetch);
  }
  const Stopwatch waiting;
  Batch batch = prefetcher_->next();
  batch.wait_s = waiting.elapsed_s();
  send_to(maker_.settings().device, batch);
  cursor_ += micro;
  return batch;
}

void TrainLoader::seek(int64_t cursor) {
  const int64_t batch = maker_.settings().cut.batch;
  if (cursor < 0 || cursor % batch != 0) {
    throw ConfigError("train.batch: the run stopped after " + std::to_string(cursor) +
                          " samples, which is no whole number of steps of " +
                          std::to_string(batch) + " samples",
                      ExitCode::kMismatch);
  }
  prefetcher_.reset();
  cursor_ = cursor;
}

void TrainLoader::visit_state(StateVisitor& visitor) {
  int64_t cursor = cursor_;
  visitor.integer("data.cursor", cursor);
  if (cursor != cursor_) seek(cursor);
}

EvalLoader::EvalLoader(const SampleSet& samples, ImageShape shape, const LoaderSettings& settings)
    : maker_(samples, shape, settings, false), num_samples_(samples.size()) {
  const int64_t micro = settings.cut.micro_samples();
  TORCH_CHECK(micro % settings.cut.group == 0, "an evaluation batch of ", micro,
              " samples is no multiple of the routing group of ", settings.cut.group);
  num_batches_ = (num_samples_ + micro - 1) / micro;
  const auto make = [this, micro](int64_t index) {
    const int64_t first = std::min(index * micro, num_samples_);
    return maker_.make({first, std::min(micro, num_samples_ - first)});
  };
  prefetcher_ = std::make_unique<Prefetcher<Batch>>(make, 0, settings.prefetch);
}

std::optional<Batch> EvalLoader::next() {
  if (taken_ == num_batches_) return std::nullopt;
  const Stopwatch waiting;
  Batch batch = prefetcher_->next();
  batch.wait_s = waiting.elapsed_s();
  send_to(maker_.settings().device, batch);
  ++taken_;
  return batch;
}

}  // namespace shoal
