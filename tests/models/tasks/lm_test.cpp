#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "models/causal_backbone.h"
#include "models/task.h"
#include "models/text_generation.h"
#include "runtime/base/error.h"
#include "runtime/data/sequences/text.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/scratch_folder.h"

// b windows  S tokens of a window  D features  V vocabulary
namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::gradient_error;
using ::testing::HasSubstr;
using testing::some_numbers;

constexpr int64_t kWindow = 4, kWidth = 3;
constexpr const char* kStream = "ab ba\nab c";  // 10 bytes, 4 words
const DataShape kBytes{
    .source = "text", .sequence = kWindow, .vocabulary = 256, .token_labels = kWindow};

/// The features of a token are its embedding and that of its place in the window.
class PlaceBackbone : public CausalBackbone {
 public:
  PlaceBackbone() {
    tokens_ = add_parameter("tokens", {260, kWidth}, torch::kFloat64, Init::zeros());
    places_ = add_parameter("places", {kWindow, kWidth}, torch::kFloat64, Init::zeros());
  }
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    ModelOutput output{.token_bSD = at::embedding(tokens_, input.token_bS) + places_};
    if (step.training) output.auxiliary_loss = auxiliary_loss;
    return output;
  }
  int64_t feature_width() const override { return kWidth; }
  int64_t context_length() const override { return kWindow; }
  torch::Tensor token_embedding() const override { return tokens_; }
  KeyValueCache make_cache(int64_t, int64_t) const override { return {}; }
  torch::Tensor decode(const NewTokens&, KeyValueCache&, const StepContext&) override { return {}; }

  torch::Tensor auxiliary_loss;

 private:
  torch::Tensor tokens_, places_;
};

class LmTest : public ::testing::Test {
 protected:
  std::shared_ptr<Task> make(const std::string& options = "{name: lm}",
                             const DataShape& data = kBytes) {
    ModelContext build;
    build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
    const auto make_backbone = [this](const std::string&, Features features) {
      EXPECT_EQ(features, Features::kTokens);
      return backbone_;
    };
    const auto choice =
        config::load_options_text<Holder>("task: " + options, "test", {"", {}, nullptr}).options;
    auto task = Registry<Task>::create(choice.task, {build, data, make_backbone});
    testing::fill_parameters(*task);
    return task;
  }
  struct Holder {
    Choice<Task> task;
    static constexpr auto fields() { return std::tuple{required("task", &Holder::task, "it")}; }
  };

  static torch::Tensor parameter(const Task& task, const std::string& name) {
    for (const Parameter& found : parameters_of(task)) {
      if (found.name == name) return found.tensor;
    }
    TORCH_CHECK(false, "no parameter ", name);
  }

  /// The windows of a text that evaluation reads, in one batch.
  Batch windows(const std::string& text, std::optional<int64_t> stride = {}) {
    std::ofstream(folder_.file("text")) << text;
    TextSource::Options options;
    options.path = folder_.file("");
    options.sequence = kWindow;
    options.train.files = {"train"};
    options.valid.files = {"text"};
    const auto samples = TextSource(options, {.evaluation_stride = stride}).open(Split::kValid);
    std::vector<torch::Tensor> tokens, labels;
    for (int64_t i = 0; i < samples->size(); ++i) {
      const Sample sample = samples->read(i, 0);
      tokens.push_back(torch::tensor(sample.token_S, torch::kInt64));
      labels.push_back(torch::tensor(sample.token_label_S, torch::kInt64));
    }
    Batch batch;
    batch.token_bS = torch::stack(tokens);
    batch.token_label_bS = torch::stack(labels);
    batch.context.sample_b = torch::arange(samples->size(), torch::kInt64);
    batch.text = samples->text_counts().value_or(TextCounts{});
    return batch;
  }

  /// -log p of byte `target` of the stream, seen from the window that begins at `begin`.
  static double nll(const Task& task, const std::string& text, size_t begin, size_t target) {
    const torch::Tensor tokens = parameter(task, "backbone.tokens");
    const torch::Tensor places = parameter(task, "backbone.places");
    const torch::Tensor feature_D =
        tokens[text[target - 1]] + places[static_cast<int64_t>(target - 1 - begin)];
    double sum = 0.0;
    std::vector<double> logits;
    for (int64_t v = 0; v < 256; ++v) {
      logits.push_back((tokens[v] * feature_D).sum().item<double>());
      sum += std::exp(logits.back());
    }
    return std::log(sum) - logits[static_cast<size_t>(text[target])];
  }

