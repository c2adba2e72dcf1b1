#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/check/topology.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

constexpr const char* kGood =
    "run: {name: tiny}\n"
    "data: {source: shapes, image_size: 8, classes: 3}\n"
    "model:\n"
    "  backbone: sparse_mlp\n"
    "  patch: 4\n"
    "  width: 8\n"
    "  dense_blocks: 1\n"
    "  sparse_blocks: 1\n"
    "  sparse:\n"
    "    token_moe: {router: {name: top_k, k: 1}, experts: {count: 4, hidden: 6}}\n"
    "    channel_moe: {router: {name: top_k, k: 2}, experts: {count: 4, hidden: 6}}\n"
    "task: {name: classify}\n"
    "optimizer: {name: adamw, lr: 1e-3}\n"
    "schedule: {name: cosine}\n"
    "train: {duration: 10ep, batch: 16}\n"
    "evaluate: {every: 1ep}\n"
    "checkpoint: {every: 1ep}\n"
    "parallel: {expert_ranks: 2}\n";

using Edits = std::vector<std::pair<std::string, std::string>>;

/// The good recipe with texts replaced, and every line that it must be refused with, in order and
/// without the folder of the file.
struct Case {
  const char* name;
  Edits edits;
  std::vector<std::string> overrides;
  std::vector<std::string> lines;
  int64_t world = 2;
  ExitCode code = ExitCode::kRecipe;
};

const std::vector<Case>& combined_cases() {
  static const std::vector<Case> cases{
      {"ASectionTheModelTheBatchAndTheRanks",
       {{"{name: tiny}", "{nmae: tiny}"}, {"k: 2", "k: 5"}, {"batch: 16", "batch: 20"}},
       {},
       {"r.yaml:1:7: run.nmae: unknown key; did you mean 'name'?",
        "r.yaml:11:44: model.sparse.channel_moe.router.k: 5 units per token, but there are only 4",
        "r.yaml:15:32: train.batch: batch / accumulate = 20 / 1 = 20 samples are not whole routing "
        "groups of 8 (train.group); try batch 16 or 24",
        "r.yaml:18:26: parallel.expert_ranks: world = expert_ranks x replicas, but 3 / 2 = 1.5; "
        "divisors of 3: 1, 3"},
       3},
      {"WhatOnlyBuildingTheModelTells",
       {{"patch: 4", "patch: 5"}, {"batch: 16", "batch: 20"}, {"1e-3}", "1e-3, no_decay: [heat]}"}},
       {},
       {"r.yaml:5:10: model.patch: 5 does not divide images of 8 x 8 pixels",
        "r.yaml:15:32: train.batch: batch / accumulate = 20 / 1 = 20 samples are not whole routing "
        "groups of 8 (train.group); try batch 16 or 24"}},
      {"OptimizerDurationsAndRanks",
       {{"1e-3}", "1e-3, no_decay: [heat]}"},
        {"10ep, batch: 16", "2Btok, batch: 4"},
        {"{every: 1ep}", "{every: 9tok}"}},
       {},
       {"r.yaml:13:46: optimizer.no_decay: no parameter's name contains 'heat'",
        "r.yaml:15:19: train.duration: 2Btok cannot be counted in steps: the data has no tokens",
        "r.yaml:15:33: train.batch: batch / accumulate = 4 / 1 = 4 samples are not whole routing "
        "groups of 8 (train.group); try batch 8",
        "r.yaml:16:19: evaluate.every: 9tok cannot be counted in steps: the data has no tokens",
        "r.yaml:18:26: parallel.expert_ranks: world = expert_ranks x replicas, but 5 / 2 = 2.5; "
        "valid expert_ranks for 5 ranks: 1; or start 4 or 6 ranks"},
       5},
      {"DataThatIsTrainedOnAndTheModel",
       {{"shapes, image_size: 8, classes: 3", "cifar, valid: {files: [data_batch_1.bin]}"},
        {"patch: 4", "patch: 5"}},
       {},
       {"r.yaml:2:38: data.valid.files: cifar-10-batches-bin/data_batch_1.bin is trained on as "
        "well; set train.files without it",
        "r.yaml:5:10: model.patch: 5 does not divide images of 32 x 32 pixels"}},
      {"NormalisationAndSchedule",
       {{"classes: 3", "classes: 3, normalise: {mean: [0.5]}"}, {"cosine", "cosine, warmup: 1tok"}},
       {},
       {"r.yaml:2:69: data.normalise.mean: 1 value for images of 3 channels",
        "r.yaml:14:1: schedule: 1tok cannot be counted in steps: the data has no tokens"}},
      {"RulesOfOneSectionBesideATypoInAnother",
       {{"tiny", "../tiny"}, {"batch: 16", "batch: 16, acumulate: 2"}},
       {},
       {"r.yaml:1:13: run.name: '../tiny' does not name a folder below run.root; leave out '.', "
        "'..' and slashes at either end, and put other places into run.root",
        "r.yaml:15:36: train.acumulate: unknown key; did you mean 'accumulate'?"}},
      {"FileAndCommandLine",
       {{"patch: 4", "patch: 5"}},
       {"train.batch=20", "train.clip=1", "checkpoint.every=2tok"},
       {"r.yaml:5:10: model.patch: 5 does not divide images of 8 x 8 pixels",
        "command line: train.clip=1: unknown key; did you mean 'clip_norm'?",
        "command line: checkpoint.every=2tok: 2tok cannot be counted in steps: the data has no "
        "tokens"}},
  };
  return cases;
}

