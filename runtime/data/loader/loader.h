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

/// Everything that decides what a rank gets.
struct LoaderSettings {
  StepCut cut;
  int64_t rank = 0;
  int64_t world = 1;  ///< all ranks; each works on samples of its own
  uint64_t seed = 0;
  torch::Dtype dtype = torch::kFloat32;  ///< of images and values; bfloat16 is rounded from float32
  DataShape shape;                       ///< what samples have
  std::optional<ImageTransform> images;  ///< where they have images
  int64_t views = 1;                     ///< of each training image; evaluation has one
  int64_t prefetch = 2;                  ///< micro-batches ready at most; 0 = no thread
  int64_t workers = 1;                   ///< threads that read samples; changes no value
  /// Told where the system gives fewer workers; null: that is an Error (exit 11).
  std::function<void(const std::string& line)> fewer_workers = {};
  torch::Device device = torch::kCPU;  ///< of batches that a loader gives
};

/// Makes micro-batches from positions in the stream. A pure function of its arguments: batches of
/// all ranks together hold the same values for any world, accumulation apart from the cut.
class BatchMaker {
 public:
  /// `samples` must outlive the maker.
  BatchMaker(const SampleSet& samples, const LoaderSettings& settings, bool is_training);
  /// This rank's part of `micro`, in host memory, pinned if it goes to a GPU. Throws: DataError
  /// from the samples, or for a sample that differs from the settings' shape.
  Batch make(SampleRange micro) const;
  const LoaderSettings& settings() const { return settings_; }

 private:
  Batch allocate(SampleRange micro, SampleRange mine) const;
  template <class T>
  void fill(Batch& batch, SampleRange mine) const;
  template <class T>
  void write_images(Batch& batch, int64_t row, int64_t position, const Sample& sample) const;
  /// What a view shows of the sample, before transforms.
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

/// The endless training stream of one rank, prepared ahead. Its state is one integer,
/// `data.cursor`: the number of samples that all ranks together have taken; batches that were
/// prepared but not taken do not count.
class TrainLoader : public Stateful {
 public:
  /// `samples` must outlive the loader. Throws: TORCH_CHECK if there is none, or if the cut does
  /// not divide evenly.
  TrainLoader(const SampleSet& samples, const LoaderSettings& settings);
  TrainLoader(const TrainLoader&) = delete;  // nor moved: a thread works on it

  /// The next micro-batch; waits until it is ready. Throws: what making it threw.
  Batch next();
  int64_t cursor() const { return cursor_; }
  /// Goes on at a position. Throws: ConfigError (recipe and checkpoint do not fit) unless it begins
  /// an optimizer step.
  void seek(int64_t cursor);
  void visit_state(StateVisitor& visitor) override;

 private:
  BatchMaker maker_;
  int64_t cursor_ = 0;
  std::unique_ptr<Prefetcher<Batch>> prefetcher_;  // begun by the first next() after a seek
};

/// One pass over a split, each sample once, in its own order, spread over ranks in groups. Every
/// rank gets the same number of batches, some of them with fewer samples or none. A batch's context
/// counts the whole split as one step.
class EvalLoader {
 public:
  /// As TrainLoader, but there may be no samples. settings.cut.micro_samples() is the number of
  /// samples of a batch over all ranks. Flips and crops are not applied.
  EvalLoader(const SampleSet& samples, const LoaderSettings& settings);
  EvalLoader(const EvalLoader&) = delete;  // nor moved: a thread works on it

  int64_t num_batches() const { return num_batches_; }
  /// The next batch; nothing after the last.
  std::optional<Batch> next();

 private:
  BatchMaker maker_;
  int64_t num_samples_;
  int64_t num_batches_;
  int64_t taken_ = 0;
  std::unique_ptr<Prefetcher<Batch>> prefetcher_;
};

}  // namespace shoal
