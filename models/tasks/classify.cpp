#include "models/tasks/classify.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "models/tasks/gate_scores.h"
#include "models/tasks/label_rank.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"

// b samples on this rank  D features  N classes
namespace shoal {

namespace {

constexpr const char* kCrossEntropy = "cross_entropy";

torch::Tensor summed_cross_entropy(const torch::Tensor& logits_bN, const torch::Tensor& label_b,
                                   double label_smoothing) {
  return at::cross_entropy_loss(at_least_float32(logits_bN), label_b, {}, at::Reduction::Sum,
                                /*ignore_index=*/-100, label_smoothing);
}

}  // namespace

Classify::Classify(const Options& options, const Context& context, const Kind& kind)
    : options_(options) {
  if (context.data.classes == 0) {
    throw ConfigError(fmt::format(
        "task.name: {} needs labels, data.source {} gives {}{}", kind.name, context.data.source,
        context.data.text(),
        context.data.image ? "; set data.classes=N if there are labels without class names" : ""));
  }
  const bool reads_last = options.pool == TokenPool::kLast;
  if (reads_last && context.data.sequence == 0) {
    throw ConfigError("task.pool: last needs sequences of tokens, data.source " +
                      context.data.source + " gives " + context.data.text());
  }
  const bool mixes = options.mix.mixup > 0 || options.mix.cutmix > 0;
  if (mixes && !context.data.image) {
    throw ConfigError(fmt::format("task.mix: Mixup and CutMix need images, data.source {} gives {}",
                                  context.data.source, context.data.text()));
  }
  backbone_ = register_module(
      "backbone",
      context.make_backbone("backbone", reads_last ? Features::kLast : Features::kPooled));
  has_gates_ = GateScores::apply_to(*backbone_);
  head_ = register_module("head", Linear(backbone_->feature_width(), context.data.classes,
                                         context.build.tensor_options, kind.head, Init::zeros()));
  if (!context.data.image && context.data.sequence > 0) {
    unit_ = {"tok", context.data.sequence};
  }
}

TrainOutput Classify::train(const Batch& batch) {
  const StepContext& step = batch.context;
  TORCH_CHECK(step.samples_in_step > 0, "train needs StepContext::samples_in_step");
  ModelInput input = input_of(batch);
  std::optional<ImageMix> mix;
  if (input.image_bCHW.defined()) {
    mix = draw_image_mix(options_.mix, step.seed, step.step, input.image_bCHW.size(2),
                         input.image_bCHW.size(3));
  }
  if (mix) input.image_bCHW = mixed(input.image_bCHW, *mix, step.samples_per_group);
  ModelOutput output = features_of(input, step);
  const torch::Tensor logits_bN = at_least_float32(head_->forward(output.pooled_bD));
  torch::Tensor sum = summed_loss(logits_bN, batch.label_b, options_.label_smoothing);
  if (mix) {
    const torch::Tensor other_b = partners(batch.label_b, step.samples_per_group);
    sum = mix->own_share * sum +
          (1.0 - mix->own_share) * summed_loss(logits_bN, other_b, options_.label_smoothing);
  }
  return {add_loss(sum / static_cast<double>(step.samples_in_step), output.auxiliary_loss),
          std::move(output.moe)};
}

// Both losses are linear in the target, so that of a mixed one is the mix of both.
torch::Tensor Classify::summed_loss(const torch::Tensor& logits_bN, const torch::Tensor& label_b,
                                    double label_smoothing) const {
  if (!is_binary()) return summed_cross_entropy(logits_bN, label_b, label_smoothing);
  const auto classes = static_cast<double>(logits_bN.size(1));
  const torch::Tensor target_bN =
      torch::full_like(logits_bN, label_smoothing / classes)
          .scatter_add_(
              1, label_b.unsqueeze(1),
              logits_bN.new_full({1, 1}, 1.0 - label_smoothing).expand({label_b.size(0), 1}));
  return at::binary_cross_entropy_with_logits(logits_bN, target_bN, {}, {}, at::Reduction::Sum) /
         classes;
}

torch::Tensor Classify::outputs(const Batch& batch) {
  return head_->forward(features_of(input_of(batch), batch.context).pooled_bD);
}

EvalOutput Classify::evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  ModelOutput output = features_of(input_of(batch), batch.context);
  const torch::Tensor logits_bN = head_->forward(output.pooled_bD);
  const torch::Tensor rank_b = rank_of_label(logits_bN, batch.label_b);
  const auto number = [](const torch::Tensor& sum) { return sum.to(torch::kFloat64); };
  std::vector<torch::Tensor> sums{
      number(summed_loss(at_least_float32(logits_bN), batch.label_b, /*label_smoothing=*/0.0)),
      number((rank_b < 1).sum()), number((rank_b < 5).sum())};
  if (is_binary()) sums.push_back(number(summed_cross_entropy(logits_bN, batch.label_b, 0.0)));
  const torch::Tensor host = torch::stack(sums).to(torch::kCPU);  // one wait for all
  const double* value = host.const_data_ptr<double>();
  const auto samples = static_cast<double>(batch.label_b.size(0));
  EvalOutput result{
      {{"loss", value[0], samples}, {"top1", value[1], samples}, {"top5", value[2], samples}},
      std::move(output.moe)};
  if (is_binary()) result.sums.push_back({kCrossEntropy, value[3], samples});
  result.probability_bN =
      is_binary() ? at_least_float32(logits_bN).sigmoid() : at_least_float32(logits_bN).softmax(1);
  if (has_gates_) {
    std::ranges::move(GateScores::sums(output.is_open_bS, batch.length_b, {}),
                      std::back_inserter(result.sums));
  }
  return result;
}

std::vector<Metric> Classify::metrics(const std::vector<NamedSum>& totals) const {
  std::vector<Metric> metrics{{"loss", mean_of(totals, "loss"), Metric::Kind::kLoss},
                              {"top1", mean_of(totals, "top1"), Metric::Kind::kShare, "top-1"},
                              {"top5", mean_of(totals, "top5"), Metric::Kind::kShare, "top-5"}};
  if (is_binary()) {
    metrics.push_back(
        {kCrossEntropy, mean_of(totals, kCrossEntropy), Metric::Kind::kLoss, "cross entropy"});
  }
  if (has_gates_) {
    std::ranges::move(GateScores::metrics(totals, /*has_recall=*/false),
                      std::back_inserter(metrics));
  }
  return metrics;
}

const Registration<Task, Classify> registered_classify{"classify",
                                                       "classification of images and sequences"};

}  // namespace shoal