const std::vector<Case>& rule_cases() {
  static const std::vector<Case> cases{
      {"ParameterRules",
       {{"1e-3}", "1e-3, rules: [{match: '*', lr_scale: 2}, {match: heat, freeze: true}]}"}},
       {},
       {"r.yaml:13:79: optimizer.rules[1].match: no parameter's name fits 'heat'; all units of a "
        "stack have one, with * for the id"}},
      {"AParameterRuleThatSetsNothing",
       {{"1e-3}", "1e-3, rules: [{match: '*'}]}"}},
       {},
       {"r.yaml:13:44: optimizer.rules[0]: sets nothing; expected lr_scale, weight_decay or "
        "freeze"}},
  };
  return cases;
}

/// What a missing or wrong data.source is told.
const std::string kSources =
    "one of: cifar, image_folder, listops, lra_retrieval, lra_text, mixed_complexity, mqar, "
    "pathfinder, pixels, "
    "shapes, tar_shards, text, waves";

/// Each must come alone: what it spoils would be refused for reasons that are none.
const std::vector<Case>& lone_cases() {
  static const std::vector<Case> cases{
      {"TypoInTheData",  // of images of 32 pixels a patch of 9 is none
       {{"image_size: 8", "image_siez: 9"}, {"patch: 4", "patch: 9"}},
       {},
       {"r.yaml:2:24: data.image_siez: unknown key; did you mean 'image_size'?"}},
      {"TypoInTheModel",  // of an odd default width
       {{"width: 8", "widht: 8"}, {"1e-3}", "1e-3, no_decay: [heat]}"}},
       {},
       {"r.yaml:6:3: model.widht: unknown key; did you mean 'width'?"}},
      {"TypoInTheTask",
       {{"classify}", "classify, label_smooth: 1}"}, {"patch: 4", "patch: 5"}},
       {},
       {"r.yaml:12:24: task.label_smooth: unknown key; did you mean 'label_smoothing'?"}},
      {"UnknownSource",
       {{"shapes", "shaeps"}, {"10ep", "2Btok"}, {"patch: 4", "patch: 5"}},
       {},
       {"r.yaml:2:16: data.source: unknown data source 'shaeps'; " + kSources +
        "; did you mean 'shapes'?"}},
      {"TypoInTheTopLevel",
       {{"parallel:", "paralel:"}, {"patch: 4", "patch: 5"}, {"10ep", "2Btok"}},
       {},
       {"r.yaml:18:1: paralel: unknown key; did you mean 'parallel'?"},
       3},
      {"NoOverride",
       {{"patch: 4", "patch: 5"}},
       {"parallel.expert_ranks"},
       {"command line: parallel.expert_ranks: is not an override; write key=value or ~key"},
       3},
      {"NoRanks",
       {{"expert_ranks: 2", "expert_ranks: 0"}},
       {},
       {"r.yaml:18:26: parallel.expert_ranks: must be at least 1, found '0'"}},
      {"MissingBatch",
       {{", batch: 16", ""}},
       {},
       {"r.yaml:15:1: train.batch: required key is missing (samples per optimizer step, over all "
        "ranks)"}},
      {"NotASection",
       {{"{duration: 10ep, batch: 16}", "10ep"}},
       {},
       {"r.yaml:15:8: train: expected a mapping of keys, found '10ep'"}},
      {"UnknownOptimizer",
       {{"adamw", "adam"}},
       {},
       {"r.yaml:13:19: optimizer.name: unknown optimizer 'adam'; one of: adamw, lamb, sgd; "
        "did you mean 'adamw'?"}},
      {"BrokenReference",
       {{"batch: 16", "batch: \"${run.bach}\""}},
       {},
       {"r.yaml:15:32: train.batch: this recipe does not set 'run.bach'"}},
      {"UnsetVariable",
       {{"shapes, image_size: 8, classes: 3", "cifar, path: \"${env:NOWHERE}\""},
        {"patch: 4", "patch: 5"}},
       {},
       {"r.yaml:2:29: data.path: needs an environment variable that is not set: "
        "'${env:NOWHERE}'"}},
  };
  return cases;
}

