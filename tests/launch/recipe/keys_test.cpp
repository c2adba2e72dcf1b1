#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "launch/recipe/keys.h"
#include "models/backbone.h"
#include "models/task.h"
#include "moe/routing/router.h"
#include "runtime/data/data_source.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string printed_keys(const KeysArguments& arguments) {
  std::ostringstream out;
  EXPECT_EQ(keys(arguments, out), ExitCode::kOk);
  return out.str();
}

std::string refused_keys(const KeysArguments& arguments) {
  std::ostringstream out;
  try {
    keys(arguments, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return "";
}

std::ptrdiff_t occurrences(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Keys, OverviewFitsAScreen) {
  const std::string text = printed_keys({});
  EXPECT_LE(std::ranges::count(text, '\n'), 50);  // some of them are of this program's tests
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* part : {"model.backbone  ", "optimizer.name", "run  ", "router.name",
                           "shoal keys NAME", "shoal keys --all"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Keys, FitATerminal) {
  for (const int64_t columns : {60, 132}) {
    const auto limit = static_cast<std::size_t>(columns);
    for (const KeysArguments& arguments :
         {KeysArguments{.columns = columns}, KeysArguments{.name = "train", .columns = columns},
          KeysArguments{.backbone = "vit", .columns = columns}}) {
      std::istringstream lines(printed_keys(arguments));
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), limit) << line;
    }
  }
}

TEST(Keys, ContinueLinesOfTheOverviewBehindTheNames) {
  EXPECT_THAT(printed_keys({.columns = 40}), HasSubstr("\ncheckpoint      every, keep_last,\n"
                                                       "                keep_best\n"));
}

TEST(Keys, AreFoundByWhatOtherProgramsCallThem) {
  EXPECT_THAT(printed_keys({.name = "dim"}),
              AllOf(HasSubstr("unknown key 'dim'; "), HasSubstr("model.width   (backbone ")));
  EXPECT_THAT(printed_keys({.name = "num_experts"}), HasSubstr("model.moe.experts.count   ("));
  EXPECT_THAT(printed_keys({.name = "batch_size"}), HasSubstr("\ntrain.batch\n"));
  EXPECT_THAT(printed_keys({.name = "train.batch_size"}), HasSubstr("\ntrain.batch\n"));
  EXPECT_THAT(printed_keys({.name = "train.lr"}), HasSubstr("\noptimizer.lr   ("));
  EXPECT_THAT(printed_keys({.name = "lr"}), Not(HasSubstr("unknown key")));
}

TEST(Keys, AreFoundByAWordOfTheirNamesOrNearThem) {
  EXPECT_THAT(refused_keys({.name = "log"}),
              AllOf(HasSubstr("run.log_layers"), HasSubstr("train.log_every")));
  EXPECT_THAT(refused_keys({.name = "train.log"}), HasSubstr(": train.log_every"));
  EXPECT_THAT(refused_keys({.name = "schedul"}), HasSubstr(": schedule, task.momentum_schedule"));
  EXPECT_THAT(refused_keys({.name = "sinkh"}), HasSubstr(": sinkhorn"));
  EXPECT_THAT(refused_keys({.name = "wramup"}), HasSubstr("did you mean 'warmup'?"));
  EXPECT_THAT(refused_keys({.name = "color_jitter"}), HasSubstr("did you mean 'colour_jitter'?"));
}

TEST(Keys, OfAChoiceArePrintedAfterWhatItIs) {
  EXPECT_THAT(printed_keys({.name = "rigl"}),
              AllOf(StartsWith("rule.name: rigl\n    drops the smallest weights, "),
                    HasSubstr("\nrule.every: interval between mask updates (default 100step)\n")));
  EXPECT_EQ(occurrences(printed_keys({.name = "sinkhorn"}), "router.name: sinkhorn"), 1);
  EXPECT_THAT(printed_keys({.name = "constant"}), StartsWith("schedule.name: constant\n"));
  EXPECT_THAT(printed_keys({.name = "top_k"}),
              AllOf(StartsWith("router.name: top_k\n"), HasSubstr("\nrouter.k: ")));
  EXPECT_THAT(printed_keys({.name = "mlp"}),
              AllOf(HasSubstr("model.mlp"), HasSubstr("\nrouter.name: mlp\n")));
  EXPECT_THAT(printed_keys({.name = "gpt2"}),
              AllOf(HasSubstr("model.backbone: gpt2\n"), HasSubstr("tokenizer.name: gpt2\n")));
}

TEST(Keys, OfLossesAreOneGroupForAllModels) {
  EXPECT_EQ(occurrences(printed_keys({.name = "losses"}), "balance loss; required"), 1);
}

TEST(Keys, ThatSectionsShareAreDocumentedOnceWithAllOwners) {
  const std::string text = printed_keys({.name = "exchange.chunks"});
  EXPECT_EQ(occurrences(text, "default 1\n"), 1);
  EXPECT_THAT(text, HasSubstr("model.moe.exchange.chunks   (backbone convnext, gpt2, hspmn, "));
  EXPECT_THAT(text, HasSubstr("model.sparse.token_moe.exchange.chunks   (backbone sparse_mlp)\n"));
}

TEST(Keys, OfABackboneAreItsOwn) {
  const std::string text = printed_keys({.backbone = "vit"});
  EXPECT_LE(std::ranges::count(text, '\n'), 40);
  EXPECT_THAT(text, AllOf(HasSubstr("model.patch: side of a patch (default 16)\n"),
                          HasSubstr("model.moe: "), Not(HasSubstr("model.depths"))));
  const std::string part = printed_keys({.name = "model", .backbone = "mixer"});
  EXPECT_THAT(part, AllOf(HasSubstr("model.token_hidden   (backbone mixer)\n"),
                          Not(HasSubstr("sparse_mlp)")), Not(HasSubstr("model.moe"))));
}

TEST(Keys, OfARouterATaskOrASource) {
  EXPECT_THAT(printed_keys({.router = "importance_score"}),
              AllOf(HasSubstr("router.drop: "), Not(HasSubstr("router.factor"))));
  EXPECT_THAT(printed_keys({.task = "classify"}), HasSubstr("task.label_smoothing: "));
  EXPECT_THAT(printed_keys({.data = "text"}), HasSubstr("data.tokenizer"));
  const std::string both =
      printed_keys({.name = "model.moe.router.k", .backbone = "vit", .router = "mlp"});
  EXPECT_EQ(occurrences(both, "model.moe.router.k"), 1);
  EXPECT_THAT(both, HasSubstr("model.moe.router.k   (backbone vit; router mlp)"));
}

TEST(Keys, OfEveryMemberArePrinted) {
  for (const std::string& name : members_of<Backbone>().names()) printed_keys({.backbone = name});
  for (const std::string& name : members_of<Task>().names()) printed_keys({.task = name});
  for (const std::string& name : members_of<Router>().names()) printed_keys({.router = name});
  for (const std::string& name : members_of<DataSource>().names()) printed_keys({.data = name});
}

TEST(Keys, OfNoMemberAreRefusedWithTheNearest) {
  EXPECT_THAT(refused_keys({.backbone = "vot"}),
              HasSubstr("--backbone: unknown backbone 'vot'; did you mean 'vit'?"));
  EXPECT_THAT(refused_keys({.router = "topk"}), HasSubstr("did you mean 'top_k'?"));
  EXPECT_THAT(refused_keys({.name = "model.dense_blocks", .backbone = "vit"}),
              HasSubstr("unknown key"));
}

TEST(Keys, AllAreDocumentedOnRequest) {
  const std::string text = printed_keys({.all = true});
  EXPECT_THAT(text, AllOf(HasSubstr("run.name\n"), HasSubstr("parallel.expert_ranks\n")));
  EXPECT_GT(std::ranges::count(text, '\n'), 1000);
}

}  // namespace
}  // namespace shoal
