#include "runtime/data/loader/loader.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

// b samples on this rank  V views  C channels  H height  W width  S tokens  N, M numbers
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
  return fmt::format("[{}, {}, {}] values", shape.channels, shape.height, shape.width);
}

/// Row `row` of a contiguous tensor [b, ...].
template <class T>
std::span<T> row_of(const torch::Tensor& tensor, int64_t row) {
  const int64_t size = tensor.numel() / tensor.size(0);
  return {tensor.mutable_data_ptr<T>() + row * size, static_cast<size_t>(size)};
}

[[noreturn]] void refuse_sample(int64_t index, const std::string& what) {
  throw DataError(fmt::format("sample {} {}", index, what));
}

/// Contiguous, in pinned memory if x is.
torch::Tensor copy_as(torch::Dtype dtype, const torch::Tensor& x) {
  if (!x.defined()) return x;
  return torch::empty(x.sizes(), torch::TensorOptions(dtype).pinned_memory(x.is_pinned())).copy_(x);
}

/// Leaves no more padding than the longest sample needs.
void trim_padding(Batch& batch) {
  const torch::Tensor& length_b = batch.length_b;
  const int64_t longest = length_b.numel() > 0 ? length_b.max().item<int64_t>() : 1;
  for (torch::Tensor* tensor : {&batch.token_bS, &batch.token_label_bS}) {
    if (!tensor->defined() || tensor->size(1) == longest) continue;
    *tensor = copy_as(torch::kInt64, tensor->narrow(1, 0, longest));
  }
}

/// The next batch, on its way to the device; the host does not wait for the copies.
Batch take(Prefetcher<Batch>& prefetcher, c10::Device device) {
  const auto start = std::chrono::steady_clock::now();
  Batch batch = prefetcher.next();
  batch.wait_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (torch::Tensor* tensor :
       {&batch.image_bVCHW, &batch.token_bS, &batch.token_label_bS, &batch.value_bN, &batch.label_b,
        &batch.target_bM, &batch.context.sample_b, &batch.context.view_b}) {
    if (tensor->defined()) *tensor = tensor->to(device, /*non_blocking=*/true);
  }
  batch.context.token_bS = batch.token_bS;
  batch.context.length_b = batch.length_b;
  return batch;
}

/// Half of what the system gives, where it gives fewer: others need threads, too.
std::unique_ptr<WorkerPool> start_workers(const LoaderSettings& settings) {
  const bool may_be_fewer = settings.fewer_workers != nullptr;
  auto workers = std::make_unique<WorkerPool>(settings.workers, may_be_fewer);
  if (workers->size() == settings.workers) return workers;
  const int64_t half = workers->size() / 2;
  workers.reset();
  workers = std::make_unique<WorkerPool>(half, may_be_fewer);
  settings.fewer_workers(fmt::format(
      "data.workers: {} instead of {}, the system refuses more threads (ulimit -u, ulimit -v)",
      workers->size(), settings.workers));
  return workers;
}

}  // namespace

BatchMaker::BatchMaker(const SampleSet& samples, const LoaderSettings& settings, bool is_training)
    : samples_(samples),
      settings_(checked(settings)),
      is_training_(is_training),
      views_(is_training ? settings.views : 1),
      repeats_(is_training && settings.images ? settings.images->augment.repeats : 1),
      order_(settings.seed, samples.size(), is_training),
      workers_(start_workers(settings)) {
  if (!is_training_) text_ = samples_.text_counts().value_or(TextCounts{});
  if (settings.images) {
    crop_ = is_training_ ? settings.images->train_crop : settings.images->valid_crop;
    writer_.emplace(settings.images->shape, settings.images->stats);
    const std::vector<TransformOptions>& transforms = settings.images->augment.transforms;
    if (is_training_ && !transforms.empty()) {
      require_views(transforms, views_);
      chain_.emplace(transforms, settings.images->shape.channels,
                     PixelTransform::Context{settings.images->stats.mean});
    }
  }
}

Batch BatchMaker::make(SampleRange micro) const {
  const SampleRange mine =
      samples_of_rank(micro, settings_.cut.group, settings_.rank, settings_.world);
  Batch batch = allocate(micro, mine);
  if (settings_.dtype == torch::kFloat64) {
    fill<double>(batch, mine);
  } else {
    fill<float>(batch, mine);
  }
  if (settings_.dtype == torch::kBFloat16) {
    batch.image_bVCHW = copy_as(torch::kBFloat16, batch.image_bVCHW);
    batch.value_bN = copy_as(torch::kBFloat16, batch.value_bN);
  }
  if (batch.length_b.defined()) trim_padding(batch);
  return batch;
}