const std::vector<Case>& training_cases() {
  static const std::vector<Case> cases{
      {"MicroStepsOfALossThatComparesSamples",
       {{"classify}", "moco_v3}"}, {"batch: 16", "batch: 16, accumulate: 2"}},
       {},
       {"r.yaml:15:48: train.accumulate: the loss of task moco_v3 compares all samples of a step "
        "with each other, those of 2 micro-steps would not be; set 1"}},
      {"ABatchOfOneComparesNothing",
       {{"classify}", "moco_v3}"}, {"batch: 16", "batch: 1, group: 1"}},
       {},
       {"r.yaml:15:32: train.batch: the loss of task moco_v3 compares the samples of a step with "
        "each other, and there is 1; raise it"}},
      {"MixWithinGroupsOfOne",
       {{"classify}", "classify, mix: {cutmix: 1}}"}, {"batch: 16", "batch: 16, group: 1"}},
       {},
       {"r.yaml:12:24: task.mix: images are mixed within routing groups, and train.group is 1; "
        "raise it"}},
      {"SoftUntilBehindTheEnd",
       {{"parallel:",
         "sparsity: {pattern: {name: diagonal}, density: 0.5, layers: [channel_mlp], rule: "
         "{name: soft_top_k, until: 11ep}}\nparallel:"}},
       {},
       {"r.yaml:18:108: sparsity.rule.until: lies behind the end of the training, layers would "
        "stay soft"}},
  };
  return cases;
}

const std::vector<Case>& topology_cases() {
  static const std::vector<Case> cases{
      {"NoGrid",
       {},
       {},
       {"r.yaml:18:26: parallel.expert_ranks: world = expert_ranks x replicas, but 3 / 2 = 1.5; "
        "valid expert_ranks for 3 ranks: 1; or start 2 or 4 ranks"},
       3,
       ExitCode::kTopology},
      {"UnevenUnits",
       {{"expert_ranks: 2", "expert_ranks: 3"}},
       {},
       {"r.yaml:18:26: parallel.expert_ranks: the units of blocks.1.moe_s, blocks.1.moe_c do not "
        "divide evenly: 4 / 3 = 1.333; valid expert_ranks for 3 ranks: 1; or "
        "parallel.uneven=true"},
       3,
       ExitCode::kTopology},
      {"OneRank",
       {},
       {},
       {"r.yaml:18:26: parallel.expert_ranks: world = expert_ranks x replicas, but 1 / 2 = 0.5; "
        "valid expert_ranks for 1 rank: 1; or start 2 ranks"},
       1,
       ExitCode::kTopology},
  };
  return cases;
}

