#include "runtime/data/shards/tar_shards.h"

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
#include "runtime/data/images/image_folder.h"
#include "runtime/data/loader/loader.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/shard_writer.h"
#include "runtime/files/file_system.h"
#include "tests/parsers/image_fixture.h"
#include "tests/parsers/tar_fixture.h"
#include "tests/runtime/data/collected_problems.h"
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
    options_.path = scratch_.file("shards");
    options_.photographs.image_size = 8;
    options_.classes = 2;
  }

  std::unique_ptr<SampleSet> opened(Split split = Split::kTrain) const {
    return TarShardsSource(options_).open(split);
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
    options_.train.shards = std::vector<std::string>{"own.tar"};
  }

  testing::ScratchFolder scratch_;
  TarShardsSource::Options options_;
};

TEST_F(TarShards, GiveTheBatchesOfTheirFolderBitForBit) {
  ImageFolderSource::Options folder_options;
  folder_options.path = scratch_.file("folder");
  folder_options.photographs.image_size = 8;
  folder_options.classes = 2;
  const ImageFolderSource folder(folder_options);
  const TarShardsSource shards(options_);
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
    const auto wanted = batches(folder, world, first), found = batches(shards, world, first);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i].first, wanted[i].first)) << i;
      EXPECT_TRUE(at::equal(found[i].second, wanted[i].second)) << i;
    }
  }
}

TEST_F(TarShards, AreReadInTheOrderOfTheirNamesOrOfTheRecipe) {
  const auto reds = [](const SampleSet& set) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < set.size(); ++i) values.push_back(set.read(i, 0).shape.height - 9);
    return values;
  };
  EXPECT_THAT(reds(*opened()), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_GE(shards_in(scratch_.file("shards/train"), "").size(), 2u);
  options_.train.shards =
      std::vector<std::string>{"val/v.tar", "train/shard-000001.tar", "train/shard-000000.tar"};
  const std::vector<int64_t> values = reds(*opened());
  EXPECT_EQ(values.front(), 4);
  EXPECT_EQ(values.back() + 1, values[1]) << "the first shard ends before the second begins";
}

TEST_F(TarShards, DecodeAtAReducedSizeWhenTold) {
  options_.photographs.decode_side = 5;
  EXPECT_EQ(opened()->read(0, 0).shape, (ImageShape{3, 9, 14})) << "a PNG file, whole";
  EXPECT_EQ(opened()->read(1, 0).shape, (ImageShape{3, 5, 7}));
}

TEST_F(TarShards, OpenWithoutIndicesToo) {
  const std::string before = opened()->fingerprint();
  for (const std::string& path : shards_in(scratch_.file("shards/train"), "")) {
    fs::remove(shard_index_path(path));
  }
  EXPECT_EQ(opened()->fingerprint(), before);
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
  options_.classes = 1;
  EXPECT_THAT(refusal(Split::kValid),
              AllOf(HasSubstr("v.tar: member 'v.png' has the class 1, and data.classes is 1"),
                    HasSubstr("set data.classes")));
  const std::string valid = scratch_.file("shards/val/v.tar");
  write_file(valid, testing::tar_of({{"v.png", photograph(4)}}));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("member 'v.png' has no class beside it"));
  write_file(valid, testing::tar_of({{"v.png", photograph(4)}, {"v.cls", "cat"}}));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("member 'v.cls' holds 'cat'"));
  options_.classes = {};
  EXPECT_EQ(opened(Split::kValid)->read(0, 0).label, 0);
}

TEST_F(TarShards, NameTheShardOrFolderThatIsNotThere) {
  options_.train.shards = std::vector<std::string>{"train/none.tar"};
  EXPECT_THAT(refusal(), HasSubstr("no 'none.tar' in"));
  fs::remove(scratch_.file("shards/val/v.tar"));
  EXPECT_THAT(refusal(Split::kValid),
              AllOf(HasSubstr("val: no shard (*.tar) in it"), HasSubstr("data.valid.shards")));
  fs::remove(scratch_.file("shards/val"));
  EXPECT_THAT(refusal(Split::kValid), HasSubstr("val: cannot be listed"));
}

TEST_F(TarShards, FailWithShardAndMemberOfACorruptImage) {
  write_shard(5, {3});
  const auto set = opened();
  EXPECT_EQ(set->read(2, 0).label, 0);
  try {
    set->read(3, 0);
    FAIL() << "read";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("own.tar: member '3.png': neither a JPEG nor a PNG"));
  }
}

TEST_F(TarShards, ReplaceACorruptImageByTheNextWhenTold) {
  options_.photographs.on_corrupt = OnCorrupt::kSkip;
  write_shard(5, {4});
  const auto set = opened();
  EXPECT_THAT(set->substituted(), IsEmpty()) << "no image is decoded yet";
  EXPECT_EQ(set->read(4, 0).label, 0) << "the label is the substitute's, image 0 behind the last";
  EXPECT_EQ(set->read(4, 1).label, 0);
  EXPECT_EQ(set->read(3, 0).label, 1);
  EXPECT_THAT(set->substituted(), ElementsAre(4));
}

TEST_F(TarShards, RefuseOverlapOfTrainingAndValidationSplit) {
  const auto mistakes = [&] { return testing::training_mistakes_of(TarShardsSource(options_)); };
  EXPECT_THAT(mistakes(), IsEmpty());
  options_.valid.shards = std::vector<std::string>{"val/v.tar", "val/../train/shard-000001.tar"};
  EXPECT_THAT(mistakes(), ElementsAre(AllOf(HasSubstr("valid.shards: "),
                                            HasSubstr("shard-000001.tar is trained on as well"))));
  fs::create_symlink("../train/shard-000000.tar", scratch_.file("shards/val/link.tar"));
  options_.valid.shards = {};
  EXPECT_THAT(mistakes(), ElementsAre(HasSubstr("shard-000000.tar is trained on as well")));
  options_.path = scratch_.file("nowhere");
  EXPECT_THAT(mistakes(), IsEmpty()) << "check opens no data";
}

TEST_F(TarShards, RefuseAShardNamedTwice) {
  options_.train.shards = std::vector<std::string>{"a.tar", "./a.tar"};
  testing::CollectedProblems problems;
  options_.validate(problems);
  EXPECT_THAT(problems.lines,
              ElementsAre(AllOf(HasSubstr("train.shards: "), HasSubstr("a.tar is named twice"))));
}

}  // namespace
}  // namespace shoal
