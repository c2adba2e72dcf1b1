#include "runtime/data/sample_subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;

/// Samples whose label is their index, of a text.
class Numbers : public SampleSet {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t epoch) const override {
    return {.shape = {}, .pixel_CHW = {}, .label = 1000 * epoch + index};
  }
  std::vector<int64_t> substituted() const override { return {1}; }
  std::optional<TextCounts> text_counts() const override { return TextCounts{7, 30, 5}; }
  std::vector<std::string> notes() const override { return {"note"}; }
  std::string fingerprint() const override { return "files"; }
  std::string tokenizer_identity() const override { return "bytes"; }

 private:
  int64_t size_;
};

std::vector<int64_t> drawn(int64_t size, int64_t count, uint64_t seed) {
  const auto samples = SampleSubset::draw(std::make_unique<Numbers>(size), count, seed);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < samples->size(); ++i) labels.push_back(samples->read(i, 0).label);
  return labels;
}

TEST(SampleSubset, DrawsDifferentSamplesInOrder) {
  const std::vector<int64_t> labels = drawn(1000, 100, 1);
  ASSERT_EQ(labels.size(), 100u);
  for (size_t i = 1; i < labels.size(); ++i) EXPECT_LT(labels[i - 1], labels[i]);
  // From everywhere: a run of 100 neighbours would span 99.
  EXPECT_LT(labels.front(), 100);
  EXPECT_GT(labels.back(), 900);
}

TEST(SampleSubset, DrawIsFixedByTheSeed) {
  EXPECT_EQ(drawn(1000, 100, 1), drawn(1000, 100, 1));
  EXPECT_NE(drawn(1000, 100, 1), drawn(1000, 100, 2));
}

TEST(SampleSubset, DrawOfMoreThanThereAreTakesAll) {
  EXPECT_THAT(drawn(3, 3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(drawn(3, 10, 1), ElementsAre(0, 1, 2));
  EXPECT_TRUE(drawn(0, 10, 1).empty());
}

TEST(SampleSubset, TellsOfTheWholeSet) {
  const SampleSubset some(std::make_shared<Numbers>(9), {4, 2});
  EXPECT_EQ(some.size(), 2);
  EXPECT_EQ(some.read(0, 3).label, 3004);
  EXPECT_EQ(some.read(1, 0).label, 2);
  EXPECT_THAT(some.substituted(), ElementsAre(1));
  EXPECT_EQ(some.text_counts()->bytes, 30);
  EXPECT_THAT(some.notes(), ElementsAre("note"));
  EXPECT_EQ(some.fingerprint(), "files");
  EXPECT_EQ(some.tokenizer_identity(), "bytes");
}

}  // namespace
}  // namespace shoal
