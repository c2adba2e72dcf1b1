#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/shard_writer.h"
#include "runtime/files/file_system.h"
#include "tests/parsers/image_fixture.h"
#include "tests/parsers/tar_fixture.h"
#include "tests/runtime/data/source_of.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::write_file;

using Files = std::vector<std::pair<std::string, std::string>>;

/// Image i is (9 + i) x 14, its red all i.
std::string photograph(int64_t i) {
  std::vector<uint8_t> pixel_HWC;
  for (int64_t place = 0; place < (9 + i) * 14; ++place) {
    for (const int64_t value : {i, place % 251, place % 13}) {
      pixel_HWC.push_back(static_cast<uint8_t>(value));
    }
  }
  return i % 2 == 0 ? testing::png_of(pixel_HWC, 9 + i, 14, PNG_FORMAT_RGB)
                    : testing::jpeg_of(pixel_HWC, {.height = 9 + i, .width = 14});
}

class TarShards : public ::testing::Test {
 protected:
  TarShards() {
    for (int64_t i = 0; i < 7; ++i) {
      const std::string name = fmt::format("folder/train/{}/{}.{}", i < 3 ? "cat" : "dog", i,
                                           i % 2 == 0 ? "png" : "jpg");
      fs::create_directories(fs::path(scratch_.file(name)).parent_path());
      write_file(scratch_.file(name), photograph(i));
    }
    fs::create_directories(scratch_.file("shards/train"));
    fs::create_directories(scratch_.file("shards/val"));
    PosixFileSystem files;
    pack_images({.folder = scratch_.file("folder/train"),
                 .out = scratch_.file("shards/train"),
                 .has_classes = true,
                 .shard_bytes = 8000},
                files);
    write_file(scratch_.file("shards/val/v.tar"),
               testing::tar_of({{"v.png", photograph(4)}, {"v.cls", "1"}}));
    set("path=" + scratch_.file("shards"));
  }

  /// Sets a key of the source.
  void set(const std::string& change) { changes_.push_back(change); }

  std::shared_ptr<DataSource> source() const {
    return testing::source_of("{source: tar_shards, image_size: 8, classes: 2}", changes_);
  }

  std::unique_ptr<SampleSet> opened(Split split = Split::kTrain) const {
    return source()->open(split);
  }

  std::string refusal(Split split = Split::kTrain) const {
    try {
      opened(split);
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return std::string(error.what()) + "; " + error.hint();
    }
    return "taken";
  }

  /// A shard of `count` samples of class 1 of which these are no images.
  void write_shard(int64_t count, const std::vector<int64_t>& corrupt) {
    const std::string image = photograph(0);
    Files files;
    for (int64_t i = 0; i < count; ++i) {
      const bool is_corrupt = std::ranges::find(corrupt, i) != corrupt.end();
      files.emplace_back(std::to_string(i) + ".png", is_corrupt ? "corrupt" : image);
      files.emplace_back(std::to_string(i) + ".cls", i % 2 == 0 ? "0" : "1");
    }
    write_file(scratch_.file("shards/own.tar"), testing::tar_of(files));
    set("train.shards=[own.tar]");
  }

  testing::ScratchFolder scratch_;
  std::vector<std::string> changes_;
};

TEST_F(TarShards, GiveTheBatchesOfTheirFolderBitForBit) {
  const auto folder = testing::source_of("{source: image_folder, image_size: 8, classes: 2}",
                                         {"path=" + scratch_.file("folder")});
  const auto shards = source();
  const auto batches = [](const DataSource& source, int64_t world, int64_t first) {
    const auto set = source.open(Split::kTrain);
    EXPECT_EQ(set->size(), 7);
    std::vector<std::pair<torch::Tensor, torch::Tensor>> found;
    std::vector<std::unique_ptr<TrainLoader>> ranks;
    for (int64_t rank = 0; rank < world; ++rank) {
      LoaderSettings settings{.cut = {4, 1, 1},
                              .rank = rank,
                              .world = world,
                              .seed = 5,
                              .shape = source.shape(),
                              .images = source.image_transform(),
                              .views = 2,
                              .workers = 2};
      ranks.push_back(std::make_unique<TrainLoader>(*set, settings));
      ranks.back()->seek(first);
    }
    for (int64_t step = first / 4; step < 6; ++step) {
      for (const auto& rank : ranks) {
        const Batch batch = rank->next();
        found.emplace_back(batch.image_bVCHW, batch.label_b);
      }
    }
    return found;
  };
  for (const auto& [world, first] : {std::pair{1, 0}, {3, 0}, {1, 8}}) {
    const auto wanted = batches(*folder, world, first), found = batches(*shards, world, first);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i].first, wanted[i].first)) << i;
      EXPECT_TRUE(at::equal(found[i].second, wanted[i].second)) << i;
    }
  }
}

