#include "runtime/data/shards/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/parsers/tar_fixture.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;
using testing::tar_of;
using testing::write_file;

using Files = std::vector<std::pair<std::string, std::string>>;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<ShardSample> samples_of(const Files& files, Labels labels = Labels::kRequired) {
  return samples_of_tar(bytes_of(tar_of(files)), "a.tar", labels);
}

std::string refusal_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    return std::string(error.what()) + "; " + error.hint();
  }
  return "taken";
}

std::string refusal_of(const Files& files, Labels labels = Labels::kRequired) {
  return refusal_in([&] { samples_of(files, labels); });
}

TEST(ShardSamples, AreTheMembersOfOneName) {
  EXPECT_THAT(samples_of({{"d.1/0.jpg", "abc"},
                          {"d.1/0.cls", "7\n"},
                          {"x.cls", "0"},
                          {"x.meta.json", "{}"},
                          {"x.seg.png", "mask"},
                          {"x.PNG", "image"},
                          {"y.jpeg", ""},
                          {"y.cls", "12 \r\n"}}),
              ElementsAre(ShardSample{"d.1/0.jpg", 512, 3, 7}, ShardSample{"x.PNG", 5632, 5, 0},
                          ShardSample{"y.jpeg", 6656, 0, 12}));
}

TEST(ShardSamples, HaveLabelsWhereTheyAreAskedFor) {
  const Files files{{"a.jpg", ""}, {"a.cls", "cat"}, {"b.jpg", ""}};
  EXPECT_EQ(samples_of(files, Labels::kIgnored).front().label, std::nullopt);
  EXPECT_EQ(samples_of({{"a.jpg", ""}}, Labels::kOptional).front().label, std::nullopt);
  for (const char* label : {"cat", "", "-1", "1.5", "7 7", "99999999999999999999"}) {
    EXPECT_THAT(refusal_of({{"a.jpg", ""}, {"a.cls", label}}, Labels::kOptional),
                HasSubstr("a.tar: member 'a.cls' holds '" + std::string(label) +
                          "', not a class, an integer of 0 or more"));
  }
  EXPECT_THAT(refusal_of({{"a.jpg", ""}, {"a.cls", "1"}, {"b.jpg", ""}}),
              AllOf(HasSubstr("a.tar: member 'b.jpg' has no class beside it"),
                    HasSubstr("set data.classes: none")));
}

TEST(ShardSamples, HaveOneImage) {
  EXPECT_THAT(refusal_of({{"a.jpg", ""}, {"b.json", ""}}, Labels::kIgnored),
              HasSubstr("a.tar: member 'b.json' has no image of its name beside it"));
  EXPECT_THAT(refusal_of({{"a.jpg", ""}, {"b.jpg", ""}, {"a.png", ""}}, Labels::kIgnored),
              HasSubstr("a.tar: member 'a.png' is of a sample that has 'a.jpg' already"));
  EXPECT_THAT(refusal_of({{"a.cls", "1"}, {"a.cls", "1"}}),
              HasSubstr("of a sample that has 'a.cls' already"));
  EXPECT_THAT(refusal_of({{"d/.hidden.jpg", ""}}), HasSubstr("a.tar: holds no samples"));
  EXPECT_THAT(refusal_of({{"../a.jpg", ""}}), HasSubstr("leads out of its folder"));
}

class ShardIndex : public ::testing::Test {
 protected:
  ShardIndex() {
    Files files;
    for (int i = 0; i < 100; ++i) {
      files.emplace_back(std::to_string(i) + ".jpg", std::string(static_cast<size_t>(i), 'x'));
      if (i % 2 == 0) files.emplace_back(std::to_string(i) + ".cls", std::to_string(i));
    }
    archive_ = tar_of(files);
    samples_ = samples_of_tar(bytes_of(archive_), "a.tar", Labels::kOptional);
    for (ShardSample& sample : samples_) sample.file = "cat/of " + sample.name;
    text_ = emit_shard_index({samples_, kNames}, bytes_of(archive_));
  }

  std::string refusal(const std::string& text) const {
    return refusal_in([&] { parse_shard_index(text, bytes_of(archive_), "a.tar"); });
  }

  const std::vector<std::string> kNames{"cat", "a dog"};
  std::string archive_, text_;
  std::vector<ShardSample> samples_;
};

TEST_F(ShardIndex, GivesTheSamplesAndTheNamesAgain) {
  const ShardList list = parse_shard_index(text_, bytes_of(archive_), "a.tar");
  EXPECT_EQ(list.samples, samples_);
  EXPECT_EQ(list.class_names, kNames);
  text_ = emit_shard_index({samples_}, bytes_of(archive_));
  EXPECT_THAT(parse_shard_index(text_, bytes_of(archive_), "a.tar").class_names, IsEmpty());
}

