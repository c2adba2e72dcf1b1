#include "runtime/data/images/photographs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/image_file.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Image i has the label i, unless it is one of these.
CorruptImages::Decode all_but(std::vector<int64_t> corrupt) {
  return [corrupt = std::move(corrupt)](int64_t index) {
    if (std::ranges::find(corrupt, index) != corrupt.end()) {
      throw CorruptImage("image " + std::to_string(index));
    }
    Sample sample;
    sample.label = index;
    return sample;
  };
}

TEST(CorruptImages, AreReplacedByTheNextGoodOneInWhateverOrderTheyAreMet) {
  const auto decode = all_but({7, 8, 19'999});
  const auto replaced = [&](const std::vector<int64_t>& order) {
    const CorruptImages images(40'000, OnCorrupt::kSkip);
    std::vector<int64_t> labels;
    for (const int64_t index : order) labels.push_back(images.read(index, decode).label);
    return labels;
  };
  EXPECT_THAT(replaced({7, 8, 9, 19'999}), ElementsAre(9, 9, 9, 20'000));
  EXPECT_THAT(replaced({19'999, 9, 8, 7}), ElementsAre(20'000, 9, 9, 9));
  const CorruptImages images(20'000, OnCorrupt::kSkip);
  EXPECT_EQ(images.read(19'999, decode).label, 0) << "behind the last comes the first";
  EXPECT_THAT(images.met(), ElementsAre(19'999));
}

TEST(CorruptImages, AreTheSameForThreads) {
  const CorruptImages images(100'000, OnCorrupt::kSkip);
  const auto decode = all_but({1, 2, 3, 50});
  std::atomic<int64_t> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int64_t index = 0; index < 60; ++index) {
        const int64_t wanted = index >= 1 && index <= 3 ? 4 : index == 50 ? 51 : index;
        num_wrong += images.read(index, decode).label == wanted ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_THAT(images.met(), ElementsAre(1, 2, 3, 50));
}

TEST(CorruptImages, AreAtMostOneInTenThousandOrOne) {
  const auto refusal = [](int64_t size, const std::vector<int64_t>& corrupt) -> std::string {
    const CorruptImages images(size, OnCorrupt::kSkip);
    try {
      for (const int64_t index : corrupt) images.read(index, all_but(corrupt));
    } catch (const DataError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal(10, {3}), "taken");
  EXPECT_THAT(refusal(10, {3, 7}),
              HasSubstr("image 7; 2 of 10 images met so far are corrupt, and on_corrupt: skip "
                        "allows 1"));
  EXPECT_EQ(refusal(20'000, {5, 3}), "taken");
  EXPECT_THAT(refusal(29'999, {5, 3, 9}), HasSubstr("skip allows 2"));
  EXPECT_THAT(refusal(1, {0}), HasSubstr("none of the images can be decoded"));
}

TEST(CorruptImages, FailUnlessTheyAreSkipped) {
  const CorruptImages images(20'000, OnCorrupt::kFail);
  EXPECT_THROW(images.read(7, all_but({7})), CorruptImage);
  EXPECT_EQ(images.read(8, all_but({7})).label, 8);
}

TEST(CorruptImages, AreNotThoseThatAreMissing) {
  const CorruptImages images(20'000, OnCorrupt::kSkip);
  const auto missing = [](int64_t) -> Sample { throw DataError("no such file"); };
  EXPECT_THROW(images.read(7, missing), DataError);
  EXPECT_THAT(images.met(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace shoal