  testing::ScratchFolder folder_;
  std::shared_ptr<PlaceBackbone> backbone_ = std::make_shared<PlaceBackbone>();
};

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return 0.0;
}

std::vector<std::string> names_of(const std::vector<Metric>& metrics) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics) names.push_back(metric.name);
  return names;
}

TEST_F(LmTest, PerplexityOfWindowsThatDoNotOverlapIsThatByHand) {
  const auto task = make();
  double sum = 0.0;
  for (const size_t begin : {0u, 4u}) {
    for (size_t target = begin + 1; target <= begin + 4; ++target) {
      sum += nll(*task, kStream, begin, target);
    }
  }
  const auto metrics = task->metrics(task->evaluate(windows(kStream)).sums);
  EXPECT_EQ(value_of(metrics, "tokens"), 8.0);
  EXPECT_NEAR(value_of(metrics, "loss"), sum / 8, 1e-12);
  EXPECT_NEAR(value_of(metrics, "perplexity"), std::exp(sum / 8), 1e-11);
  EXPECT_NEAR(value_of(metrics, "bits_per_byte"), sum / 8 / std::numbers::ln2, 1e-12);
}

TEST_F(LmTest, StridedPerplexityIsThatByHand) {
  const auto task = make();
  double sum = 0.0;
  for (size_t target = 1; target <= 4; ++target) sum += nll(*task, kStream, 0, target);
  for (const size_t begin : {2u, 4u}) {
    for (size_t target = begin + 3; target <= begin + 4; ++target) {
      sum += nll(*task, kStream, begin, target);
    }
  }
  const auto metrics = task->metrics(task->evaluate(windows(kStream, 2)).sums);
  EXPECT_EQ(value_of(metrics, "tokens"), 8.0);
  EXPECT_NEAR(value_of(metrics, "perplexity"), std::exp(sum / 8), 1e-11);
}

TEST_F(LmTest, PerplexityPerWordIsMegatronsAdjusted) {
  const auto task = make();
  Batch batch = windows(kStream);
  batch.text = {.tokens = 10, .bytes = 20, .words = 4};
  const auto metrics = task->metrics(task->evaluate(batch).sums);
  const double loss = value_of(metrics, "loss");
  const double expected = std::exp(loss * 9 / 3);
  EXPECT_NEAR(value_of(metrics, "word_perplexity"), expected, 1e-12 * expected);
  EXPECT_NEAR(value_of(metrics, "bits_per_byte"), loss / std::numbers::ln2 * 10 / 20, 1e-12);
}

TEST_F(LmTest, AddsUpOverBatches) {
  const auto task = make();
  const Batch whole = windows(kStream);
  std::vector<NamedSum> totals = task->evaluate(whole).sums;
  std::vector<NamedSum> parts;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 1}, {2, 0}}) {
    Batch part = whole;
    part.token_bS = whole.token_bS.narrow(0, first, count);
    part.token_label_bS = whole.token_label_bS.narrow(0, first, count);
    const std::vector<NamedSum> sums = task->evaluate(part).sums;
    if (parts.empty()) parts.resize(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      parts[i].name = sums[i].name;
      parts[i].sum += sums[i].sum;
      parts[i].weight += sums[i].weight;
    }
  }
  const auto expected = task->metrics(totals), found = task->metrics(parts);
  ASSERT_EQ(names_of(found), names_of(expected));
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].value, expected[i].value, 1e-12 * std::abs(expected[i].value));
  }
}

TEST_F(LmTest, LeavesOutWhatIsNotKnownOfAText) {
  const auto task = make();
  EXPECT_THAT(names_of(task->metrics({})),
              ElementsAre("loss", "perplexity", "bits_per_byte", "word_perplexity", "tokens"));
  Batch batch = windows(kStream);
  batch.text = {.tokens = 10, .bytes = 20};
  EXPECT_THAT(names_of(task->metrics(task->evaluate(batch).sums)),
              ElementsAre("loss", "perplexity", "bits_per_byte", "tokens"));
  batch.text = {};
  const auto metrics = task->metrics(task->evaluate(batch).sums);
  EXPECT_THAT(names_of(metrics), ElementsAre("loss", "perplexity", "tokens"));
  for (const Metric& metric : metrics) EXPECT_TRUE(std::isfinite(metric.value)) << metric.name;
}

