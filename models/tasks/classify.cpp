#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "models/task.h"
#include "models/tasks/gate_scores.h"
#include "models/tasks/label_rank.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"
#include "runtime/module/linear.h"

// b samples on this rank  D features  N classes
namespace shoal {

/// How a sequence's tokens become the vector that is classified.
enum class TokenPool { kMean, kLast };

template <>
struct EnumNames<TokenPool> {
  static constexpr std::array names{std::pair{TokenPool::kMean, "mean"},
                                    std::pair{TokenPool::kLast, "last"}};
};

namespace {

torch::Tensor summed_cross_entropy(const torch::Tensor& logits_bN, const torch::Tensor& label_b,
                                   double label_smoothing) {
  return at::cross_entropy_loss(at_least_float32(logits_bN), label_b, {}, at::Reduction::Sum,
                                /*ignore_index=*/-100, label_smoothing);
}

/// Classification: a linear head, zero at the start, and cross entropy with label smoothing.
/// Evaluation reports the cross entropy without smoothing.
class Classify : public Task {
 public:
  struct Options {
    double label_smoothing = 0.0;
    TokenPool pool = TokenPool::kMean;

    static constexpr auto fields() {
      return std::tuple{
          field("label_smoothing", &Options::label_smoothing,
                "share of the target spread evenly over all classes", in_range(0, below(1))),
          field("pool", &Options::pool,
                "of sequences: classify the mean of a sample's tokens, or its last "
                "one")};
    }
  };

  Classify(const Options& options, const Context& context)
      : label_smoothing_(options.label_smoothing) {
    if (context.data.classes == 0) {
      throw ConfigError("task.name: classify needs labels, data.source " + context.data.source +
                        " gives " + context.data.text());
    }
    const bool reads_last = options.pool == TokenPool::kLast;
    if (reads_last && context.data.sequence == 0) {
      throw ConfigError("task.pool: last needs sequences of tokens, data.source " +
                        context.data.source + " gives " + context.data.text());
    }
    backbone_ = register_module(
        "backbone",
        context.make_backbone("backbone", reads_last ? Features::kLast : Features::kPooled));
    has_gates_ = GateScores::apply_to(*backbone_);
    head_ =
        register_module("head", Linear(backbone_->feature_width(), context.data.classes,
                                       context.build.tensor_options, Init::zeros(), Init::zeros()));
    if (!context.data.image && context.data.sequence > 0) {
      unit_ = {"tok", context.data.sequence};
    }
  }

  TrainOutput train(const Batch& batch) override {
    const StepContext& step = batch.context;
    TORCH_CHECK(step.samples_in_step > 0, "train needs StepContext::samples_in_step");
    ModelOutput output = backbone_->forward(input_of(batch), step);
    const torch::Tensor loss =
        summed_cross_entropy(head_->forward(output.pooled_bD), batch.label_b, label_smoothing_) /
        static_cast<double>(step.samples_in_step);
    return {add_loss(loss, output.auxiliary_loss), std::move(output.moe)};
  }

  torch::Tensor outputs(const Batch& batch) override {
    return head_->forward(backbone_->forward(input_of(batch), batch.context).pooled_bD);
  }

  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor logits_bN = head_->forward(output.pooled_bD);
    const torch::Tensor rank_b = rank_of_label(logits_bN, batch.label_b);
    const auto number = [](const torch::Tensor& sum) { return sum.to(torch::kFloat64); };
    const torch::Tensor host =
        torch::stack({number(summed_cross_entropy(logits_bN, batch.label_b, 0.0)),
                      number((rank_b < 1).sum()), number((rank_b < 5).sum())})
            .to(torch::kCPU);  // one wait for all
    const double* value = host.const_data_ptr<double>();
    const auto samples = static_cast<double>(batch.label_b.size(0));
    EvalOutput result{
        {{"loss", value[0], samples}, {"top1", value[1], samples}, {"top5", value[2], samples}},
        std::move(output.moe)};
    if (has_gates_) {
      std::ranges::move(GateScores::sums(output.is_open_bS, batch.length_b, {}),
                        std::back_inserter(result.sums));
    }
    return result;
  }

  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    std::vector<Metric> metrics{{"loss", mean_of(totals, "loss")},
                                {"top1", mean_of(totals, "top1"), Metric::Kind::kShare, "top-1"},
                                {"top5", mean_of(totals, "top5"), Metric::Kind::kShare, "top-5"}};
    if (has_gates_) {
      std::ranges::move(GateScores::metrics(totals, /*has_recall=*/false),
                        std::back_inserter(metrics));
    }
    return metrics;
  }

  ScoreRule score() const override { return {"top1", /*higher_is_better=*/true}; }
  RateUnit unit() const override { return unit_; }

  int64_t head_parameters() const override { return head_->weight.numel() + head_->bias.numel(); }

 private:
  double label_smoothing_;
  bool has_gates_ = false;
  std::shared_ptr<Backbone> backbone_;
  Linear head_{nullptr};
  RateUnit unit_{"img"};
};

const Registration<Task, Classify> registered_classify{"classify",
                                                       "classification of images and sequences"};

}  // namespace
}  // namespace shoal
