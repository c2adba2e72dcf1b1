#include "launch/maps/gate_maps.h"
#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/step/session.h"
#include "launch/weights/open_checkpoint.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/markup.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::count_of;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

/// What a page draws of its samples.
std::vector<nlohmann::json> tokens_in(const std::string& page) {
  const std::string mark = "id=\"data\">";
  const size_t begin = page.find(mark) + mark.size();
  const auto data = nlohmann::json::parse(page.substr(begin, page.find('<', begin) - begin));
  std::vector<nlohmann::json> tokens;
  for (const auto& figure : data["figures"]) tokens.push_back(figure.at("tokens"));
  return tokens;
}

class GateMapsCommand : public ::testing::Test {
 protected:
  /// A run after one step; its folder.
  std::string train(const std::vector<std::string>& overrides) {
    return testing::run_of_one_step(testing::equality_recipe(overrides), scratch_);
  }

  nlohmann::json draw(const GateMapsArguments& arguments) {
    std::ostringstream out;
    GateMapsArguments own = arguments;
    own.file = page_;
    own.json = true;
    EXPECT_EQ(draw_gate_maps(own, nothing_, out), ExitCode::kOk);
    return nlohmann::json::parse(out.str());
  }

  std::string refusal(const GateMapsArguments& arguments) {
    try {
      draw(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return std::string(error.what()) + " | " + error.hint();
    }
    return "none";
  }

  ScratchFolder scratch_;
  std::string page_ = scratch_.file("gates.html");
  const Environment nothing_ = [](const std::string&) { return std::nullopt; };
};

/// Open gates of a model's first validation samples: [G gates, N samples, S tokens].
struct OpenGates {
  torch::Tensor is_open_GNS, is_labelled_NS;
};

OpenGates open_gates(const std::string& run, int64_t num_samples) {
  const torch::NoGradGuard no_grad;
  OpenedCheckpoint opened =
      open_checkpoint_alone({run, false, {}}, [](const std::string&) { return std::nullopt; });
  const OpenSplit data = open_split(make_source(opened.recipe), Split::kValid);
  const BuiltModel model =
      build_model(opened.recipe, data.source->shape(), {&opened.grid, torch::kCPU});
  load_model(opened, model);
  std::shared_ptr<Backbone> backbone;
  for (const auto& module : model.task->modules()) {
    if (auto found = std::dynamic_pointer_cast<Backbone>(module)) backbone = found;
  }
  EvalLoader loader(*data.samples, loader_settings(opened.recipe, data, opened.grid));
  std::vector<torch::Tensor> is_open, is_labelled;
  while (const std::optional<Batch> batch = loader.next()) {
    is_open.push_back(torch::stack(backbone->forward(input_of(*batch), batch->context).is_open_bS));
    is_labelled.push_back(batch->token_label_bS != kNoLabel);
  }
  return {torch::cat(is_open, 1).narrow(1, 0, num_samples),
          torch::cat(is_labelled).narrow(0, 0, num_samples)};
}

constexpr const char* kGated =
    "model={backbone: hspmn, width: 8, depth: 2, heads: 4, kv_heads: 2, hidden: 10, gate: "
    "{anchor_every: 4, first_rate: 0.5, rate: 0.5, anneal_steps: 0}}";

std::vector<std::string> gated(std::vector<std::string> data) {
  data.emplace_back(kGated);
  return data;
}

TEST_F(GateMapsCommand, DrawsAnswersOfValidationSamples) {
  const std::string run = train(gated(testing::answers()));
  const auto json = draw({.checkpoint = {.path = run}, .samples = 9});  // more than a batch of 8
  EXPECT_EQ(json["samples"], 9);
  EXPECT_EQ(json["tokens"], 9 * 12);
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["drawn_samples"], 9);
  EXPECT_EQ(json["drawn_tokens"], 9 * 12);
  ASSERT_EQ(json["layers"].size(), 2u);
  EXPECT_EQ(json["layers"][1]["layer"], "blocks.1.gate");
  const OpenGates gates = open_gates(run, 9);
  const int64_t labelled = gates.is_labelled_NS.sum().item<int64_t>();
  ASSERT_EQ(labelled, 9 * 2);
  for (int64_t i = 0; i < 2; ++i) {
    const auto& layer = json["layers"][static_cast<size_t>(i)];
    const torch::Tensor is_open_NS = gates.is_open_GNS[i];
    const auto open = is_open_NS.sum().item<double>();
    EXPECT_GT(open, 9 * 3) << "no more than the anchors";
    EXPECT_LT(open, 9 * 12);
    EXPECT_DOUBLE_EQ(layer["rate"], open / (9 * 12));
    EXPECT_DOUBLE_EQ(layer["recall"],
                     (is_open_NS & gates.is_labelled_NS).sum().item<double>() / 18.0);
    EXPECT_GE(layer["token_information"], 0.0);
    EXPECT_TRUE(layer["label_information"].is_number());
    ASSERT_EQ(layer["rate_by_position"].size(), 16u);
    EXPECT_EQ(layer["rate_by_position"][0], 1.0);  // position 0 alone, an anchor
  }
  const std::string page = read_file(page_);
  EXPECT_THAT(page,
              AllOf(HasSubstr("Validation sample 8: 12 tokens"), HasSubstr("Tokens with a label"),
                    HasSubstr("the first 108 of 108 tokens, 9 of 9 samples")));
  int64_t drawn = 0;
  std::array<int64_t, 2> open{};
  for (const auto& tokens : tokens_in(page)) {
    drawn += std::ssize(tokens["labelled"]);
    for (size_t gate : {0, 1}) open[gate] += count_of(tokens["open"][gate].get<std::string>(), "1");
  }
  EXPECT_EQ(drawn, labelled);
  for (size_t gate : {0, 1}) {
    EXPECT_EQ(open[gate], gates.is_open_GNS[static_cast<int64_t>(gate)].sum().item<int64_t>());
  }
}