/// What routers, losses and units refuse.
const std::vector<Case>& moe_cases() {
  static const std::vector<Case> cases{
      {"GroupsThatDoNotDivide",
       {{"k: 2}", "k: 2, groups: {count: 3}}"}},
       {},
       {"r.yaml:11:63: model.sparse.channel_moe.router.groups.count: 4 units cannot be cut into 3 "
        "equal groups"}},
      {"GroupsThatHoldTooFew",
       {{"k: 2}", "k: 3, groups: {count: 2, keep: 1}}"}},
       {},
       {"r.yaml:11:72: model.sparse.channel_moe.router.groups.keep: a token is routed to 3 units, "
        "but 1 "
        "of 2 groups hold only 2; raise keep or lower k"}},
      {"OneUnitOfWeightOne",
       {{"k: 1}", "k: 1, weights: {normalise: topk_softmax}}"}},
       {},
       {"r.yaml:10:66: model.sparse.token_moe.router.weights.normalise: topk_softmax makes every "
        "weight 1 when k is 1, and the router learns nothing; use none"}},
      {"ALossForARouterWithoutScores",
       {{"top_k, k: 2}", "hash, k: 2}, losses: [{name: switch}]"}},
       {},
       {"r.yaml:11:56: model.sparse.channel_moe.losses[0]: the hash router decides by other means "
        "than each token's scores, a balance loss cannot move it; leave losses out"}},
      {"ALossTwice",
       {{"k: 2}", "k: 2}, losses: [{name: z}, {name: switch}, {name: z, weight: 1}]"}},
       {},
       {"r.yaml:11:84: model.sparse.channel_moe.losses[2]: is losses[0] again; give that one the "
        "sum of both weights"}},
      {"OneUnitOfWeightOneAfterDrops",
       {{"k: 1}", "k: 1, weights: {normalise: sum, renorm_after_drop: true}}"}},
       {},
       {"r.yaml:10:66: model.sparse.token_moe.router.weights.normalise: sum makes every weight 1 "
        "when k is 1, and the router learns nothing; use none",
        "r.yaml:10:90: model.sparse.token_moe.router.weights.renorm_after_drop: true makes every "
        "weight 1 when k is 1, and the router learns nothing; use false"}},
      {"CapacityWhereUnitsChoose",
       {{"top_k, k: 2}", "expert_choice, k: 2}, capacity: {mode: capped}"}},
       {},
       {"r.yaml:11:73: model.sparse.channel_moe.capacity.mode: with the expert_choice router every "
        "unit takes a fixed number of tokens, see router.factor; leave capacity out"}},
      {"AReplayWithoutItsFile",
       {{"top_k, k: 2}", "forced, k: 2, load: replay}"}},
       {},
       {"r.yaml:11:19: model.sparse.channel_moe.router.file: must name the experts.jsonl of a run "
        "where load is replay"}},
  };
  return cases;
}

/// Rooms and units that are too few, or too many.
const std::vector<Case>& moe_size_cases() {
  static const std::vector<Case> cases{
      {"NoCapacity",
       {{"k: 2}", "k: 2}, capacity: {mode: capped, factor: 0}"}},
       {},
       {"r.yaml:11:81: model.sparse.channel_moe.capacity.factor: must be above 0 and at most "
        "65536, found '0'"}},
      {"CapacitiesThatNoMemoryHolds",
       {{"k: 2}",
         "k: 2}, capacity: {mode: padded, factor: 1e300, min: 4611686018427387904, align: "
         "4611686018427387904}"}},
       {},
       {"r.yaml:11:81: model.sparse.channel_moe.capacity.factor: must be above 0 and at most "
        "65536, found '1e300'",
        "r.yaml:11:93: model.sparse.channel_moe.capacity.min: must be at least 0 and at most "
        "1048576, found '4611686018427387904'",
        "r.yaml:11:121: model.sparse.channel_moe.capacity.align: must be at least 1 and at most "
        "1048576, found '4611686018427387904'"}},
      {"MoreRanksThanUnits",
       {{"expert_ranks: 2", "expert_ranks: 8, uneven: true"}},
       {},
       {"r.yaml:18:26: parallel.expert_ranks: 4 units of blocks.1.moe_s, blocks.1.moe_c cannot be "
        "spread over 8 expert ranks, some would hold none; valid expert_ranks for 8 ranks: 1, 2, "
        "4"},
       8,
       ExitCode::kTopology},
      {"MoreRanksThanUnitsOfANexusLayer",
       {{"expert_ranks: 2", "expert_ranks: 8, uneven: true"}},
       {"model={backbone: vit, patch: 4, width: 8, depth: 2, heads: 2, hidden: 12, nexus: "
        "{experts: {count: 2}, memory: {count: 1, keys: 4, k: 2}, slots: 1}}"},
       {"r.yaml:18:26: parallel.expert_ranks: 3 units of blocks.1.nexus cannot be spread over 8 "
        "expert ranks, some would hold none; valid expert_ranks for 8 ranks: 1, 2"},
       8,
       ExitCode::kTopology},
  };
  return cases;
}