TEST_F(TarShards, NameTheirClassesInTheIndex) {
  set("classes=auto");
  EXPECT_EQ(source()->shape().classes, 2);
  EXPECT_THAT(source()->class_names(), ElementsAre("cat", "dog"));
  for (const std::string& path : shards_in(scratch_.file("shards/train"), "")) {
    fs::remove(shard_index_path(path));
  }
  EXPECT_EQ(source()->shape().classes, 0) << "images without labels, as without class folders";
  fs::remove_all(scratch_.file("shards/train"));
  fs::remove_all(scratch_.file("shards/val"));
  EXPECT_TRUE(source()->shape().has_unknown_classes);
}

TEST_F(TarShards, AreLabelledByName) {
  const std::string before = opened()->fingerprint();
  set("class_names=[dog, cat]");
  const auto set_of_shards = opened();
  EXPECT_EQ(set_of_shards->read(0, 0).label, 1) << "cat";
  EXPECT_EQ(set_of_shards->read(6, 0).label, 0) << "dog";
  EXPECT_THAT(set_of_shards->notes(), ElementsAre(HasSubstr("in another order")));
  EXPECT_NE(set_of_shards->fingerprint(), before);
  EXPECT_THAT(opened(Split::kValid)->warnings(),
              ElementsAre(HasSubstr("v.tar: names no classes; its labels are taken for places")));
  set("class_names=[dog, fox]");
  EXPECT_THAT(refusal(), HasSubstr("shard-000000.tar: its class 'cat' is not in data.class_names"));
}

TEST_F(TarShards, WarnOfAHeadThatIsWiderThanTheData) {
  EXPECT_THAT(opened()->warnings(), IsEmpty());
  set("classes=3");
  EXPECT_THAT(refusal(), HasSubstr("shard-000000.tar: 2 class names, and data.classes is 3"));
  EXPECT_THAT(testing::training_mistakes_of(*source()),
              ElementsAre(HasSubstr("shard-000000.tar: 2 class names, and data.classes is 3")));
  set("class_names=[cat, dog, fox]");
  EXPECT_THAT(testing::training_mistakes_of(*source()), IsEmpty());
  EXPECT_THAT(opened()->warnings(), ElementsAre(HasSubstr("has 2 of the 3 classes")));
}

TEST_F(TarShards, AreReadInTheOrderOfTheirNamesOrOfTheRecipe) {
  const auto reds = [](const SampleSet& set) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < set.size(); ++i) values.push_back(set.read(i, 0).shape.height - 9);
    return values;
  };
  EXPECT_THAT(reds(*opened()), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_GE(shards_in(scratch_.file("shards/train"), "").size(), 2u);
  set("train.shards=[val/v.tar, train/shard-000001.tar, train/shard-000000.tar]");
  const std::vector<int64_t> values = reds(*opened());
  EXPECT_EQ(values.front(), 4);
  EXPECT_EQ(opened()->name(0), scratch_.file("shards/val/v.tar/v.png"));
  EXPECT_EQ(values.back() + 1, values[1]) << "the first shard ends before the second begins";
}

TEST_F(TarShards, NameTheFilesThatWerePacked) { EXPECT_EQ(opened()->name(0), "cat/0.png"); }

TEST_F(TarShards, DecodeAtAReducedSizeWhenTold) {
  set("image_size=4");
  set("decode_side=5");
  EXPECT_EQ(source()->image_transform()->decode_side, 5);
  EXPECT_EQ(opened()->read(0, 0).shape, (ImageShape{3, 9, 14})) << "a PNG file, whole";
  EXPECT_EQ(opened()->read(1, 0).shape, (ImageShape{3, 5, 7}));
}

TEST_F(TarShards, OpenWithoutIndicesToo) {
  const std::string before = opened()->fingerprint();
  for (const std::string& path : shards_in(scratch_.file("shards/train"), "")) {
    fs::remove(shard_index_path(path));
  }
  EXPECT_EQ(opened()->fingerprint(), before);
  EXPECT_THAT(opened()->name(0), HasSubstr("shards/train/shard-000000.tar/"));
}

