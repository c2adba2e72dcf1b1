#include "models/text_generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/task.h"
#include "tests/support/tiny_decoder.h"

// b sequences  S tokens  V vocabulary
namespace shoal {
namespace {

using testing::kTinyContext;
using testing::kTinyDecoders;
using testing::kTinyText;
using testing::run_grid;
using testing::self_grid;
using testing::some_step;
using testing::tiny_gpt2;
using Prompts = std::vector<std::vector<int64_t>>;

const Prompts kPrompts{{3, 1}, {5}, {2, 9, 4, 1}, {7, 7, 0}, {10}};
const std::string kHashed = ", moe: {router: {name: hash, k: 1, by: ";
const std::string kTail = "}, experts: {count: 3, hidden: 5}}";

/// A language model in float64 with filled parameters.
std::shared_ptr<Task> language_model(const std::string& keys, RankGrid& grid) {
  ModelContext build{{&grid, torch::TensorOptions().dtype(torch::kFloat64)}};
  build.compute_dtype = torch::kFloat64;
  const auto make_backbone = [&](const std::string&, Features) {
    return testing::build_backbone(tiny_gpt2(keys), kTinyText, build);
  };
  auto task = Registry<Task>::create(Choice<Task>("lm"), {build, kTinyText, make_backbone});
  testing::fill_parameters(*task, 2.0);
  return task;
}

std::vector<GeneratedText> generate(Task& task, const GenerationOptions& options, RankGrid& grid,
                                    const Prompts& prompts = kPrompts) {
  return generate_text(dynamic_cast<TextModel&>(task), prompts, options, grid);
}

GenerationOptions greedy(int64_t batch = 16) {
  GenerationOptions options{.sampling = {.temperature = 0.0}, .max_tokens = 6, .batch = batch};
  options.model_seed = some_step(1, false).seed;
  return options;
}

GenerationOptions sampled(int64_t batch = 16) {
  GenerationOptions options = greedy(batch);
  options.sampling = {.temperature = 1.3, .top_k = 8, .top_p = 0.95};
  options.seed = 4;
  return options;
}

void expect_equal(const std::vector<GeneratedText>& found,
                  const std::vector<GeneratedText>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].stop, expected[i].stop) << i;
  }
}

/// Every decoder, and experts chosen by hash.
std::map<std::string, std::string> decoders() {
  std::map<std::string, std::string> all = kTinyDecoders;
  all["HashByToken"] = kHashed + "token" + kTail;
  all["HashByPosition"] = kHashed + "position" + kTail;
  return all;
}

TEST(TextGeneration, GreedyTokensAreTheHighestLogitsOfTheWholeForwardPass) {
  for (const auto& [name, keys] : decoders()) {
    SCOPED_TRACE(name);
    RankGrid grid = self_grid();
    const auto task = language_model(keys, grid);
    const std::vector<GeneratedText> texts = generate(*task, greedy(), grid);
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      std::vector<int64_t> whole = kPrompts[i];
      whole.insert(whole.end(), texts[i].tokens.begin(), texts[i].tokens.end());
      Batch batch;
      batch.token_bS = torch::tensor(whole, torch::kInt64).unsqueeze(0);
      batch.context = some_step(1, false);
      const torch::Tensor best_S = task->outputs(batch)[0].argmax(1);
      for (size_t s = kPrompts[i].size(); s < whole.size(); ++s) {
        EXPECT_EQ(whole[s], best_S[static_cast<int64_t>(s) - 1].item<int64_t>()) << i << " " << s;
      }
    }
  }
}

TEST(TextGeneration, StopsAfterItsTokensOrWhereTheContextIsFull) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  const std::vector<GeneratedText> texts = generate(*task, greedy(), grid);
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    const int64_t room = kTinyContext - static_cast<int64_t>(kPrompts[i].size());
    EXPECT_EQ(static_cast<int64_t>(texts[i].tokens.size()), std::min<int64_t>(6, room));
    EXPECT_EQ(texts[i].stop, room < 6 ? StopReason::kContext : StopReason::kTokens);
  }
}

TEST(TextGeneration, StopsAtTheEndOfTextWithoutIt) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  const std::vector<GeneratedText> whole = generate(*task, sampled(), grid);
  GenerationOptions options = sampled();
  options.end_of_text = whole[0].tokens[2];
  const std::vector<GeneratedText> ended = generate(*task, options, grid);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<int64_t> expected;
    for (const int64_t token : whole[i].tokens) {
      if (token == options.end_of_text) break;
      expected.push_back(token);
    }
    EXPECT_EQ(ended[i].tokens, expected);
    EXPECT_EQ(ended[i].stop == StopReason::kEndOfText, expected.size() < whole[i].tokens.size());
  }
  EXPECT_EQ(ended[0].stop, StopReason::kEndOfText);
}

TEST(TextGeneration, IsIndependentOfTheBatch) {
  for (const auto& [name, keys] : decoders()) {
    SCOPED_TRACE(name);
    RankGrid grid = self_grid();
    const auto task = language_model(keys, grid);
    const std::vector<GeneratedText> expected = generate(*task, sampled(), grid);
    for (const int64_t batch : {1, 2, 3})
      expect_equal(generate(*task, sampled(batch), grid), expected);
  }
}

TEST(TextGeneration, DiffersBySeedAndSequence) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  const Prompts same(4, {3});
  const std::vector<GeneratedText> texts = generate(*task, sampled(), grid, same);
  EXPECT_NE(texts[0].tokens, texts[1].tokens);
  GenerationOptions other = sampled();
  other.seed = 5;
  EXPECT_NE(generate(*task, other, grid, same)[0].tokens, texts[0].tokens);
}

TEST(TextGeneration, TellsEachToken) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  std::vector<std::vector<int64_t>> told(kPrompts.size());
  const std::vector<GeneratedText> texts = generate_text(
      dynamic_cast<TextModel&>(*task), kPrompts, sampled(2), grid,
      [&](int64_t index, int64_t token) { told[static_cast<size_t>(index)].push_back(token); });
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(told[i], texts[i].tokens);
}

TEST(TextGeneration, RefusesPromptsWithoutTokensOrRoom) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  EXPECT_THROW(generate(*task, greedy(), grid, {{}}), c10::Error);
  EXPECT_THROW(generate(*task, greedy(), grid, {std::vector<int64_t>(kTinyContext, 1)}),
               c10::Error);
}

// One batch has fewer sequences than there are ranks.
TEST(TextGenerationRanks, ParallelEqualsSerial) {
  for (const auto& [name, keys] : decoders()) {
    SCOPED_TRACE(name);
    RankGrid alone = self_grid();
    const std::vector<GeneratedText> expected =
        generate(*language_model(keys, alone), sampled(), alone);
    for (const int64_t ranks : {2, 3, 4}) {
      for (const int64_t batch : {3, 16}) {
        run_grid(ranks, 1, [&](RankGrid& grid) {
          expect_equal(generate(*language_model(keys, grid), sampled(batch), grid), expected);
        });
      }
    }
  }
}

}  // namespace
}  // namespace shoal