/// What exchanges between ranks refuse.
const std::vector<Case>& exchange_cases() {
  static const std::vector<Case> cases{
      {"ChunksWithoutTokens",
       {{"k: 2}", "k: 2}, exchange: {chunks: 3}"}},
       {},
       {"r.yaml:15:32: train.batch: blocks.1.moe_c cuts its tokens into exchange.chunks = 3 parts "
        "of whole routing groups, but of the 2 groups of 8 samples in a micro-step a rank of 2 may "
        "have only 1; lower chunks or train.group, or raise train.batch"},
       2,
       ExitCode::kTopology},
      {"ChunksOnRanksWithoutTokens",
       {{"k: 2}", "k: 2}, exchange: {chunks: 3}"}},
       {},
       {"r.yaml:15:32: train.batch: blocks.1.moe_c cuts its tokens into exchange.chunks = 3 parts "
        "of whole routing groups, but of the 2 groups of 8 samples in a micro-step a rank of 4 may "
        "have none; set chunks to 1, lower train.group, or raise train.batch"},
       4,
       ExitCode::kTopology},
      {"TooManyChunks",
       {{"k: 2}", "k: 2}, exchange: {chunks: 5}"}},
       {},
       {"r.yaml:11:67: model.sparse.channel_moe.exchange.chunks: must be at least 1 and at most 4, "
        "found '5'"}},
      {"UnknownPayload",
       {{"k: 2}", "k: 2}, exchange: {payload: fp8}"}},
       {},
       {"r.yaml:11:68: model.sparse.channel_moe.exchange.payload: expected one of: same, bfloat16, "
        "found 'fp8'"}},
      {"NodesThatDoNotDivideTheWorld",
       {{"expert_ranks: 2", "expert_ranks: 2, ranks_per_node: 3"}},
       {},
       {"r.yaml:18:45: parallel.ranks_per_node: nodes of equal size are needed, but 4 / 3 = 1.333; "
        "divisors of 4: 1, 2, 4"},
       4,
       ExitCode::kTopology},
      {"ExpertGroupsInUnequalPartsOfNodes",
       {{"expert_ranks: 2", "expert_ranks: 2, ranks_per_node: 3"}},
       {},
       {"r.yaml:18:45: parallel.ranks_per_node: 2 expert ranks would have unequal parts on nodes "
        "of 3; one must divide the other"},
       6,
       ExitCode::kTopology},
  };
  return cases;
}

class BadRecipes : public ::testing::Test {
 protected:
  /// Checks the recipe as `train` does.
  CheckedRecipe check(const Edits& edits, const std::vector<std::string>& overrides,
                      std::optional<int64_t> world) const {
    std::string text = kGood;
    for (const auto& [from, to] : edits) {
      const size_t place = text.find(from);
      EXPECT_NE(place, std::string::npos) << from;
      text.replace(place, from.size(), to);
    }
    const std::string path = scratch_.file("r.yaml");
    testing::write_file(path, text);
    return check_recipe({path, overrides, {}}, config::UnsetVariable::kRefuse, world);
  }

  void expect_refused(const std::vector<Case>& cases) const {
    for (const Case& bad : cases) {
      SCOPED_TRACE(bad.name);
      try {
        check(bad.edits, bad.overrides, bad.world);
        ADD_FAILURE() << "was accepted";
      } catch (const ConfigError& error) {
        std::vector<std::string> lines = error.lines();
        for (std::string& line : lines) {
          if (line.starts_with(scratch_.path())) line.erase(0, scratch_.path().size() + 1);
        }
        EXPECT_EQ(lines, bad.lines);
        EXPECT_EQ(error.code(), bad.code);
      }
    }
  }

