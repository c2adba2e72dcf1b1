#include "runtime/data/loader/loader.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr ImageShape kShape{3, 5, 6};

/// Sample i has label i and pixels that depend on i.
class Numbered : public SampleSet {
 public:
  explicit Numbered(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    if (index == broken_) throw DataError("set: record " + std::to_string(index) + ": broken");
    Sample sample{.shape = kShape,
                  .pixel_CHW = std::vector<uint8_t>(static_cast<size_t>(kShape.bytes())),
                  .label = index};
    for (size_t i = 0; i < sample.pixel_CHW.size(); ++i) {
      sample.pixel_CHW[i] = static_cast<uint8_t>((static_cast<size_t>(index) * 31 + i * 7) % 256);
    }
    return sample;
  }

 private:
  int64_t size_;
  int64_t broken_;
};

/// A text whose sizes are counted when asked for; the second token of sample `unlabelled` has no
/// label.
class CountedText : public SampleSet {
 public:
  explicit CountedText(int64_t unlabelled = -1) : unlabelled_(unlabelled) {}
  int64_t size() const override { return 6; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    return {.shape = {},
            .pixel_CHW = {},
            .token_S = {1, 2},
            .token_label_S = {2, index == unlabelled_ ? kNoLabel : 3}};
  }
  std::optional<TextCounts> text_counts() const override {
    ++num_counted;
    return TextCounts{.tokens = 12, .bytes = 12, .words = 4};
  }
  mutable int64_t num_counted = 0;

 private:
  int64_t unlabelled_;
};

LoaderSettings settings(int64_t batch, int64_t accumulate = 1, int64_t group = 4) {
  LoaderSettings result;
  result.cut = {batch, accumulate, group};
  result.seed = 11;
  result.shape = {.source = "numbered", .image = kShape, .classes = 1000};
  result.images = ImageTransform{
      kShape, {.crop_padding = 2, .flip = true}, {{0.4, 0.5, 0.6}, {0.2, 0.25, 0.3}}};
  return result;
}

LoaderSettings on_rank(LoaderSettings result, int64_t rank, int64_t world) {
  result.rank = rank;
  result.world = world;
  return result;
}

/// Several batches as one: what was seen of the stream.
struct Seen {
  std::vector<torch::Tensor> image, label, sample;

  void add(const Batch& batch) {
    image.push_back(batch.image_bCHW());
    label.push_back(batch.label_b);
    sample.push_back(batch.context.sample_b);
  }
  bool equals(const Seen& other) const {
    return at::equal(at::cat(image), at::cat(other.image)) &&
           at::equal(at::cat(label), at::cat(other.label)) &&
           at::equal(at::cat(sample), at::cat(other.sample));
  }
  std::vector<int64_t> labels() const {
    const torch::Tensor all = at::cat(label);
    return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
  }
};

Seen serial(const SampleSet& samples, const LoaderSettings& how, int64_t num_batches) {
  TrainLoader loader(samples, how);
  Seen seen;
  for (int64_t i = 0; i < num_batches; ++i) seen.add(loader.next());
  return seen;
}

TEST(TrainLoader, GivesAllRanksTogetherTheSerialStream) {
  const Numbered samples(50);
  for (const int64_t accumulate : {1, 3}) {
    const Seen expected = serial(samples, settings(24, accumulate), 10);
    for (int64_t world = 1; world <= 4; ++world) {
      std::vector<std::unique_ptr<TrainLoader>> ranks;
      for (int64_t rank = 0; rank < world; ++rank) {
        ranks.push_back(
            std::make_unique<TrainLoader>(samples, on_rank(settings(24, accumulate), rank, world)));
      }
      Seen seen;
      for (int i = 0; i < 10; ++i) {
        for (const auto& rank : ranks) seen.add(rank->next());
      }
      EXPECT_TRUE(seen.equals(expected)) << "world " << world << ", accumulate " << accumulate;
    }
  }
}

LoaderSettings text_settings() {
  LoaderSettings result = settings(2, 1, 1);
  result.shape = {.source = "text", .sequence = 2, .vocabulary = 4, .token_labels = 2};
  result.images.reset();
  return result;
}

TEST(EvalLoader, CountsATextOnceAndTrainingNever) {
  const CountedText text;
  TrainLoader training(text, text_settings());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(training.next().text.words, 0);
  EXPECT_EQ(text.num_counted, 0);
  EvalLoader evaluation(text, text_settings());
  while (const std::optional<Batch> batch = evaluation.next()) EXPECT_EQ(batch->text.words, 4);
  EXPECT_EQ(text.num_counted, 1);
}