Batch BatchMaker::allocate(SampleRange micro, SampleRange mine) const {
  const StepCut& cut = settings_.cut;
  const DataShape& shape = settings_.shape;
  const bool is_pinned = settings_.device.is_cuda();
  const bool is_double = settings_.dtype == torch::kFloat64;
  const auto integers = torch::TensorOptions(torch::kInt64).pinned_memory(is_pinned);
  const auto reals = integers.dtype(is_double ? torch::kFloat64 : torch::kFloat32);
  Batch batch;
  if (shape.image) {
    batch.image_bVCHW = torch::empty(
        {mine.count, views_, shape.image->channels, shape.image->height, shape.image->width},
        reals);
  }
  if (shape.sequence > 0) batch.token_bS = torch::empty({mine.count, shape.sequence}, integers);
  if (shape.has_lengths) batch.length_b = torch::empty({mine.count}, integers);
  if (shape.token_labels > 0) {
    batch.token_label_bS = torch::empty({mine.count, shape.sequence}, integers);
  }
  if (shape.values > 0) batch.value_bN = torch::empty({mine.count, shape.values}, reals);
  if (shape.classes > 0) batch.label_b = torch::empty({mine.count}, integers);
  if (shape.targets > 0) batch.target_bM = torch::empty({mine.count, shape.targets}, reals);
  batch.text = text_;
  batch.context.seed = settings_.seed;
  batch.context.training = is_training_;
  batch.context.sample_b = torch::arange(mine.first, mine.end(), torch::kInt64);
  if (is_pinned) batch.context.sample_b = batch.context.sample_b.pin_memory();
  batch.context.samples_per_group = cut.group;
  batch.context.samples_in_step = is_training_ ? cut.batch : samples_.size();
  batch.context.samples_in_micro = micro.count;
  return batch;
}

void BatchMaker::check(const Sample& sample, int64_t index) const {
  const DataShape& shape = settings_.shape;
  const auto refuse = [&](const std::string& what) { refuse_sample(index, what); };
  if (shape.image) check_image(sample, index);
  const auto check_size = [&](size_t size, int64_t expected, const char* noun) {
    if (static_cast<int64_t>(size) == expected) return;
    refuse(fmt::format("has {}, not {}", counted(static_cast<int64_t>(size), noun), expected));
  };
  if (!shape.has_lengths) check_size(sample.token_S.size(), shape.sequence, "token");
  check_tokens(sample, index);
  check_size(sample.value_N.size(), shape.values, "number");
  check_size(sample.target_M.size(), shape.targets, "target");
  if (shape.classes > 0 && (sample.label < 0 || sample.label >= shape.classes)) {
    refuse(fmt::format("has the label {}, expected 0 to {}", sample.label, shape.classes - 1));
  }
}

void BatchMaker::check_image(const Sample& sample, int64_t index) const {
  const ImageShape wanted = *settings_.shape.image, found = sample.shape;
  const bool fits =
      crop_ ? found.channels == wanted.channels && found.pixels() > 0 : found == wanted;
  if (fits && std::ssize(sample.pixel_CHW) == found.bytes()) return;
  refuse_sample(index,
                fmt::format("is an image of {}, not of {}", text_of(found), text_of(wanted)));
}

void BatchMaker::check_tokens(const Sample& sample, int64_t index) const {
  const DataShape& shape = settings_.shape;
  const auto refuse = [&](const std::string& what) { refuse_sample(index, what); };
  const auto length = std::ssize(sample.token_S);
  if (shape.has_lengths && (length == 0 || length > shape.sequence)) {
    refuse(fmt::format("has {}, not 1 to {}", counted(length, "token"), shape.sequence));
  }
  const auto is_id = [&](int64_t id) { return id >= 0 && id < shape.vocabulary; };
  for (const int64_t id : sample.token_S) {
    if (!is_id(id))
      refuse(fmt::format("has the token {}, expected 0 to {}", id, shape.vocabulary - 1));
  }
  const auto labels = std::ssize(sample.token_label_S);
  if (labels != (shape.token_labels > 0 ? length : 0)) {
    refuse(fmt::format("has {} for {}", counted(labels, "token label"), counted(length, "token")));
  }
  int64_t labelled = 0;
  for (const int64_t label : sample.token_label_S) {
    if (label == kNoLabel) continue;
    if (!is_id(label))
      refuse(fmt::format("has the token label {}, expected 0 to {}", label, shape.vocabulary - 1));
    ++labelled;
  }
  // Losses are divided by the number of labels, which is known before the samples are.
  if (is_training_ && labelled != shape.token_labels) {
    refuse(fmt::format("has {}, not {}", counted(labelled, "labelled token"), shape.token_labels));
  }
}