 private:
  testing::ScratchFolder scratch_;
};

TEST_F(BadRecipes, AreRefusedWithAllMistakesAtOnceInTheOrderOfTheFile) {
  expect_refused(combined_cases());
}

TEST_F(BadRecipes, NameTheParameterRuleThatMatchesOrSetsNothing) { expect_refused(rule_cases()); }

TEST_F(BadRecipes, AreNotRefusedForWhatAMistakeOnlySeemsToCause) { expect_refused(lone_cases()); }

TEST_F(BadRecipes, AreRefusedForWhatTrainingCouldNotDo) { expect_refused(training_cases()); }

TEST_F(BadRecipes, ExitWithTheCodeOfTheTopologyIfNothingElseIsWrong) {
  expect_refused(topology_cases());
}

TEST_F(BadRecipes, AreRefusedForWhatRoutersLossesAndUnitsCannotDo) {
  expect_refused(moe_cases());
  expect_refused(moe_size_cases());
}

TEST_F(BadRecipes, AreRefusedForExchangesThatRanksOrTokensDoNotAllow) {
  expect_refused(exchange_cases());
}

TEST_F(BadRecipes, WithATypoInTheKeyOfAMember) {
  expect_refused({{"Source",
                   {{"{source:", "{sorce:"}},
                   {},
                   {"r.yaml:2:1: data.source: required key is missing; " + kSources,
                    "r.yaml:2:8: data.sorce: unknown key; did you mean 'source'?"}}});
}

TEST_F(BadRecipes, WithProbabilitiesOfViewsThatTheTaskHasNot) {
  expect_refused({{"Views",
                   {{"classes: 3",
                     "classes: 3, augment: {transforms: [{name: blur, probability: {views: [1, "
                     "0.1]}}]}"}},
                   {},
                   {"r.yaml:2:108: data.augment.transforms[0].probability.views: 2 numbers for 1 "
                    "view of a training image"}}});
}

TEST_F(BadRecipes, WithAWrongDurationAndAScheduleInPercentOfIt) {
  expect_refused(
      {{"Duration",
        {{"10ep", "10steps"}, {"cosine", "cosine, warmup: 5%"}},
        {},
        {"r.yaml:15:19: train.duration: expected a duration, found '10steps', which has no "
         "unit that is known (step, ep, tok, s, min, h or d); did you mean '10step'?"}}});
}

TEST_F(BadRecipes, AreToldOfDurationsThoughTheirDataHaveAMistake) {
  expect_refused({
      {"DataAndDurations",
       {{"image_size: 8", "image_siez: 9"}},
       {"checkpoint.every=2tok", "run.threads=none", "train.duration=1000000000step",
        "evaluate.every=1000000000000000%"},
       {"r.yaml:2:24: data.image_siez: unknown key; did you mean 'image_size'?",
        "command line: run.threads=none: expected an integer, found 'none'; or did you mean "
        "'auto'?",
        "command line: evaluate.every=1000000000000000%: 1000000000000000% is too many steps"}},
  });
}

TEST_F(BadRecipes, AreNotGoodOnes) {
  const CheckedRecipe checked = check({}, {}, 4);
  EXPECT_EQ(checked.counts.stages.size(), 2u);
  EXPECT_GT(checked.counts.parameters, 0);
  EXPECT_NO_THROW(check_topology(checked.loaded, checked.counts.stages, 2));
  EXPECT_THROW(check_topology(checked.loaded, checked.counts.stages, 3), ConfigError);
  // Of how many nodes the world will be, or how many steps ten epochs are, is not known yet.
  EXPECT_NO_THROW(check({}, {"parallel.ranks_per_node=8"}, std::nullopt));
  EXPECT_NO_THROW(check({},
                        {"sparsity.rule={name: soft_top_k, until: 100step}",
                         "sparsity.pattern.name=diagonal", "sparsity.layers=[channel_mlp]"},
                        4));
}

}  // namespace
}  // namespace shoal
