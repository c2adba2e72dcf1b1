#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"
#include "tests/runtime/data/source_of.h"
#include "tests/support/less_memory.h"

// b samples on this rank  S tokens
namespace shoal {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

/// Samples that a function makes.
class MadeSamples : public SampleSet {
 public:
  using Make = std::function<Sample(int64_t index)>;
  explicit MadeSamples(Make make, int64_t size = 4) : make_(std::move(make)), size_(size) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override { return make_(index); }

 private:
  Make make_;
  int64_t size_;
};

LoaderSettings token_settings() {
  LoaderSettings how;
  how.cut = {4, 1, 1};
  how.shape = {.source = "made",
               .sequence = 5,
               .vocabulary = 10,
               .token_labels = 2,
               .has_lengths = true,
               .classes = 4};
  return how;
}

/// 2 tokens or more, the first and the last of them labelled.
Sample short_sample(int64_t index) {
  Sample sample;
  sample.token_S.assign(static_cast<size_t>(index + 2), index + 1);
  sample.token_label_S.assign(sample.token_S.size(), kNoLabel);
  sample.token_label_S.front() = 9;
  sample.token_label_S.back() = index;
  sample.label = index;
  return sample;
}

TEST(TokenLoader, PadsSamplesAtTheirEndsAndTellsTheirLengths) {
  const MadeSamples samples(short_sample);
  EvalLoader loader(samples, token_settings());
  const Batch batch = *loader.next();
  const torch::Tensor token = torch::tensor(
      {{1, 1, 0, 0, 0}, {2, 2, 2, 0, 0}, {3, 3, 3, 3, 0}, {4, 4, 4, 4, 4}}, torch::kInt64);
  const int64_t no = kNoLabel;
  const torch::Tensor label = torch::tensor(
      {{9L, 0L, no, no, no}, {9L, no, 1L, no, no}, {9L, no, no, 2L, no}, {9L, no, no, no, 3L}},
      torch::kInt64);
  EXPECT_TRUE(at::equal(batch.token_bS, token));
  EXPECT_TRUE(at::equal(batch.token_label_bS, label));
  EXPECT_TRUE(at::equal(batch.length_b, torch::tensor({2, 3, 4, 5}, torch::kInt64)));
  EXPECT_TRUE(at::equal(batch.label_b, torch::tensor({0, 1, 2, 3}, torch::kInt64)));
}

TEST(TokenLoader, PadsToTheLongestSampleOfTheRanksMicroBatch) {
  const MadeSamples samples(short_sample, 5);
  for (int64_t rank = 0; rank < 2; ++rank) {
    LoaderSettings how = token_settings();
    how.shape.sequence = 9;
    how.shape.classes = 5;
    how.rank = rank;
    how.world = 2;
    EvalLoader loader(samples, how);
    const Batch first = *loader.next();  // of 2 and 3 tokens, and of 4 and 5
    const int64_t longest = rank == 0 ? 3 : 5;
    EXPECT_EQ(first.token_bS.sizes(), (at::IntArrayRef{2, longest}));
    EXPECT_EQ(first.token_label_bS.sizes(), (at::IntArrayRef{2, longest}));
    EXPECT_TRUE(first.token_bS.is_contiguous());
    EXPECT_TRUE(first.context.token_bS.is_same(first.token_bS));
    EXPECT_TRUE(first.context.length_b.is_same(first.length_b));
    EXPECT_EQ(first.length_b.max().item<int64_t>(), longest);
    const Batch last = *loader.next();  // one sample on all ranks
    EXPECT_EQ(last.token_bS.sizes(), rank == 0 ? (at::IntArrayRef{0, 1}) : (at::IntArrayRef{1, 6}));
  }
}

TEST(TokenLoader, KnowsNoLengthsWhereAllSamplesHaveOne) {
  const MadeSamples samples([](int64_t) {
    Sample sample = short_sample(3);
    return sample;
  });
  LoaderSettings how = token_settings();
  how.shape.has_lengths = false;
  EvalLoader loader(samples, how);
  EXPECT_FALSE(loader.next()->length_b.defined());
}

/// What the loader refuses of samples that this changes; "nothing" if it does not.
std::string refusal(const std::function<void(Sample&)>& change, bool training = true) {
  const MadeSamples samples([&](int64_t index) {
    Sample sample = short_sample(index);
    if (index == 2) change(sample);
    return sample;
  });
  try {
    if (training) {
      TrainLoader(samples, token_settings()).next();
    } else {
      EvalLoader(samples, token_settings()).next();
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(TokenLoader, RefusesSamplesThatAreNotAsTheShapeSays) {
  EXPECT_EQ(refusal([](Sample&) {}), "nothing");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_S.assign(6, 1); }),
            "sample 2 has 6 tokens, not 1 to 5");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_S.clear(); }),
            "sample 2 has 0 tokens, not 1 to 5");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_S[1] = 10; }),
            "sample 2 has the token 10, expected 0 to 9");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_S[1] = -1; }),
            "sample 2 has the token -1, expected 0 to 9");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_label_S[0] = 10; }),
            "sample 2 has the token label 10, expected 0 to 9");
  EXPECT_EQ(refusal([](Sample& sample) { sample.token_label_S.pop_back(); }),
            "sample 2 has 3 token labels for 4 tokens");
  EXPECT_EQ(refusal([](Sample& sample) { sample.label = 4; }),
            "sample 2 has the label 4, expected 0 to 3");
}

