#include <ATen/ops/linear.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/nonzero_static.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "models/kernels/linear_cross_entropy.h"
#include "models/task.h"
#include "models/tasks/gate_scores.h"
#include "models/tasks/label_rank.h"
#include "models/text_generation.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"
#include "runtime/module/products.h"

// b sequences on this rank  S tokens  D features  V vocabulary  L labelled tokens
namespace shoal {
namespace {

/// Untied output layer without bias, initialised from N(0, 0.02) whatever the backbone's init_std.
class HeadImpl : public ModuleBase {
 public:
  HeadImpl(at::IntArrayRef sizes, const torch::TensorOptions& options) {
    weight = add_parameter("weight", sizes, options, Init::normal(0.02));
  }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

/// Ratio of two sums; 0 if one of them is missing.
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

/// Features and labels of some tokens, one row each.
struct LabelledRows {
  torch::Tensor feature_LD, label_L;
};

/// Language modelling: each token's features predict its label, the next token. If only some tokens
/// have labels (answers), the head computes these tokens only.
class LanguageModel : public Task, public TextModel, public CountsProducts {
 public:
  struct Options {
    bool tied = true;

    static constexpr auto fields() {
      return std::tuple{field("tied", &Options::tied,
                              "whether the head shares the token embedding; false: it has its own "
                              "matrix, head.weight")};
    }
  };

  LanguageModel(const Options& options, const Context& context)
      : vocabulary_(context.data.vocabulary),
        labels_per_sample_(context.data.token_labels),
        has_answers_(context.data.token_labels < context.data.sequence),
        unit_{"tok", context.data.sequence} {
    if (labels_per_sample_ == 0 || vocabulary_ == 0) {
      throw ConfigError("task.name: lm needs tokens with labels, data.source " +
                        context.data.source + " gives " + context.data.text());
    }
    const auto backbone = context.make_backbone("backbone", Features::kTokens);
    backbone_ = std::dynamic_pointer_cast<CausalBackbone>(backbone);
    if (backbone_ == nullptr) {
      throw ConfigError(
          "task.name: lm needs a causal model.backbone; this one's tokens see later ones");
    }
    if (!backbone_->is_causal()) {
      throw ConfigError(
          "model.causal: false lets a token see the next one, which lm predicts; use true");
    }
    register_module("backbone", backbone_);
    has_gates_ = GateScores::apply_to(*backbone_);
    if (!options.tied) {
      head_ = register_module(
          "head", Head(backbone_->token_embedding().sizes(), context.build.tensor_options));
    }
  }

  TrainOutput train(const Batch& batch) override {
    const StepContext& step = batch.context;
    TORCH_CHECK(step.samples_in_step > 0, "train needs StepContext::samples_in_step");
    ModelOutput output = backbone_->forward(input_of(batch), step);
    const int64_t labels = batch.token_bS.size(0) * labels_per_sample_;  // loaders check it
    const torch::Tensor loss =
        summed_loss(rows_of(output.token_bSD, batch.token_label_bS, labels)) /
        static_cast<double>(step.samples_in_step * labels_per_sample_);
    return {add_loss(loss, output.auxiliary_loss), std::move(output.moe)};
  }

  /// Logits [b, S, V].
  torch::Tensor outputs(const Batch& batch) override {
    return logits_of(backbone_->forward(input_of(batch), batch.context).token_bSD);
  }

  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor& label_bS = batch.token_label_bS;
    const LabelledRows rows = rows_of(output.token_bSD, label_bS, std::nullopt);
    std::vector<torch::Tensor> sums{summed_loss(rows), (label_bS != kNoLabel).sum()};
    if (has_answers_) sums.push_back(scores_of(rows).select(1, 1).sum());
    for (torch::Tensor& sum : sums) sum = sum.to(torch::kFloat64);
    const torch::Tensor host = torch::stack(sums).to(torch::kCPU);  // one wait for all
    const double* value = host.const_data_ptr<double>();
    // Constant over the whole split: each batch has the same ratios, and so has the sum of all.
    const auto samples = static_cast<double>(label_bS.size(0));
    const TextCounts& text = batch.text;
    const auto times_samples = [samples](int64_t count) {
      return static_cast<double>(count) * samples;
    };
    EvalOutput result{{{"loss", value[0], value[1]},
                       {"bytes_per_token", times_samples(text.bytes), times_samples(text.tokens)},
                       {"tokens_per_word", times_samples(text.words > 1 ? text.tokens - 1 : 0),
                        times_samples(text.words > 1 ? text.words - 1 : 0)}},
                      std::move(output.moe)};
    if (has_answers_) result.sums.push_back({"accuracy", value[2], value[1]});
    if (has_gates_) {
      const torch::Tensor answer_bS = has_answers_ ? label_bS : torch::Tensor();
      std::ranges::move(GateScores::sums(output.is_open_bS, batch.length_b, answer_bS),
                        std::back_inserter(result.sums));
    }
    return result;
  }

