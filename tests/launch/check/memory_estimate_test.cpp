#include "launch/check/memory_estimate.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/device/tensor_memory.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Ne;

const std::vector<std::string> kRecipe{
    "data={source: shapes, image_size: 16, classes: 3}",
    "model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 32, moe: {router: "
    "{name: top_k, k: 2}, losses: [{name: importance, weight: 0.01}], experts: {count: 4, hidden: "
    "32}}, sparse_blocks: {from: 1, to: 1}}",
    "task={name: classify}", "train={duration: 1step, batch: 64}"};

CheckedRecipe check_small(const std::vector<std::string>& overrides, int64_t world = 1) {
  std::vector<std::string> all = kRecipe;
  all.insert(all.end(), overrides.begin(), overrides.end());
  return check_recipe({"", all, {}}, config::UnsetVariable::kKeep, world);
}

int64_t class_of(const MemoryEstimate& estimate, const std::string& name) {
  for (const auto& [known, bytes] : estimate.classes) {
    if (known == name) return bytes;
  }
  ADD_FAILURE() << "no class " << name;
  return 0;
}

int64_t class_of(const std::vector<std::string>& overrides, int64_t world, const char* name) {
  return class_of(estimate_memory(check_small(overrides, world), world), name);
}

TEST(MemoryEstimate, CountsWeightsGradientsAndState) {
  const int64_t parameters = check_small({}).counts.parameters;
  EXPECT_EQ(class_of({}, 1, "weights"), 4 * parameters);
  EXPECT_EQ(class_of({}, 1, "gradients"), 4 * parameters);
  EXPECT_NEAR(static_cast<double>(class_of({}, 1, "optimizer")), 8.0 * parameters,
              0.05 * 8 * parameters);
  EXPECT_EQ(class_of({"train.average={decay: 0.9}"}, 1, "averages"), 4 * parameters);
  EXPECT_EQ(class_of({"run.log_layers=1step"}, 1, "norms of layers"), 4 * parameters);
  EXPECT_EQ(class_of({"train.precision=float64"}, 1, "weights"), 8 * parameters);
}

TEST(MemoryEstimate, SharesExpertsAndShardedStateAmongRanks) {
  const std::vector<std::string> shared{"parallel.expert_ranks=2"};
  const int64_t experts = 4 * (16 * 32 + 32 + 32 * 16 + 16);
  EXPECT_EQ(class_of({}, 1, "weights") - class_of(shared, 2, "weights"), 4 * experts / 2);
  const std::vector<std::string> sharded{"parallel.shard_optimizer=true"};
  EXPECT_NEAR(static_cast<double>(class_of(sharded, 4, "optimizer")),
              static_cast<double>(class_of({}, 4, "optimizer")) / 4, 8);
}

TEST(MemoryEstimate, IsOfTheRankWithTheMostSamples) {
  EXPECT_EQ(estimate_memory(check_small({}), 1).samples, 64);
  EXPECT_EQ(estimate_memory(check_small({}, 3), 3).samples, 24) << "of 8 groups one rank has 3";
  EXPECT_EQ(estimate_memory(check_small({"train.accumulate=2"}), 1).samples, 32);
}

TEST(MemoryEstimate, HasNoGradientsOfWhatIsFrozen) {
  const std::vector<std::string> frozen{"optimizer.rules=[{match: 'backbone.*', freeze: true}]"};
  EXPECT_EQ(class_of(frozen, 1, "gradients"), 4 * (16 * 3 + 3));
  const std::vector<std::string> buffer{
      "model.moe.router={name: sigmoid, k: 2, bias: {rate: 0.1}}",
      "optimizer.rules=[{match: '*.selection_bias', freeze: true}]"};
  EXPECT_EQ(class_of(buffer, 1, "gradients"), 4 * check_small(buffer).counts.parameters);
}

TEST(MemoryEstimate, HasTheKeyEncoderTwice) {
  const std::vector<std::string> moco{"task={name: moco_v3, hidden: 8, out: 4}"};
  const int64_t trained = class_of(moco, 1, "gradients");
  const int64_t keys = 4 * check_small(moco).counts.parameters - trained;
  EXPECT_GT(keys, 0);
  EXPECT_EQ(class_of(moco, 1, "weights"), trained + 2 * keys);
}

TEST(MemoryEstimate, OfAGpuLeavesTheHostsMemoryOut) {
  MemoryEstimate estimate = estimate_memory(check_small({}), 1);
  const int64_t weights = class_of(estimate, "weights");
  EXPECT_GT(class_of(estimate, "batches"), 0);
  estimate.classes.emplace_back("process", 1 << 20);
  keep_device_classes(estimate);
  EXPECT_EQ(class_of(estimate, "weights"), weights);
  for (const auto& [name, bytes] : estimate.classes) {
    EXPECT_THAT(name, AllOf(Ne("batches"), Ne("checkpoint"), Ne("process")));
  }
}