TEST(TrainLoader, EveryTokenHasALabel) {
  const CountedText text(/*unlabelled=*/3);
  TrainLoader training(text, text_settings());
  EXPECT_THROW(
      {
        for (int i = 0; i < 3; ++i) training.next();
      },
      DataError);
  EvalLoader evaluation(text, text_settings());
  while (evaluation.next()) {
  }
}

TEST(TrainLoader, CutsTheSameStreamByAccumulation) {
  const Numbered samples(50);
  const Seen whole = serial(samples, settings(24, 1), 5);
  EXPECT_TRUE(serial(samples, settings(24, 2), 10).equals(whole));
  EXPECT_TRUE(serial(samples, settings(24, 6), 30).equals(whole));
}

TEST(TrainLoader, RunsOnOverEpochBorders) {
  const Numbered samples(50);
  const std::vector<int64_t> labels = serial(samples, settings(8), 25).labels();
  ASSERT_EQ(labels.size(), 200u);
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> one(labels.begin() + epoch * 50, labels.begin() + (epoch + 1) * 50);
    std::sort(one.begin(), one.end());
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(one[static_cast<size_t>(i)], i);
  }
}

TEST(TrainLoader, GivesASampleAnotherAugmentationInTheNextEpoch) {
  const Numbered samples(8);
  TrainLoader loader(samples, settings(8));
  std::map<int64_t, torch::Tensor> first;
  int64_t changed = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Batch batch = loader.next();
    for (int64_t i = 0; i < 8; ++i) {
      const auto [entry, is_new] =
          first.try_emplace(batch.label_b[i].item<int64_t>(), batch.image_bCHW()[i]);
      if (!is_new && !at::equal(entry->second, batch.image_bCHW()[i])) ++changed;
    }
  }
  EXPECT_GE(changed, 6);
}

TEST(TrainLoader, DescribesTheStepOfEachMicroBatch) {
  const Numbered samples(50);
  TrainLoader loader(samples, on_rank(settings(24, 3), 1, 2));
  for (int64_t i = 0; i < 7; ++i) {
    const Batch batch = loader.next();
    EXPECT_TRUE(batch.context.training);
    EXPECT_EQ(batch.context.seed, 11u);
    EXPECT_EQ(batch.context.samples_per_group, 4);
    EXPECT_EQ(batch.context.samples_in_step, 24);
    EXPECT_EQ(batch.context.samples_in_micro, 8);
    EXPECT_EQ(batch.context.sample_b[0].item<int64_t>(), 8 * i + 4);
    EXPECT_GE(batch.wait_s, 0.0);
  }
}

TEST(TrainLoader, GivesARankWithoutGroupsEmptyBatches) {
  const Numbered samples(50);
  TrainLoader loader(samples, on_rank(settings(8), 0, 4));
  const Batch batch = loader.next();
  EXPECT_EQ(batch.image_bCHW().sizes(), (at::IntArrayRef{0, 3, 5, 6}));
  EXPECT_EQ(batch.label_b.numel(), 0);
  EXPECT_EQ(batch.context.sample_b.numel(), 0);
  EXPECT_EQ(batch.context.samples_in_micro, 8);
}

TEST(TrainLoader, ResumesAtAnyStep) {
  const Numbered samples(50);
  const int64_t total = 12;
  std::vector<Batch> uninterrupted;
  TrainLoader whole(samples, settings(24, 2));
  for (int64_t i = 0; i < 2 * total; ++i) uninterrupted.push_back(whole.next());
  for (int64_t step = 0; step <= total; ++step) {
    TrainLoader resumed(samples, settings(24, 2));
    resumed.seek(step * 24);
    Seen expected, seen;
    for (int64_t i = 2 * step; i < 2 * total; ++i) {
      expected.add(uninterrupted[static_cast<size_t>(i)]);
      seen.add(resumed.next());
    }
    EXPECT_EQ(resumed.cursor(), whole.cursor());
    if (step < total) {
      EXPECT_TRUE(seen.equals(expected)) << "from step " << step;
    }
  }
}

/// Keeps the one integer, and gives it back.
class CursorVisitor : public StateVisitor {
 public:
  void tensor(const StateTensor&) override { FAIL(); }
  void real(const std::string&, double&) override { FAIL(); }
  void text(const std::string&, std::string&) override { FAIL(); }
  void integer(const std::string& name, int64_t& value) override {
    if (is_loading) value = values.at(name);
    values[name] = value;
  }
  bool is_loading = false;
  std::map<std::string, int64_t> values;
};

TEST(TrainLoader, SavesOnlyTheCursorOfWhatWasTaken) {
  const Numbered samples(50);
  TrainLoader loader(samples, settings(8));
  for (int i = 0; i < 3; ++i) loader.next();
  CursorVisitor state;
  loader.visit_state(state);
  EXPECT_EQ(state.values, (std::map<std::string, int64_t>{{"data.cursor", 24}}));

  TrainLoader resumed(samples, settings(8));
  resumed.next();  // its thread is ahead of a stream that is left now
  state.is_loading = true;
  resumed.visit_state(state);
  EXPECT_TRUE(at::equal(resumed.next().image_bCHW(), loader.next().image_bCHW()));
}

