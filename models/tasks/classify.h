#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/task.h"
#include "models/tasks/image_mix.h"
#include "runtime/module/linear.h"

// b samples on this rank  D features  N classes
namespace shoal {

/// Pooling of a sequence's tokens for the head: their mean, or the last token.
enum class TokenPool { kMean, kLast };

template <>
inline constexpr std::array kEnumWords<TokenPool>{"mean", "last"};

/// Cross entropy over all classes, or a binary cross entropy per class.
enum class ClassLoss { kCrossEntropy, kBinary };

template <>
inline constexpr std::array kEnumWords<ClassLoss>{"cross_entropy", "binary_cross_entropy"};

/// Classifies images or token sequences by a linear head, initialised to zero, on the backbone's
/// features. Training may smooth labels and mix images with their labels; evaluation does neither.
/// With binary cross entropy an evaluation also reports the cross entropy over all classes, and the
/// probability of each class is a sigmoid of its own: they need not sum to 1.
class Classify : public Task {
 public:
  struct Options {
    double label_smoothing = 0.0;
    ClassLoss loss = ClassLoss::kCrossEntropy;
    ImageMixOptions mix;
    TokenPool pool = TokenPool::kMean;

    static constexpr auto fields() {
      return std::tuple{
          field("label_smoothing", &Options::label_smoothing,
                "fraction of the target spread over all classes", in_range(0, below(1))),
          field("loss", &Options::loss,
                "cross_entropy, or binary_cross_entropy: the mean of the binary cross-entropies of "
                "all classes (DeiT III)"),
          field("mix", &Options::mix, "of images: Mixup and CutMix"),
          field("pool", &Options::pool,
                "of sequences: classify the mean of a sample's tokens, or its last token")};
    }
  };

  Classify(const Options& options, const Context& context)
      : Classify(options, context, {"classify", Init::zeros()}) {}

  TrainOutput train(const Batch& batch) override;
  torch::Tensor outputs(const Batch& batch) override;
  EvalOutput evaluate(const Batch& batch) override;
  bool classifies() const override { return true; }
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override;
  ScoreRule score() const override { return {"top1", /*higher_is_better=*/true}; }
  RateUnit unit() const override { return unit_; }
  bool mixes_samples() const override { return options_.mix.mixup > 0 || options_.mix.cutmix > 0; }
  int64_t head_parameters() const override { return head_->weight.numel() + head_->bias.numel(); }

 protected:
  struct Kind {
    std::string_view name;  ///< name of the task, for error messages
    Init head;              ///< initialises the head's weight; its bias is zero
  };
  Classify(const Options& options, const Context& context, const Kind& kind);
  /// Features for the head; by default the backbone's.
  virtual ModelOutput features_of(const ModelInput& input, const StepContext& step) {
    return backbone_->forward(input, step);
  }
  const std::shared_ptr<Backbone>& backbone() const { return backbone_; }

 private:
  bool is_binary() const { return options_.loss == ClassLoss::kBinary; }
  /// Loss summed over this rank's samples.
  torch::Tensor summed_loss(const torch::Tensor& logits_bN, const torch::Tensor& label_b,
                            double label_smoothing) const;

  Options options_;
  bool has_gates_ = false;
  std::shared_ptr<Backbone> backbone_;
  Linear head_{nullptr};
  RateUnit unit_{"img"};
};

}  // namespace shoal
