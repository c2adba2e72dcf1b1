#include <ATen/ops/linear.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

#include "models/kernels/linear_cross_entropy.h"
#include "models/task.h"
#include "models/text_model.h"
#include "runtime/base/error.h"

// b sequences on this rank  S tokens  D features  V vocabulary
namespace shoal {
namespace {

/// A head of its own, without bias: N(0, 0.02), whatever the backbone's init_std.
class HeadImpl : public ModuleBase {
 public:
  HeadImpl(at::IntArrayRef sizes, const torch::TensorOptions& options) {
    weight = add_parameter("weight", sizes, options, Init::normal(0.02));
  }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

/// A ratio of two sums, 0 where one of them is not known.
double ratio_of(const std::vector<NamedSum>& totals, std::string_view name) {
  const double ratio = mean_of(totals, name);
  return std::isfinite(ratio) ? ratio : 0.0;
}

double weight_of(const std::vector<NamedSum>& totals, std::string_view name) {
  for (const NamedSum& total : totals) {
    if (total.name == name) return total.weight;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Language modelling: each token's features predict the next token. While training every token
/// has a label, which loaders check; in evaluation those without one are not scored.
class LanguageModel : public Task, public TextModel {
 public:
  struct Options {
    bool tied = true;

    static constexpr auto fields() {
      return std::tuple{
          field("tied", &Options::tied,
                "whether the head multiplies with the token embedding; false: with a matrix of its "
                "own, head.weight")};
    }
  };

  LanguageModel(const Options& options, const Context& context)
      : vocabulary_(context.data.vocabulary), unit_{"tok", context.data.sequence} {
    if (!context.data.labels_tokens || vocabulary_ == 0) {
      throw ConfigError("task.name: lm needs tokens with labels, data.source " +
                        context.data.source + " gives " + context.data.text());
    }
    const auto backbone = context.make_backbone("backbone", Features::kTokens);
    backbone_ = std::dynamic_pointer_cast<CausalBackbone>(backbone);
    if (backbone_ == nullptr) {
      throw ConfigError(
          "task.name: lm needs a causal backbone, such as model.backbone gpt2; this one's tokens "
          "see later ones");
    }
    register_module("backbone", backbone_);
    if (!options.tied) {
      head_ = register_module(
          "head", Head(backbone_->token_embedding().sizes(), context.build.tensor_options));
    }
  }

  TrainOutput train(const Batch& batch) override {
    const StepContext& step = batch.context;
    TORCH_CHECK(step.samples_in_step > 0, "train needs StepContext::samples_in_step");
    ModelOutput output = backbone_->forward(input_of(batch), step);
    // Each of them is labelled.
    const int64_t tokens_in_step = step.samples_in_step * batch.token_bS.size(1);
    const torch::Tensor loss =
        summed_loss(output.token_bSD, batch.token_label_bS) / static_cast<double>(tokens_in_step);
    return {add_loss(loss, output.auxiliary_loss), std::move(output.moe)};
  }

  /// [b, S, V].
  torch::Tensor outputs(const Batch& batch) override {
    return logits_of(backbone_->forward(input_of(batch), batch.context).token_bSD);
  }

  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor& label_bS = batch.token_label_bS;
    const torch::Tensor host =
        torch::stack({summed_loss(output.token_bSD, label_bS).to(torch::kFloat64),
                      (label_bS != kNoLabel).sum().to(torch::kFloat64)})
            .to(torch::kCPU);  // one wait for both
    const double* value = host.const_data_ptr<double>();
    // The same ratios from every batch, so also for all.
    const auto samples = static_cast<double>(label_bS.size(0));
    const TextCounts& text = batch.text;
    const auto times_samples = [samples](int64_t count) {
      return static_cast<double>(count) * samples;
    };
    return {{{"loss", value[0], value[1]},
             {"bytes_per_token", times_samples(text.bytes), times_samples(text.tokens)},
             {"tokens_per_word", times_samples(text.words > 1 ? text.tokens - 1 : 0),
              times_samples(text.words > 1 ? text.words - 1 : 0)}},
            std::move(output.moe)};
  }

  /// Those of bytes and words are left out where a text's are not known.
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    const double loss = mean_of(totals, "loss");
    std::vector<Metric> metrics{{"loss", loss}, {"perplexity", std::exp(loss)}};
    const double bytes_per_token = ratio_of(totals, "bytes_per_token");
    if (totals.empty() || bytes_per_token > 0) {
      metrics.push_back({"bits_per_byte", loss / std::numbers::ln2 / bytes_per_token,
                         Metric::Kind::kNumber, "bits per byte"});
    }
    // Megatron's adjusted perplexity.
    const double tokens_per_word = ratio_of(totals, "tokens_per_word");
    if (totals.empty() || tokens_per_word > 0) {
      metrics.push_back({"word_perplexity", std::exp(loss * tokens_per_word), Metric::Kind::kNumber,
                         "perplexity per word"});
    }
    metrics.push_back({"tokens", weight_of(totals, "loss"), Metric::Kind::kCount});
    return metrics;
  }

  ScoreRule score() const override { return {"perplexity", /*higher_is_better=*/false}; }
  RateUnit unit() const override { return unit_; }
  int64_t head_parameters() const override { return head_ ? head_->weight.numel() : 0; }

  CausalBackbone& text_backbone() override { return *backbone_; }
  torch::Tensor next_logits(const torch::Tensor& last_bD) const override {
    return at_least_float32(logits_of(last_bD));
  }

 private:
  /// [V or more, D].
  torch::Tensor head_weight() const { return head_ ? head_->weight : backbone_->token_embedding(); }
  torch::Tensor summed_loss(const torch::Tensor& token_bSD, const torch::Tensor& label_bS) const {
    return linear_cross_entropy(token_bSD.flatten(0, 1), head_weight(), label_bS.flatten(),
                                vocabulary_);
  }
  torch::Tensor logits_of(const torch::Tensor& features) const {
    return at::linear(features, head_weight().narrow(0, 0, vocabulary_).to(features.scalar_type()));
  }

  int64_t vocabulary_;
  std::shared_ptr<CausalBackbone> backbone_;
  Head head_{nullptr};
  RateUnit unit_;
};

const Registration<Task, LanguageModel> registered_lm{"lm", "language modelling"};

}  // namespace
}  // namespace shoal