  /// Leaves out metrics per byte and word if the text's numbers of them are unknown.
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    const double loss = mean_of(totals, "loss");
    std::vector<Metric> metrics{{"loss", loss, Metric::Kind::kLoss},
                                {"perplexity", std::exp(loss), Metric::Kind::kLoss}};
    if (has_answers_) {
      metrics.push_back({"accuracy", mean_of(totals, "accuracy"), Metric::Kind::kShare});
    }
    const double bytes_per_token = ratio_of(totals, "bytes_per_token");
    if (totals.empty() || bytes_per_token > 0) {
      metrics.push_back({"bits_per_byte", loss / std::numbers::ln2 / bytes_per_token,
                         Metric::Kind::kLoss, "bits per byte"});
    }
    // Megatron's adjusted perplexity.
    const double tokens_per_word = ratio_of(totals, "tokens_per_word");
    if (totals.empty() || tokens_per_word > 0) {
      metrics.push_back({"word_perplexity", std::exp(loss * tokens_per_word), Metric::Kind::kLoss,
                         "perplexity per word"});
    }
    if (has_gates_) {
      std::ranges::move(GateScores::metrics(totals, has_answers_), std::back_inserter(metrics));
    }
    metrics.push_back({"tokens", weight_of(totals, "loss"), Metric::Kind::kCount});
    return metrics;
  }

  ScoreRule score() const override {
    return has_answers_ ? ScoreRule{"accuracy", /*higher_is_better=*/true}
                        : ScoreRule{"perplexity", /*higher_is_better=*/false};
  }
  RateUnit unit() const override { return unit_; }
  void list_products(double rows, ProductList& list) const override {
    list.apply(head_weight(), rows * static_cast<double>(labels_per_sample_));
  }
  int64_t head_parameters() const override { return head_ ? head_->weight.numel() : 0; }

  CausalBackbone& text_backbone() override { return *backbone_; }
  torch::Tensor next_logits(const torch::Tensor& last_bD) const override {
    return at_least_float32(logits_of(last_bD));
  }
  torch::Tensor label_scores(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor is_labelled = batch.token_label_bS != kNoLabel;
    const torch::Tensor score_L2 = scores_of(
        {output.token_bSD.index({is_labelled}), batch.token_label_bS.index({is_labelled})});
    const torch::Tensor sample_L = at::nonzero(is_labelled).select(1, 0);
    return score_L2.new_zeros({is_labelled.size(0), 2}).index_add_(0, sample_L, score_L2);
  }

 private:
  /// Weight of the output layer, [V or more, D].
  torch::Tensor head_weight() const { return head_ ? head_->weight : backbone_->token_embedding(); }
  /// Selects the tokens with labels, or all if every token has one. `labels`: their number, if
  /// known without waiting for a GPU.
  LabelledRows rows_of(const torch::Tensor& token_bSD, const torch::Tensor& label_bS,
                       std::optional<int64_t> labels) const {
    const LabelledRows all{token_bSD.flatten(0, 1), label_bS.flatten()};
    if (!has_answers_) return all;
    const torch::Tensor has_label = all.label_L != kNoLabel;
    const torch::Tensor row_L =
        (labels ? at::nonzero_static(has_label, *labels) : at::nonzero(has_label)).squeeze(1);
    return {all.feature_LD.index_select(0, row_L), all.label_L.index_select(0, row_L)};
  }
  torch::Tensor summed_loss(const LabelledRows& rows) const {
    return linear_cross_entropy(rows.feature_LD, head_weight(), rows.label_L, vocabulary_);
  }
  /// Scores each label, float64 [L, 2]: its log-probability, and 1 if it has the highest logit, of
  /// equal ones the lowest id, else 0.
  torch::Tensor scores_of(const LabelledRows& rows) const {
    constexpr int64_t kMostLogits = int64_t{1} << 24;
    const int64_t chunk = std::max<int64_t>(1, kMostLogits / vocabulary_);
    const auto features = rows.feature_LD.split(chunk), labels = rows.label_L.split(chunk);
    std::vector<torch::Tensor> scores;
    for (size_t i = 0; i < labels.size(); ++i) {
      const torch::Tensor logits = logits_of(features[i]).to(torch::kFloat64);
      const torch::Tensor logprobs = logits.log_softmax(1).gather(1, labels[i].unsqueeze(1));
      const torch::Tensor hits = rank_of_label(logits, labels[i]) == 0;
      scores.push_back(torch::cat({logprobs, hits.unsqueeze(1).to(torch::kFloat64)}, 1));
    }
    return torch::cat(scores);
  }
  torch::Tensor logits_of(const torch::Tensor& features) const {
    return at::linear(features, head_weight().narrow(0, 0, vocabulary_).to(features.scalar_type()));
  }

  int64_t vocabulary_;
  int64_t labels_per_sample_;
  bool has_answers_;
  bool has_gates_ = false;
  std::shared_ptr<CausalBackbone> backbone_;
  Head head_{nullptr};
  RateUnit unit_;
};

const Registration<Task, LanguageModel> registered_lm{"lm", "language modelling"};

}  // namespace

Choice<Task> language_model(bool is_tied) { return {"lm", LanguageModel::Options{is_tied}}; }
bool has_tied_head(const Choice<Task>& task) { return task.options<LanguageModel>().tied; }

}  // namespace shoal