TEST(TrainLoader, IsTheSameWithAndWithoutAThread) {
  const Numbered samples(50);
  LoaderSettings how = settings(24, 3);
  const Seen expected = serial(samples, how, 20);
  for (const int64_t prefetch : {0, 1, 7}) {
    how.prefetch = prefetch;
    EXPECT_TRUE(serial(samples, how, 20).equals(expected));
  }
}

TEST(TrainLoader, IsTheSameForAnyNumberOfWorkers) {
  const Numbered samples(50);
  LoaderSettings how = settings(24, 3);
  const Seen expected = serial(samples, how, 12);
  for (const int64_t prefetch : {0, 2}) {
    for (const int64_t workers : {2, 3, 7}) {
      how.prefetch = prefetch;
      how.workers = workers;
      EXPECT_TRUE(serial(samples, how, 12).equals(expected)) << workers << " workers";
    }
  }
}

TEST(TrainLoader, GivesTheErrorOfTheFirstBadRecordForAnyNumberOfWorkers) {
  const Numbered samples(8, /*broken=*/3);
  LoaderSettings how = settings(8);
  how.workers = 4;
  TrainLoader loader(samples, how);
  try {
    loader.next();
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("record 3: broken"));
  }
}

TEST(TrainLoader, GivesViewsThatDifferAndBeginWithTheOnlyOne) {
  const Numbered samples(50);
  LoaderSettings how = settings(24);
  TrainLoader one(samples, how);
  how.views = 2;
  TrainLoader two(samples, how);
  const Batch single = one.next(), both = two.next();
  EXPECT_EQ(both.image_bVCHW.sizes(), (at::IntArrayRef{24, 2, 3, 5, 6}));
  EXPECT_TRUE(at::equal(both.image_bCHW(0), single.image_bCHW()));
  EXPECT_FALSE(at::equal(both.image_bCHW(1), both.image_bCHW(0)));
}

/// Tokens, numbers and targets, which depend on the pass over the data; no images, no labels.
class Sequences : public SampleSet {
 public:
  int64_t size() const override { return 6; }
  Sample read(int64_t index, int64_t epoch) const override {
    Sample sample;
    sample.token_S = {index, epoch, index + 10 * epoch};
    sample.value_N = {0.5 * static_cast<double>(index)};
    sample.target_M = {static_cast<double>(index), -1.0};
    return sample;
  }
};

TEST(TrainLoader, GivesTokensNumbersAndTargetsOfEachPass) {
  const Sequences samples;
  LoaderSettings how;
  how.cut = {6, 1, 2};
  how.shape.source = "sequences";
  how.shape.sequence = 3;
  how.shape.vocabulary = 99;
  how.shape.values = 1;
  how.shape.targets = 2;
  TrainLoader loader(samples, how);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const Batch batch = loader.next();
    EXPECT_FALSE(batch.image_bVCHW.defined() || batch.label_b.defined());
    ASSERT_EQ(batch.token_bS.sizes(), (at::IntArrayRef{6, 3}));
    for (int64_t row = 0; row < 6; ++row) {
      const int64_t index = batch.token_bS[row][0].item<int64_t>();
      EXPECT_EQ(batch.token_bS[row][1].item<int64_t>(), epoch);
      EXPECT_EQ(batch.token_bS[row][2].item<int64_t>(), index + 10 * epoch);
      EXPECT_EQ(batch.value_bN[row][0].item<double>(), 0.5 * static_cast<double>(index));
      EXPECT_EQ(batch.target_bM[row][0].item<double>(), static_cast<double>(index));
    }
  }
  how.shape.sequence = 4;
  TrainLoader longer(samples, how);
  EXPECT_THROW(longer.next(), DataError);
}

TEST(TrainLoader, RefusesACursorBetweenSteps) {
  const Numbered samples(50);
  TrainLoader loader(samples, settings(24, 3));
  for (const int64_t cursor : {8, -24}) {
    try {
      loader.seek(cursor);
      ADD_FAILURE() << "accepted " << cursor;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      EXPECT_THAT(error.what(), HasSubstr("train.batch"));
    }
  }
}

TEST(TrainLoader, HandsOverTheErrorOfABadRecord) {
  const Numbered samples(50, 17);
  TrainLoader loader(samples, settings(8));
  try {
    for (int i = 0; i < 7; ++i) loader.next();
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("record 17"));
  }
}