TEST(TokenLoader, CountsLabelsInTrainingOnly) {
  const auto change = [](Sample& sample) { sample.token_label_S[0] = kNoLabel; };
  EXPECT_EQ(refusal(change), "sample 2 has 1 labelled token, not 2");
  EXPECT_EQ(refusal(change, /*training=*/false), "nothing");
}

TEST(TokenLoader, GivesAllRanksTogetherTheDrawnSamplesOfOne) {
  const auto source = testing::source_of("{source: mixed_complexity, train: {samples: 12}}");
  const auto samples = source->open(Split::kTrain);
  LoaderSettings how;
  how.cut = {8, 2, 2};
  how.seed = 5;
  how.shape = source->shape();
  const auto stream = [&](int64_t world, int64_t workers) {
    std::vector<torch::Tensor> seen;
    std::vector<std::unique_ptr<TrainLoader>> ranks;
    for (int64_t rank = 0; rank < world; ++rank) {
      LoaderSettings own = how;
      own.rank = rank;
      own.world = world;
      own.workers = workers;
      ranks.push_back(std::make_unique<TrainLoader>(*samples, own));
    }
    for (int i = 0; i < 6; ++i) {
      for (const auto& rank : ranks) {
        const Batch batch = rank->next();
        seen.push_back(at::cat({batch.token_bS, batch.token_label_bS}, 1));
      }
    }
    return at::cat(seen);
  };
  const torch::Tensor expected = stream(1, 1);
  EXPECT_EQ(expected.sizes(), (at::IntArrayRef{24, 512}));
  for (int64_t world = 2; world <= 3; ++world) {
    EXPECT_TRUE(at::equal(stream(world, 3), expected)) << world << " ranks";
  }
}

/// In the process of a death test: a training with threads for which there is too little memory
/// ends with its error's code, and tells that or what it was warned of.
void train_with_few_threads(LoaderSettings how, bool may_be_fewer) {
  std::string told;
  if (may_be_fewer) how.fewer_workers = [&told](const std::string& line) { told += line; };
  const MadeSamples samples([](int64_t) { return short_sample(2); });
  std::vector<std::unique_ptr<TrainLoader>> loaders;
  testing::allow_more_memory(int64_t{1} << 28);
  try {
    while (std::ssize(loaders) * (how.workers + how.prefetch) < 256) {
      loaders.push_back(std::make_unique<TrainLoader>(samples, how));
      loaders.back()->next();
    }
    std::fputs(told.c_str(), stderr);
    _exit(0);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    _exit(static_cast<int>(error.code()));
  }
}

TEST(TokenLoaderDeathTest, AutomaticWorkersAreFewerWhereTheSystemRefusesThreads) {
  LoaderSettings how = token_settings();
  how.prefetch = 0;
  how.workers = 256;
  EXPECT_EXIT(train_with_few_threads(how, true), ExitedWithCode(0),
              "^data.workers: [0-9]+ instead of 256, .*ulimit -u");
  EXPECT_EXIT(train_with_few_threads(how, false), ExitedWithCode(11),
              "^data.workers: the system refuses a thread");
  how.prefetch = 1;
  how.workers = 1;
  EXPECT_EXIT(train_with_few_threads(how, true), ExitedWithCode(11),
              "^data.prefetch: the system refuses a thread");
}

}  // namespace
}  // namespace shoal