TEST_F(GateMapsCommand, LeavesPaddingOutAndHasNoLabelsOfClasses) {
  const std::string run = train(gated(testing::expressions("last")));
  const auto json = draw({.checkpoint = {.path = run}, .samples = 40});  // there are 11
  EXPECT_EQ(json["samples"], 11);
  EXPECT_LT(json["tokens"], 11 * 14);
  EXPECT_TRUE(json["layers"][0]["recall"].is_null());
  EXPECT_TRUE(json["layers"][0]["label_information"].is_null());
}

TEST_F(GateMapsCommand, DrawsAPromptOfAModelOfText) {
  const std::string run = train(gated(testing::text_data()));
  const auto json = draw({.checkpoint = {.path = run}, .prompt = "a <b\n"});
  EXPECT_EQ(json["samples"], 1);
  EXPECT_EQ(json["tokens"], 5);
  EXPECT_THAT(read_file(page_), AllOf(HasSubstr("Prompt: 5 tokens"), HasSubstr("\"\\u003c\"")));
  EXPECT_THAT(refusal({.checkpoint = {.path = run}, .prompt = ""}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({.checkpoint = {.path = run}, .prompt = "1234567"}),
              AllOf(HasSubstr("has 7 tokens, the model's context has room for 6"),
                    HasSubstr("shorten it")));
}

TEST_F(GateMapsCommand, TellsNumbersAsATable) {
  std::ostringstream out;
  const std::string run = train(gated(testing::answers()));
  draw_gate_maps({.checkpoint = {.path = run}, .file = page_}, nothing_, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step 1, 96 tokens of 8 samples"),
                               ::testing::ContainsRegex("blocks.0.gate +[01]\\.[0-9]{4} "),
                               HasSubstr("page: " + page_ + ", the first 96 tokens of 8 samples")));
}

TEST_F(GateMapsCommand, RefusesAPageThatCannotBeWrittenBeforeAllElse) {
  std::ostringstream out;
  EXPECT_THROW(draw_gate_maps({.checkpoint = {.path = scratch_.file("no_run")},
                               .file = page_ + "/no/gates.html"},
                              nothing_, out),
               StorageError);
}

TEST_F(GateMapsCommand, RefusesModelsWithoutGatesAndPromptsOfDataWithoutText) {
  std::string run = train(testing::answers());
  EXPECT_THAT(refusal({.checkpoint = {.path = run}}),
              AllOf(HasSubstr("has no token gates"), HasSubstr("model.backbone hspmn")));
  EXPECT_FALSE(std::filesystem::exists(page_));
  std::filesystem::remove_all(run);
  run = train(gated(testing::answers()));
  EXPECT_THAT(refusal({.checkpoint = {.path = run}, .prompt = "a"}),
              HasSubstr("needs a model of text"));
}

}  // namespace
}  // namespace shoal
