#include "models/text_generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/task.h"
#include "moe/routing/router.h"
#include "runtime/data/loader/data_order.h"
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

/// Routers that a causal model takes, with their keys.
const std::vector<std::string> kRouters{"top_k, k: 2",
                                        "noisy_top_k, k: 2",
                                        "hash, k: 1",
                                        "hash, k: 1, by: position",
                                        "sigmoid, k: 2",
                                        "sqrt_softplus, k: 2",
                                        "mlp, k: 2",
                                        "forced, k: 1",
                                        "importance_score, drop: 0"};

/// Windows of prompts, of which the last tokens are labelled, in a batch with padding.
Batch labelled_windows(const Prompts& windows, const Communicator& world) {
  const auto count = static_cast<int64_t>(windows.size());
  const SampleRange own = samples_of_rank({0, count}, 1, world.rank(), world.size());
  Batch batch;
  batch.context = some_step(own.count, false);
  batch.context.samples_per_group = 1;
  batch.context.samples_in_micro = count;
  batch.context.sample_b.zero_();
  batch.token_bS = torch::zeros({own.count, 6}, torch::kInt64);
  batch.token_label_bS = torch::full({own.count, 6}, kNoLabel, torch::kInt64);
  batch.length_b = torch::zeros({own.count}, torch::kInt64);
  for (int64_t b = 0; b < own.count; ++b) {
    const auto& window = windows[static_cast<size_t>(own.first + b)];
    const auto size = static_cast<int64_t>(window.size());
    batch.length_b[b] = size - 1;
    for (int64_t s = 0; s + 1 < size; ++s) {
      batch.token_bS[b][s] = window[static_cast<size_t>(s)];
      if (s > 0) batch.token_label_bS[b][s] = window[static_cast<size_t>(s + 1)];
    }
  }
  batch.context.token_bS = batch.token_bS;
  batch.context.length_b = batch.length_b;
  return batch;
}

TEST(LabelScores, AreLogProbabilitiesAndHitsOfTheForwardPass) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  const std::vector<int64_t> window{2, 9, 4, 1, 6};
  const torch::Tensor found =
      dynamic_cast<TextModel&>(*task).label_scores(labelled_windows({window}, *grid.world));
  Batch batch;
  batch.token_bS = torch::tensor(window).unsqueeze(0);
  batch.context = some_step(1, false);
  const torch::Tensor logprob_SV = torch::log_softmax(task->outputs(batch)[0], 1);
  double sum = 0.0, hits = 0.0;
  for (int64_t s = 1; s < 4; ++s) {
    const int64_t label = window[static_cast<size_t>(s + 1)];
    sum += logprob_SV[s][label].item<double>();
    hits += logprob_SV[s].argmax().item<int64_t>() == label ? 1.0 : 0.0;
  }
  EXPECT_NEAR(found[0][0].item<double>(), sum, 1e-12);
  EXPECT_EQ(found[0][1].item<double>(), hits);
}

TEST(LabelScores, OfEqualLogitsTheLowestIdIsAHit) {
  RankGrid grid = self_grid();
  const auto task = language_model("", grid);
  for (Parameter& parameter : parameters_of(*task)) parameter.tensor.detach().zero_();
  const torch::Tensor score_b2 = dynamic_cast<TextModel&>(*task).label_scores(
      labelled_windows({{1, 2, 0, 0}, {1, 2, 0, 3}, {1, 2, 4, 5}}, *grid.world));
  EXPECT_EQ(score_b2[0][1].item<double>(), 2.0);
  EXPECT_EQ(score_b2[1][1].item<double>(), 1.0);
  EXPECT_EQ(score_b2[2][1].item<double>(), 0.0);
  EXPECT_NEAR(score_b2[2][0].item<double>(), -2 * std::log(11.0), 1e-12);
}

TEST(LabelScores, CasesHaveEveryRouterThatIsCausal) {
  std::set<std::string> names{"expert_choice", "sinkhorn"};  // compare a token with later ones
  for (const std::string& router : kRouters) names.insert(router.substr(0, router.find(',')));
  std::set<std::string> registered;
  for (const std::string& name : members_of<Router>().names()) registered.insert(name);
  EXPECT_EQ(names, registered);
}

TEST(LabelScoresRanks, AreThoseOfASampleAloneForEveryRouter) {
  const Prompts windows{{3, 1, 5, 2}, {5, 2, 2}, {2, 9, 4, 1, 6, 0, 3}, {7, 7, 0, 1}, {10, 4, 4}};
  for (const std::string& router : kRouters) {
    SCOPED_TRACE(router);
    const std::string keys =
        ", moe: {router: {name: " + router + "}, experts: {count: 3, hidden: 5}}";
    const auto scores = [&](const Prompts& some, RankGrid& grid) {
      const auto task = language_model(keys, grid);
      return dynamic_cast<TextModel&>(*task).label_scores(labelled_windows(some, *grid.world));
    };
    RankGrid alone = self_grid();
    std::vector<torch::Tensor> each;
    for (const auto& window : windows) each.push_back(scores({window}, alone));
    const torch::Tensor expected_W2 = torch::cat(each);
    for (const int64_t ranks : {1, 2, 3}) {
      run_grid(ranks, 1, [&](RankGrid& grid) {
        const torch::Tensor found = scores(windows, grid);
        const SampleRange own = samples_of_rank({0, 5}, 1, grid.world->rank(), ranks);
        EXPECT_TRUE(torch::allclose(found, expected_W2.narrow(0, own.first, own.count), 0, 1e-10));
      });
    }
  }
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