TEST_F(ShardIndex, RefusesAnotherArchive) {
  const std::string index = text_;
  archive_ += std::string(512, '\0');
  EXPECT_THAT(refusal(index), AllOf(HasSubstr("a.tar.index: is of an archive of"),
                                    HasSubstr("remove it, and the headers of a.tar are read")));
  archive_.resize(archive_.size() - 512);
  archive_[100] ^= 1;
  EXPECT_THAT(refusal(index),
              HasSubstr("a.tar.index: does not fit a.tar: its hash is of other samples"));
}

TEST_F(ShardIndex, RefusesToBeCutOrChangedAtAnyByte) {
  for (size_t i = 0; i < text_.size(); ++i) {
    EXPECT_THAT(refusal(text_.substr(0, i)), HasSubstr("a.tar.index: ")) << i;
    std::string changed = text_;
    changed[i] ^= 1;
    EXPECT_THAT(refusal(changed), HasSubstr("a.tar.index: ")) << i;
  }
  EXPECT_THAT(refusal("hello"), HasSubstr("not the index of a shard"));
  EXPECT_THAT(refusal("shoal-shard-index 3 " + text_.substr(20)), HasSubstr("version 3"));
}

/// With a right hash nothing but the bounds stands between an index and the bytes.
TEST_F(ShardIndex, RefusesPlacesOutsideTheArchive) {
  const auto bytes = static_cast<int64_t>(archive_.size());
  for (const auto& [offset, size] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {513, 1}, {bytes + 512, 0}, {512, bytes - 511}, {512, INT64_MAX}}) {
    const std::string line = std::to_string(offset) + " " + std::to_string(size) + " - a.jpg\n";
    EXPECT_THAT(refusal("shoal-shard-index 1 " + std::to_string(bytes) + " 1 0\n" + line),
                HasSubstr("damaged in line 2"))
        << line;
  }
}

class ShardFile : public ::testing::Test {
 protected:
  void write(const Files& files) const { write_file(path_, tar_of(files)); }
  void write_index() const {
    const Shard shard(path_, Labels::kOptional);
    const MappedFile file(path_, "");
    write_file(path_ + ".index", emit_shard_index({shard.samples()}, file.bytes()));
  }
  std::string refusal(Labels labels = Labels::kRequired) const {
    return refusal_in([&] { Shard(path_, labels); });
  }

  ScratchFolder scratch_;
  std::string path_ = scratch_.file("a.tar");
};

TEST_F(ShardFile, GivesItsImagesWithAndWithoutAnIndex) {
  write({{"a.jpg", "first"}, {"a.cls", "3"}, {"b.png", "second"}, {"b.cls", "4"}});
  const Shard plain(path_, Labels::kRequired);
  write_index();
  const Shard indexed(path_, Labels::kRequired);
  EXPECT_EQ(indexed.samples(), plain.samples());
  const auto image = indexed.image(indexed.samples()[1]);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(image.data()), image.size()), "second");
}

TEST_F(ShardFile, BelievesNoIndexOfAnotherShard) {
  write({{"a.jpg", "first"}});
  write_index();
  write({{"b.jpg", "other"}});
  EXPECT_THAT(refusal(Labels::kIgnored), HasSubstr("a.tar.index: does not fit"));
}

TEST_F(ShardFile, HasLabelsInItsIndexToo) {
  write({{"a.jpg", "first"}});
  write_index();
  EXPECT_EQ(refusal(Labels::kIgnored), "taken");
  EXPECT_THAT(refusal(), HasSubstr("member 'a.jpg' has no class beside it"));
}

TEST_F(ShardFile, IsNamedWhereItIsMissing) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no 'a.tar' in"), HasSubstr("data.train.shards")));
}

TEST(ShardsInAFolder, AreThoseThatEndInTar) {
  const ScratchFolder scratch;
  EXPECT_THAT(refusal_in([&] { shards_in(scratch.path(), "next"); }),
              HasSubstr("no shard (*.tar) in it; next"));
  for (const char* name : {"b.tar", "a.tar", "a.tar.index", ".c.tar", "d.tar.tmp"}) {
    write_file(scratch.file(name), "");
  }
  EXPECT_THAT(shards_in(scratch.path(), ""),
              ElementsAre(scratch.file("a.tar"), scratch.file("b.tar")));
  EXPECT_THAT(refusal_in([&] { shards_in(scratch.file("none"), "next"); }),
              HasSubstr("cannot be listed"));
}

}  // namespace
}  // namespace shoal