TEST_F(TarShards, RefuseAnIndexOfAnotherShard) {
  const std::string first = scratch_.file("shards/train/shard-000000.tar");
  const std::string index = read_file(shard_index_path(first));
  write_file(shard_index_path(first),
             read_file(scratch_.file("shards/train/shard-000001.tar.index")));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("shard-000000.tar.index: "), HasSubstr("remove it")));
  write_file(shard_index_path(first), index);
  EXPECT_EQ(refusal(), "taken");
}

TEST_F(TarShards, KnowTheirFilesAgain) {
  const std::string before = opened()->fingerprint();
  EXPECT_EQ(opened()->fingerprint(), before);
  EXPECT_THAT(before, HasSubstr("7 images in "));
  write_shard(3, {});
  const std::string three = opened()->fingerprint();
  write_shard(3, {1});
  EXPECT_NE(opened()->fingerprint(), three);
}

TEST_F(TarShards, RefuseLabelsThatAreMissingOrTooLarge) {
  const std::string valid = scratch_.file("shards/val/v.tar");
  write_file(valid, testing::tar_of({{"v.png", photograph(4)}, {"v.cls", "2"}}));
  EXPECT_THAT(refusal(Split::kValid),
              AllOf(HasSubstr("v.tar: member 'v.png' has the class 2, and data.classes is 2"),
                    HasSubstr("set data.classes")));
  write_file(valid, testing::tar_of({{"v.png", photograph(4)}}));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("member 'v.png' has no class beside it"));
  write_file(valid, testing::tar_of({{"v.png", photograph(4)}, {"v.cls", "cat"}}));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("member 'v.cls' holds 'cat'"));
  set("classes=none");
  EXPECT_EQ(opened(Split::kValid)->read(0, 0).label, 0);
}

TEST_F(TarShards, NameTheShardOrFolderThatIsNotThere) {
  set("train.shards=[train/none.tar]");
  EXPECT_THAT(refusal(), HasSubstr("no 'none.tar' in"));
  fs::remove(scratch_.file("shards/val/v.tar"));
  EXPECT_THAT(refusal(Split::kValid),
              AllOf(HasSubstr("val: no shard (*.tar) in it"), HasSubstr("data.valid.shards")));
  fs::remove(scratch_.file("shards/val"));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("val: cannot be listed"));
}

TEST_F(TarShards, FailWithShardAndMemberOfACorruptImage) {
  write_shard(5, {3});
  const auto shard = opened();
  EXPECT_EQ(shard->read(2, 0).label, 0);
  try {
    shard->read(3, 0);
    FAIL() << "read";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("own.tar: member '3.png': neither a JPEG nor a PNG"));
  }
}

TEST_F(TarShards, ReplaceACorruptImageByTheNextWhenTold) {
  set("on_corrupt=skip");
  write_shard(5, {4});
  const auto shard = opened();
  EXPECT_THAT(shard->substituted(), IsEmpty()) << "no image is decoded yet";
  EXPECT_EQ(shard->read(4, 0).label, 0) << "the label is the substitute's, image 0 behind the last";
  EXPECT_EQ(shard->read(4, 1).label, 0);
  EXPECT_EQ(shard->read(3, 0).label, 1);
  EXPECT_THAT(shard->substituted(), ElementsAre(4));
}

TEST_F(TarShards, RefuseOverlapOfTrainingAndValidationSplit) {
  const auto mistakes = [&] { return testing::training_mistakes_of(*source()); };
  EXPECT_THAT(mistakes(), IsEmpty());
  set("valid.shards=[val/v.tar, val/../train/shard-000001.tar]");
  EXPECT_THAT(mistakes(), ElementsAre(AllOf(HasSubstr("valid.shards: "),
                                            HasSubstr("shard-000001.tar is trained on as well"))));
  fs::create_symlink("../train/shard-000000.tar", scratch_.file("shards/val/link.tar"));
  set("valid.shards=auto");
  EXPECT_THAT(mistakes(), ElementsAre(HasSubstr("shard-000000.tar is trained on as well")));
  set("path=" + scratch_.file("nowhere"));
  EXPECT_THAT(mistakes(), IsEmpty()) << "check opens no data";
}

TEST_F(TarShards, RefuseAShardNamedTwice) {
  set("train.shards=[a.tar, ./a.tar]");
  EXPECT_THAT(testing::mistakes_of([this] { source(); }),
              ElementsAre(AllOf(HasSubstr("train.shards="), HasSubstr("a.tar is named twice"))));
}

}  // namespace
}  // namespace shoal