TEST_F(LmTest, KeepsALossThatIsNotANumberVisible) {
  const auto task = make();
  const torch::NoGradGuard no_grad;
  parameter(*task, "backbone.tokens").fill_(std::numeric_limits<double>::quiet_NaN());
  const auto metrics = task->metrics(task->evaluate(windows(kStream)).sums);
  for (const char* name : {"loss", "perplexity", "bits_per_byte", "word_perplexity"}) {
    EXPECT_TRUE(std::isnan(value_of(metrics, name))) << name;
  }
}

TEST_F(LmTest, LossIsTheLocalSumOverTheTokensOfTheStep) {
  for (const char* options : {"{name: lm}", "{name: lm, tied: false}"}) {
    const auto task = make(options);
    Batch batch = windows(kStream);
    batch.context.training = true;
    batch.context.samples_in_step = 5;
    const double sum = task->evaluate(batch).sums.front().sum;
    EXPECT_NEAR(task->train(batch).loss.item<double>(), sum / 20, 1e-12);
    backbone_->auxiliary_loss = torch::tensor(0.5, torch::kFloat64);
    EXPECT_NEAR(task->train(batch).loss.item<double>(), sum / 20 + 0.5, 1e-12);
    backbone_->auxiliary_loss = torch::Tensor();
    std::vector<torch::Tensor> inputs;
    for (const Parameter& found : parameters_of(*task)) inputs.push_back(found.tensor);
    EXPECT_LE(gradient_error([&] { return task->train(batch).loss; }, inputs), 1e-6) << options;
  }
}

TEST_F(LmTest, TiesItsHeadOrHasOneWithoutBias) {
  EXPECT_EQ(make()->head_parameters(), 0);
  const auto task = make("{name: lm, tied: false}");
  EXPECT_EQ(task->head_parameters(), 260 * kWidth);
  EXPECT_EQ(parameter(*task, "head.weight").sizes(), (std::vector<int64_t>{260, kWidth}));
}

TEST_F(LmTest, GivesTheLogitsOfTheVocabularyWithoutItsPadding) {
  const auto task = make("{name: lm, tied: false}");
  const Batch batch = windows(kStream);
  const torch::Tensor logits_bSV = task->outputs(batch);
  const torch::Tensor expected = at::linear(backbone_->forward(input_of(batch), {}).token_bSD,
                                            parameter(*task, "head.weight").narrow(0, 0, 256));
  EXPECT_TRUE(logits_bSV.equal(expected));
  auto* model = dynamic_cast<TextModel*>(task.get());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(&model->text_backbone(), backbone_.get());
  const torch::Tensor feature_bD = some_numbers({2, kWidth}, 3);
  EXPECT_EQ(model->next_logits(feature_bD).sizes(), (std::vector<int64_t>{2, 256}));
}

/// Two of four tokens have labels.
const DataShape kAnswers{
    .source = "answers", .sequence = kWindow, .vocabulary = 256, .token_labels = 2};

/// Two samples of them.
Batch answers_batch() {
  Batch batch;
  const int64_t no = kNoLabel;
  batch.token_bS = torch::tensor({{3, 1, 4, 1}, {5, 9, 2, 6}}, torch::kInt64);
  batch.token_label_bS = torch::tensor({{no, 7L, no, 2L}, {8L, no, 1L, no}}, torch::kInt64);
  batch.context.training = true;
  batch.context.samples_in_step = 5;
  return batch;
}

TEST_F(LmTest, LossOfAnswersIsThatOfTheLabelledTokens) {
  const auto task = make("{name: lm}", kAnswers);
  const Batch batch = answers_batch();
  const torch::Tensor log_prob = task->outputs(batch).log_softmax(2);
  double sum = 0.0;
  for (const auto& [b, s] : {std::pair{0, 1}, {0, 3}, {1, 0}, {1, 2}}) {
    sum -= log_prob[b][s][batch.token_label_bS[b][s].item<int64_t>()].item<double>();
  }
  EXPECT_NEAR(task->train(batch).loss.item<double>(), sum / 10, 1e-12);
  std::vector<torch::Tensor> inputs;
  for (const Parameter& found : parameters_of(*task)) inputs.push_back(found.tensor);
  EXPECT_LE(gradient_error([&] { return task->train(batch).loss; }, inputs), 1e-6);
  const auto metrics = task->metrics(task->evaluate(batch).sums);
  EXPECT_NEAR(value_of(metrics, "loss"), sum / 4, 1e-12);
  EXPECT_EQ(value_of(metrics, "tokens"), 4.0);
}