template <class T>
void BatchMaker::fill(Batch& batch, SampleRange mine) const {
  workers_->for_each(mine.count, [&](int64_t row) {
    const int64_t position = mine.first + row;
    const int64_t place = position / repeats_;
    const int64_t index = order_.sample_at(place);
    const Sample sample = samples_.read(index, is_training_ ? order_.epoch_of(place) : 0);
    check(sample, index);
    if (writer_) write_images<T>(batch, row, position, sample);
    const auto copy = [row](const auto& from, const torch::Tensor& to, auto rest) {
      if (!to.defined()) return;
      const auto out = row_of<decltype(rest)>(to, row);
      std::fill(std::copy(from.begin(), from.end(), out.begin()), out.end(), rest);
    };
    copy(sample.token_S, batch.token_bS, int64_t{});
    copy(std::array{sample.token_S.size()}, batch.length_b, int64_t{});
    copy(sample.token_label_S, batch.token_label_bS, kNoLabel);
    copy(sample.value_N, batch.value_bN, T{});
    copy(sample.target_M, batch.target_bM, T{});
    copy(std::array{sample.label}, batch.label_b, int64_t{});
  });
}

template <class T>
void BatchMaker::write_images(Batch& batch, int64_t row, int64_t position,
                              const Sample& sample) const {
  const std::span<T> views = row_of<T>(batch.image_bVCHW, row);
  const auto size = static_cast<size_t>(settings_.images->shape.bytes());
  for (int64_t view = 0; view < views_; ++view) {
    AugmentDraw draw = is_training_
                           ? draw_augment(settings_.images->augment, settings_.seed, position, view)
                           : AugmentDraw{};
    const std::span<T> out = views.subspan(static_cast<size_t>(view) * size, size);
    if (!crop_ && !chain_) {
      writer_->write<T>(sample.pixel_CHW, draw, out);
      continue;
    }
    const SampleView place{settings_.seed, position, view};
    EditedImage image = cropped_view(sample, place);
    if (chain_) {
      shift(image, draw);
      chain_->apply(image, place);
    }
    writer_->write<T>(image.pixel_CHW, draw, out);
  }
}

EditedImage BatchMaker::cropped_view(const Sample& sample, const SampleView& view) const {
  const ImageShape shape = settings_.images->shape;
  if (!crop_) return {shape, sample.pixel_CHW};
  const ScalarDraws draws({view.seed, Purpose::kCrop, 0, static_cast<uint64_t>(view.view)});
  const CropPlan plan = crop_->plan(sample.shape, draws, static_cast<uint64_t>(view.position));
  return {shape, cropped(sample.pixel_CHW, sample.shape, plan, shape.height)};
}

TrainLoader::TrainLoader(const SampleSet& samples, const LoaderSettings& settings)
    : maker_(samples, settings, true) {
  TORCH_CHECK(samples.size() > 0, "there are no samples to train on");
  const StepCut& cut = settings.cut;
  TORCH_CHECK(cut.micro_samples() % cut.group == 0, "a micro-step of ", cut.micro_samples(),
              " samples is not a multiple of the routing group of ", cut.group);
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
  Batch batch = take(*prefetcher_, maker_.settings().device);
  cursor_ += micro;
  return batch;
}

void TrainLoader::seek(int64_t cursor) {
  const int64_t batch = maker_.settings().cut.batch;
  if (cursor < 0 || cursor % batch != 0) {
    throw ConfigError("train.batch: the run stopped after " + std::to_string(cursor) +
                          " samples, which is not a whole number of steps of " +
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

EvalLoader::EvalLoader(const SampleSet& samples, const LoaderSettings& settings)
    : maker_(samples, settings, false), num_samples_(samples.size()) {
  const int64_t micro = settings.cut.micro_samples();
  TORCH_CHECK(micro % settings.cut.group == 0, "an evaluation batch of ", micro,
              " samples is not a multiple of the routing group of ", settings.cut.group);
  num_batches_ = (num_samples_ + micro - 1) / micro;
  const auto make = [this, micro](int64_t index) {
    const int64_t first = std::min(index * micro, num_samples_);
    return maker_.make({first, std::min(micro, num_samples_ - first)});
  };
  prefetcher_ = std::make_unique<Prefetcher<Batch>>(make, 0, settings.prefetch);
}

std::optional<Batch> EvalLoader::next() {
  if (taken_ == num_batches_) return std::nullopt;
  Batch batch = take(*prefetcher_, maker_.settings().device);
  ++taken_;
  return batch;
}

}  // namespace shoal
