#include <ATen/ops/cross_entropy_loss.h>

#include <limits>
#include <memory>

#include "models/task.h"
#include "runtime/base/error.h"
#include "runtime/module/linear.h"

// b images on this rank  D features  N classes
namespace shoal {
namespace {

torch::Tensor summed_cross_entropy(const torch::Tensor& logits_bN, const torch::Tensor& label_b,
                                   double label_smoothing) {
  return at::cross_entropy_loss(at_least_float32(logits_bN), label_b, {}, at::Reduction::Sum,
                                /*ignore_index=*/-100, label_smoothing);
}

/// How many classes rank above the label: those of a higher logit, and among equals those of a
/// lower id. A label whose logit is not a number ranks below every class.
torch::Tensor rank_of_label(const torch::Tensor& logits_bN, const torch::Tensor& label_b) {
  const torch::Tensor own_b1 = logits_bN.gather(1, label_b.unsqueeze(1));
  const torch::Tensor class_N = torch::arange(logits_bN.size(1), label_b.options());
  const torch::Tensor before_bN =
      (logits_bN > own_b1) | ((logits_bN == own_b1) & (class_N < label_b.unsqueeze(1)));
  return before_bN.sum(1).masked_fill(own_b1.squeeze(1).isnan(),
                                      std::numeric_limits<int64_t>::max());
}

/// Classification: a linear head, zero at the start, and cross entropy with label smoothing.
/// Evaluation reports the cross entropy without smoothing.
class Classify : public Task {
 public:
  struct Options {
    double label_smoothing = 0.0;

    static constexpr auto fields() {
      return std::tuple{field("label_smoothing", &Options::label_smoothing,
                              "share of the target spread evenly over all classes",
                              in_range(0, below(1)))};
    }
  };

  Classify(const Options& options, const Context& context)
      : label_smoothing_(options.label_smoothing) {
    if (context.data.classes == 0) {
      throw ConfigError("task.name: classify needs labels, data.source " + context.data.source +
                        " gives " + context.data.text());
    }
    backbone_ = register_module("backbone", context.make_backbone("backbone", Features::kPooled));
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
    return {{{"loss", value[0], samples}, {"top1", value[1], samples}, {"top5", value[2], samples}},
            std::move(output.moe)};
  }

  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    return {{"loss", mean_of(totals, "loss")},
            {"top1", mean_of(totals, "top1"), Metric::Kind::kShare, "top-1"},
            {"top5", mean_of(totals, "top5"), Metric::Kind::kShare, "top-5"}};
  }

  ScoreRule score() const override { return {"top1", /*higher_is_better=*/true}; }
  RateUnit unit() const override { return unit_; }

  int64_t head_parameters() const override { return head_->weight.numel() + head_->bias.numel(); }

 private:
  double label_smoothing_;
  std::shared_ptr<Backbone> backbone_;
  Linear head_{nullptr};
  RateUnit unit_{"img"};
};

const Registration<Task, Classify> registered_classify{"classify", "image classification"};

}  // namespace
}  // namespace shoal