TEST_F(LmTest, AnswersAreScoredByAccuracy) {
  const auto task = make("{name: lm, tied: false}", kAnswers);
  EXPECT_EQ(task->score().metric, "accuracy");
  EXPECT_TRUE(task->score().higher_is_better);
  const torch::NoGradGuard no_grad;
  // All logits are equal: the lowest id counts. Then those of 1 and 2 lead.
  parameter(*task, "head.weight").zero_();
  Batch batch = answers_batch();
  batch.token_label_bS[0][1] = 0;
  const auto accuracy = [&] {
    return value_of(task->metrics(task->evaluate(batch).sums), "accuracy");
  };
  EXPECT_EQ(accuracy(), 0.25);
  parameter(*task, "backbone.tokens").fill_(1.0);
  parameter(*task, "head.weight").narrow(0, 1, 2).fill_(1.0);
  EXPECT_EQ(accuracy(), 0.25);
  parameter(*task, "head.weight")[2].fill_(2.0);
  batch.token_label_bS[1][0] = 2;
  EXPECT_EQ(accuracy(), 0.5);
  batch.token_label_bS[1][2] = kNoLabel;  // legal in evaluation
  EXPECT_NEAR(accuracy(), 2.0 / 3.0, 1e-15);
  parameter(*task, "head.weight").fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(accuracy(), 0.0);
}

TEST_F(LmTest, NamesAccuracyOfAnswersOnly) {
  const auto task = make("{name: lm}", kAnswers);
  EXPECT_THAT(
      names_of(task->metrics({})),
      ElementsAre("loss", "perplexity", "accuracy", "bits_per_byte", "word_perplexity", "tokens"));
  EXPECT_THAT(names_of(task->metrics(task->evaluate(answers_batch()).sums)),
              ElementsAre("loss", "perplexity", "accuracy", "tokens"));
}

TEST_F(LmTest, ABatchWithoutAnswersAddsNothing) {
  const auto task = make("{name: lm}", kAnswers);
  Batch batch = answers_batch();
  batch.token_bS = batch.token_bS.narrow(0, 0, 0);
  batch.token_label_bS = batch.token_label_bS.narrow(0, 0, 0);
  const torch::Tensor loss = task->train(batch).loss;
  EXPECT_EQ(loss.item<double>(), 0.0);
  loss.backward();
  EXPECT_EQ(parameter(*task, "backbone.tokens").grad().abs().max().item<double>(), 0.0);
  for (const NamedSum& sum : task->evaluate(batch).sums) EXPECT_EQ(sum.weight, 0.0) << sum.name;
}

TEST_F(LmTest, CountsTokensAndWantsALowPerplexity) {
  const auto task = make();
  EXPECT_EQ(task->unit().name, "tok");
  EXPECT_EQ(task->unit().per_sample, kWindow);
  EXPECT_EQ(task->score().metric, "perplexity");
  EXPECT_FALSE(task->score().higher_is_better);
}

TEST_F(LmTest, RefusesDataWithoutLabelledTokensAndModelsThatAreNotCausal) {
  try {
    make("{name: lm}", {.source = "cifar", .image = ImageShape{}, .classes = 10});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("task.name: lm needs tokens with labels, data.source cifar gives images "
                          "of 3 x 32 x 32 and labels of 10 classes"));
  }
  class Whole : public Backbone {
    ModelOutput forward(const ModelInput&, const StepContext&) override { return {}; }
    int64_t feature_width() const override { return 1; }
  };
  const auto make_whole = [](const std::string&, Features) { return std::make_shared<Whole>(); };
  try {
    const Task::Context context{ModelContext(), kBytes, make_whole};
    Registry<Task>::create(Choice<Task>("lm"), context);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task.name: lm needs a causal model.backbone"));
  }
}

}  // namespace
}  // namespace shoal
