#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/data/augment.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_source.h"
#include "runtime/data/loader/data_order.h"
#include "runtime/data/loader/prefetch.h"
#include "runtime/data/loader/worker_pool.h"
#include "runtime/module/state.h"

namespace shoal {

/// Everything that determines a rank's batches. A routing group is a fixed number of samples whose
/// tokens compete for experts, all on one rank.
struct LoaderSettings {
  StepCut cut;  ///< samples in an optimizer step and in a routing group; micro-steps in a step
  int64_t rank = 0;
  int64_t world = 1;  ///< number of ranks that share the samples
  uint64_t seed = 0;
  torch::Dtype dtype = torch::kFloat32;  ///< of Batch::image_bVCHW and value_bN
  DataShape shape;                       ///< shape of the samples
  std::optional<ImageTransform> images;  ///< crops and normalisation, if samples have images
  int64_t views = 1;     ///< augmented views of each training image; evaluation uses one
  int64_t prefetch = 2;  ///< micro-batches prepared ahead; 0 = no thread
  int64_t workers = 1;   ///< threads that read samples; results do not depend on their number
  /// Called with a log line if the system starts fewer threads; if null, Error (exit 11) is thrown.
  std::function<void(const std::string& line)> fewer_workers = {};
  torch::Device device = torch::kCPU;  ///< device of the batches that a loader returns
};

/// Makes micro-batches from positions in the stream. make() is a pure function of its arguments:
/// for any number of ranks, the ranks' batches together hold the same values.
class BatchMaker {
 public:
  /// `samples` must outlive the maker. `is_training`: with shuffling, augmentation and all views.
  BatchMaker(const SampleSet& samples, const LoaderSettings& settings, bool is_training);
  /// Returns this rank's part of `micro`, the micro-step's positions over all ranks. The batch is
  /// in host memory, pinned if settings.device is a GPU. Throws: DataError from the samples, or for
  /// a sample that does not have the settings' shape.
  Batch make(SampleRange micro) const;
  const LoaderSettings& settings() const { return settings_; }

 private:
  Batch allocate(SampleRange micro, SampleRange mine) const;
  template <class T>
  void fill(Batch& batch, SampleRange mine) const;
  template <class T>
  void write_images(Batch& batch, int64_t row, int64_t position, const Sample& sample) const;
  /// The part of the sample that a view shows, before transforms.
  EditedImage cropped_view(const Sample& sample, const SampleView& view) const;
  void check(const Sample& sample, int64_t index) const;
  void check_image(const Sample& sample, int64_t index) const;
  void check_tokens(const Sample& sample, int64_t index) const;

  const SampleSet& samples_;
  LoaderSettings settings_;
  bool is_training_;
  int64_t views_;
  int64_t repeats_;  // of each sample, one after the other
  TextCounts text_;
  DataOrder order_;
  std::shared_ptr<const Crop> crop_;     // null: images have the shape already
  std::optional<TransformChain> chain_;  // nothing: no transforms
  std::optional<PixelWriter> writer_;
  std::unique_ptr<WorkerPool> workers_;
};

/// The endless training stream of one rank, prepared ahead by a thread. Saves only `data.cursor`,
/// the number of samples that all ranks have taken; prepared batches do not count.
class TrainLoader : public Stateful {
 public:
  /// `samples` must outlive the loader. Throws TORCH_CHECK if there are no samples, or if
  /// settings.cut does not give micro-steps of whole routing groups.
  TrainLoader(const SampleSet& samples, const LoaderSettings& settings);
  TrainLoader(const TrainLoader&) = delete;  // nor moved: a thread works on it

  /// The next micro-batch; waits until it is ready. Rethrows exceptions of its preparation.
  Batch next();
  int64_t cursor() const { return cursor_; }
  /// Moves to position `cursor` of the stream. Throws ConfigError unless an optimizer step starts
  /// there, that is unless `cursor` is a multiple of settings.cut.batch.
  void seek(int64_t cursor);
  void visit_state(StateVisitor& visitor) override;

 private:
  BatchMaker maker_;
  int64_t cursor_ = 0;
  std::unique_ptr<Prefetcher<Batch>> prefetcher_;  // begun by the first next() after a seek
};

/// Gives one rank its batches of an evaluation: one pass over a split, each sample once and in
/// order. Each batch's routing groups are spread over ranks: all get the same number of batches,
/// some with fewer samples or none. StepContext::samples_in_step is the split's size.
class EvalLoader {
 public:
  /// `samples` may be empty and must outlive the loader. settings.cut.micro_samples(), a multiple
  /// of the group, is the samples of a batch over all ranks. Images are cropped but not augmented.
  EvalLoader(const SampleSet& samples, const LoaderSettings& settings);
  EvalLoader(const EvalLoader&) = delete;  // nor moved: a thread works on it

  int64_t num_batches() const { return num_batches_; }
  /// Returns the next batch; nothing after the last.
  std::optional<Batch> next();

 private:
  BatchMaker maker_;
  int64_t num_samples_;
  int64_t num_batches_;
  int64_t taken_ = 0;
  std::unique_ptr<Prefetcher<Batch>> prefetcher_;
};

}  // namespace shoal