TEST(TrainLoader, RefusesImagesOfAnotherShape) {
  const Numbered samples(50);
  LoaderSettings other = settings(8);
  other.shape.image = ImageShape{3, 6, 5};
  TrainLoader loader(samples, other);
  EXPECT_THROW(loader.next(), DataError);
}

TEST(TrainLoader, RefusesACutThatBreaksGroups) {
  const Numbered samples(50);
  EXPECT_THROW(TrainLoader(samples, settings(24, 5)), c10::Error);
  EXPECT_THROW(TrainLoader(samples, settings(24, 4)), c10::Error);
}

TEST(TrainLoader, RefusesAnEmptySet) {
  const Numbered samples(0);
  EXPECT_THROW(TrainLoader(samples, settings(8)), c10::Error);
}

TEST(TrainLoader, GivesDoublesThatRoundToTheFloats) {
  const Numbered samples(50);
  LoaderSettings how = settings(8);
  TrainLoader floats(samples, how);
  how.dtype = torch::kFloat64;
  TrainLoader doubles(samples, how);
  const torch::Tensor exact = doubles.next().image_bCHW();
  EXPECT_EQ(exact.dtype(), torch::kFloat64);
  EXPECT_TRUE(at::equal(exact.to(torch::kFloat32), floats.next().image_bCHW()));
}

/// Labels by call and rank.
std::vector<std::vector<Batch>> evaluate(const SampleSet& samples, const LoaderSettings& how,
                                         int64_t world) {
  std::vector<std::vector<Batch>> batches;
  for (int64_t rank = 0; rank < world; ++rank) {
    EvalLoader loader(samples, on_rank(how, rank, world));
    batches.emplace_back();
    while (std::optional<Batch> batch = loader.next()) batches.back().push_back(*batch);
    EXPECT_EQ(static_cast<int64_t>(batches.back().size()), loader.num_batches());
  }
  return batches;
}

TEST(EvalLoader, CoversEachSampleOnceInOrderOnAnyWorld) {
  for (const int64_t size : {1, 3, 8, 21, 24, 50}) {
    const Numbered samples(size);
    Seen expected;
    const auto alone = evaluate(samples, settings(16), 1);
    for (const Batch& batch : alone.front()) expected.add(batch);
    const std::vector<int64_t> labels = expected.labels();
    ASSERT_EQ(static_cast<int64_t>(labels.size()), size);
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(labels[static_cast<size_t>(i)], i);
    for (int64_t world = 2; world <= 5; ++world) {
      const auto ranks = evaluate(samples, settings(16), world);
      Seen seen;
      for (size_t call = 0; call < ranks.front().size(); ++call) {
        for (const auto& rank : ranks) seen.add(rank.at(call));
      }
      EXPECT_TRUE(seen.equals(expected)) << size << " samples on " << world;
    }
  }
}

TEST(EvalLoader, GivesEveryRankTheSameNumberOfCalls) {
  const Numbered samples(17);  // calls of 16 and of 1 sample
  for (const auto& rank : evaluate(samples, settings(16), 3)) {
    ASSERT_EQ(rank.size(), 2u);
    EXPECT_EQ(rank[0].context.samples_in_micro, 16);
    EXPECT_EQ(rank[1].context.samples_in_micro, 1);
    EXPECT_EQ(rank[1].context.samples_in_step, 17);
    EXPECT_FALSE(rank[1].context.training);
  }
}

TEST(EvalLoader, ShortensOnlyTheLastGroup) {
  const Numbered samples(21);
  const auto ranks = evaluate(samples, settings(32), 3);  // groups of 4, 4, 4, 4, 4, 1
  EXPECT_EQ(ranks[0][0].label_b.numel(), 8);
  EXPECT_EQ(ranks[1][0].label_b.numel(), 8);
  EXPECT_EQ(ranks[2][0].label_b.numel(), 5);
}

TEST(EvalLoader, LeavesImagesUnaugmented) {
  const Numbered samples(4);
  LoaderSettings how = settings(4);
  const Seen augmented_off = [&] {
    Seen seen;
    seen.add(evaluate(samples, how, 1)[0][0]);
    return seen;
  }();
  how.images->augment = {};
  Seen plain;
  plain.add(evaluate(samples, how, 1)[0][0]);
  EXPECT_TRUE(augmented_off.equals(plain));
  const double byte = samples.read(1, 0).pixel_CHW[0];
  EXPECT_NEAR(plain.image[0][1][0][0][0].item<double>(), (byte / 255 - 0.4) / 0.2, 1e-6);
}

TEST(EvalLoader, HasNoBatchForAnEmptySet) {
  EXPECT_EQ(evaluate(Numbered(0), settings(8), 1)[0].size(), 0u);
}

}  // namespace
}  // namespace shoal