TEST(MemoryEstimate, HasTextFilesInNoSum) {
  const testing::ScratchFolder scratch;
  testing::write_file(scratch.file("a.txt"), std::string(1 << 20, 'a'));
  testing::write_file(scratch.file("b.txt"), std::string(100, 'b'));
  const CheckedRecipe recipe = check_recipe(
      {"",
       {"data={source: text, path: " + scratch.path() +
            ", sequence: 8, tokenizer: {name: bytes}, train: {files: [a.txt]}, valid: {files: "
            "[b.txt]}}",
        "model={backbone: gpt2, width: 8, depth: 1, heads: 2}", "task={name: lm}",
        "train={duration: 1step, batch: 8}"},
       {}},
      config::UnsetVariable::kKeep, 1);
  const MemoryEstimate estimate = estimate_memory(recipe, 2);
  EXPECT_GE(estimate.page_cache_bytes, 1 << 20);
  EXPECT_LT(estimate.total(), 1 << 20);
  EXPECT_THAT(to_text(estimate, 2), HasSubstr("page cache of text files"));
}

class MeasuredActivations : public ::testing::Test {
 protected:
  MeasuredActivations() {
    recycle_tensor_memory();
    at::set_num_threads(1);  // two wait for each other where other programs run
  }
  static MemoryEstimate measured(const std::vector<std::string>& overrides) {
    const CheckedRecipe recipe = check_small(overrides);
    MemoryEstimate estimate = estimate_memory(recipe, 1);
    measure_activations(recipe, 1, int64_t{1} << 40, estimate);
    EXPECT_EQ(estimate.not_measured, "");
    return estimate;
  }
};

TEST_F(MeasuredActivations, GrowWithTheSamples) {
  const MemoryEstimate small = measured({"train.batch=64"}), large = measured({"train.batch=512"});
  const auto per_sample = [](const MemoryEstimate& estimate) {
    return static_cast<double>(class_of(estimate, "activations")) /
           static_cast<double>(estimate.samples);
  };
  EXPECT_GT(per_sample(small), 17 * 16 * 4) << "its tokens alone";
  EXPECT_NEAR(per_sample(large) / per_sample(small), 1.0, 0.5);
}

TEST_F(MeasuredActivations, AreFewerWhereBlocksRunAgain) {
  const auto activations = [](const std::string& recompute) {
    return class_of(measured({"train.batch=512", "model.depth=6",
                              "model.sparse_blocks={from: 5, to: 5}", recompute}),
                    "activations");
  };
  EXPECT_LT(activations("train.recompute=true"), 0.8 * activations("train.recompute=false"));
}

TEST_F(MeasuredActivations, AreBelowTheirBound) {
  const CheckedRecipe recipe = check_small({"train.batch=512"});
  EXPECT_LT(class_of(measured({"train.batch=512"}), "activations"),
            most_activations(recipe, estimate_memory(recipe, 1)).value());
}

TEST_F(MeasuredActivations, ArePassedOverWhereATrialDoesNotFit) {
  const CheckedRecipe recipe = check_small({});
  MemoryEstimate estimate = estimate_memory(recipe, 1);
  measure_activations(recipe, 1, 1000, estimate);
  EXPECT_FALSE(estimate.has_activations);
  EXPECT_THAT(estimate.not_measured, HasSubstr("a trial with all experts takes"));
  EXPECT_THAT(to_text(estimate, 1), HasSubstr("sum without activations"));
}

TEST_F(MeasuredActivations, DecideWhatFits) {
  const CheckedRecipe recipe = check_small({"train.batch=1024"});
  std::vector<std::string> told;
  const auto refusal_of = [&](int64_t available) {
    return memory_refusal(recipe, 1, {}, available,
                          [&told](const std::string& line) { told.push_back(line); });
  };
  EXPECT_EQ(refusal_of(int64_t{1} << 40), "");
  EXPECT_THAT(told, ElementsAre()) << "no trial is needed";
  const MemoryEstimate estimate = measured({"train.batch=1024"});
  const int64_t state = estimate_memory(recipe, 1).total();
  const std::string refusal = refusal_of(state + class_of(estimate, "activations") / 2);
  EXPECT_THAT(told, ElementsAre(HasSubstr("measuring activations")));
  EXPECT_THAT(refusal, HasSubstr("train.batch: a rank would take about"));
  EXPECT_THAT(refusal, HasSubstr("1024 samples in a micro-batch"));
  EXPECT_THAT(memory_hint(recipe, estimate, estimate.total() + 1, 1),
              HasSubstr("train.batch 1024 or less fits"));
  EXPECT_THAT(memory_hint(recipe, estimate, 1000, 1), HasSubstr("no train.batch fits"));
}

TEST_F(MeasuredActivations, ThatAreNotMeasuredAreSaid) {
  const CheckedRecipe recipe = check_small({"train.batch=4096"});
  std::vector<std::string> told;
  const int64_t state = estimate_memory(recipe, 1).total();
  memory_refusal(recipe, 1, {}, 1000, [&told](const std::string& line) { told.push_back(line); });
  EXPECT_GT(state, 1000);
  EXPECT_THAT(told, ElementsAre(HasSubstr("measuring activations"),
                                HasSubstr("not estimated: a trial with all experts takes")));
}

}  // namespace
}  // namespace shoal
