#include "runtime/data/shards/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/verify_shards.h"
#include "tests/parsers/image_fixture.h"
#include "tests/parsers/tar_fixture.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using ::testing::SizeIs;
using testing::write_file;

std::string image_file(uint8_t value) {
  return testing::png_of(testing::plain({value, 2, 3}, 6), 2, 3, PNG_FORMAT_RGB);
}

class ShardWriting : public ::testing::Test {
 protected:
  ShardWriting() {
    for (const char* name :
         {"in/dog/b.png", "in/cat/2.PNG", "in/cat/1.jpg", "in/cat/deep/3.JPEG"}) {
      fs::create_directories(fs::path(scratch_.file(name)).parent_path());
      write_file(scratch_.file(name), image_file(static_cast<uint8_t>(images_.size())));
      images_[fs::path(name).filename().string()] = read_file(scratch_.file(name));
    }
    plan_ = {.folder = scratch_.file("in"), .out = scratch_.file("out"), .has_classes = true};
    fs::create_directory(plan_.out);
  }

  std::map<std::string, std::string> files_out() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(plan_.out)) {
      files[entry.path().filename().string()] = read_file(entry.path().string());
    }
    return files;
  }
  void clear_out() const {
    fs::remove_all(plan_.out);
    fs::create_directory(plan_.out);
  }
  std::vector<std::string> findings(bool decodes = true) const {
    return verify_shards(shards_in(plan_.out, ""), decodes).findings;
  }

  testing::ScratchFolder scratch_;
  std::map<std::string, std::string> images_;  ///< by name without folders
  PackPlan plan_;
  PosixFileSystem files_;
};

TEST_F(ShardWriting, KeepsTheOrderAndTheBytesOfAFolder) {
  const PackedShards packed = pack_images(plan_, files_);
  EXPECT_EQ(packed.num_samples, 4);
  EXPECT_EQ(packed.num_shards, 1);
  const Shard shard(plan_.out + "/shard-000000.tar", Labels::kRequired);
  EXPECT_EQ(packed.bytes, std::ssize(read_file(shard.path())));
  std::vector<std::string> found;
  for (const ShardSample& sample : shard.samples()) {
    const auto bytes = shard.image(sample);
    for (const auto& [name, image] : images_) {
      if (std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != image) continue;
      found.push_back(sample.name + " " + std::to_string(*sample.label) + " " + name);
    }
  }
  EXPECT_THAT(found, ElementsAre("000000000.jpg 0 1.jpg", "000000001.png 0 2.PNG",
                                 "000000002.jpg 0 3.JPEG", "000000003.png 1 b.png"));
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(ShardWriting, NamesClassesAndFilesInTheIndex) {
  pack_images(plan_, files_);
  const Shard shard(plan_.out + "/shard-000000.tar", Labels::kRequired);
  EXPECT_THAT(shard.class_names(), ElementsAre("cat", "dog"));
  std::vector<std::string> names;
  for (const ShardSample& sample : shard.samples()) names.push_back(sample.file);
  EXPECT_THAT(names, ElementsAre("cat/1.jpg", "cat/2.PNG", "cat/deep/3.JPEG", "dog/b.png"));
}

TEST_F(ShardWriting, NumbersClassesAsOtherShardsDo) {
  pack_images(plan_, files_);
  PackPlan other{
      .folder = scratch_.file("other"), .out = scratch_.file("other_out"), .classes_of = plan_.out};
  fs::create_directory(other.out);
  fs::create_directories(other.folder + "/dog");
  write_file(other.folder + "/dog/x.png", image_file(9));
  pack_images(other, files_);
  const Shard shard(other.out + "/shard-000000.tar", Labels::kRequired);
  EXPECT_EQ(shard.samples().front().label, 1) << "not 0, the place among its own folders";
  EXPECT_THAT(shard.class_names(), ElementsAre("cat", "dog"));

  fs::create_directories(other.folder + "/dg");
  write_file(other.folder + "/dg/x.png", image_file(9));
  const auto refusal = [&] {
    try {
      pack_images(other, files_);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal(), HasSubstr("other: its class 'dg' is not in data.class_names; did you "
                                   "mean 'dog'?"));
  clear_out();
  plan_.has_classes = false;
  pack_images(plan_, files_);
  EXPECT_THAT(refusal(), HasSubstr("out: its first index names no classes"));
}

TEST_F(ShardWriting, RefusesNamesThatAnIndexCannotHold) {
  write_file(scratch_.file("in/cat/a\tb.png"), image_file(9));
  EXPECT_THROW(pack_images(plan_, files_), DataError);
}

/// The index that version 1 wrote of such a shard.
TEST_F(ShardWriting, ReadsIndicesWithoutNames) {
  fs::remove_all(plan_.folder);
  for (const auto& [name, bytes] : {std::pair{"cat/a.jpg", "first"}, {"dog/b.jpg", "second"}}) {
    fs::create_directories((fs::path(plan_.folder) / name).parent_path());
    write_file(plan_.folder + "/" + name, bytes);
  }
  pack_images(plan_, files_);
  const std::string path = plan_.out + "/shard-000000.tar";
  write_file(shard_index_path(path),
             "shoal-shard-index 1 5120 2 "
             "45705866752b5bfa2c6ca51bda582b84438d9ef057e0ff32b2db1037b038736b\n"
             "512 5 0 000000000.jpg\n2560 6 1 000000001.jpg\n");
  const Shard shard(path, Labels::kRequired);
  EXPECT_THAT(shard.samples(), ElementsAre(ShardSample{"000000000.jpg", 512, 5, 0},
                                           ShardSample{"000000001.jpg", 2560, 6, 1}));
  EXPECT_THAT(shard.class_names(), IsEmpty());
  EXPECT_THAT(findings(/*decodes=*/false), IsEmpty());
}

TEST_F(ShardWriting, GivesTheSameBytesAgain) {
  pack_images(plan_, files_);
  const auto first = files_out();
  clear_out();
  pack_images(plan_, files_);
  EXPECT_EQ(files_out(), first);
  EXPECT_THAT(first, SizeIs(2));
}

TEST_F(ShardWriting, CutsShardsBySize) {
  plan_.shard_bytes = 2 * 4 * 512 + 1024;  // two samples: two headers, an image and a label each
  EXPECT_EQ(pack_images(plan_, files_).num_shards, 2);
  EXPECT_EQ(std::ssize(files_out().at("shard-000000.tar")), plan_.shard_bytes);
  EXPECT_EQ(Shard(plan_.out + "/shard-000001.tar", Labels::kRequired).samples().front().name,
            "000000002.jpg");
  clear_out();
  --plan_.shard_bytes;
  EXPECT_EQ(pack_images(plan_, files_).num_shards, 4) << "each larger than a shard may be";
}

TEST_F(ShardWriting, VerifiesThatAFoldersShardsNameTheSameClasses) {
  plan_.shard_bytes = 2 * 4 * 512 + 1024;
  pack_images(plan_, files_);
  EXPECT_THAT(findings(), IsEmpty());
  const MappedFile shard(plan_.out + "/shard-000001.tar", "");
  ShardList list = indexed_samples(shard).value();
  list.class_names[1] = "fox";
  write_file(shard_index_path(shard.path()), emit_shard_index(list, shard.bytes()));
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("shard-000001.tar.index: has other class names")));
}

TEST_F(ShardWriting, LeavesLabelsOutWithoutClasses) {
  plan_.has_classes = false;
  pack_images(plan_, files_);
  const Shard shard(plan_.out + "/shard-000000.tar", Labels::kIgnored);
  EXPECT_THAT(shard.samples(), SizeIs(4));
  EXPECT_EQ(files_out().at("shard-000000.tar").find(".cls"), std::string::npos);
  plan_.folder += "/dog";
  plan_.has_classes = true;
  EXPECT_THROW(pack_images(plan_, files_), DataError) << "no class folders";
  plan_.folder += "/none";
  EXPECT_THROW(pack_images(plan_, files_), DataError) << "no folder";
}

TEST_F(ShardWriting, GivesNoShardItsNameBeforeAllAreOnTheDisk) {
  plan_.shard_bytes = 4000;
  testing::FailingFileSystem counting;
  ASSERT_GT(pack_images(plan_, counting).num_shards, 1);
  const std::vector<std::string>& calls = counting.log();
  const auto is_rename = [](const std::string& call) { return call.starts_with("rename"); };
  const auto first_rename = std::ranges::find_if(calls, is_rename) - calls.begin();
  for (int64_t call = 0; call < counting.calls(); ++call) {
    clear_out();
    testing::FailingFileSystem failing;
    failing.fail_at = call;
    failing.error = ENOSPC;
    bool has_failed = false;
    try {
      pack_images(plan_, failing);
    } catch (const StorageError&) {
      has_failed = true;
    }
    EXPECT_TRUE(has_failed || call > first_rename) << calls[static_cast<size_t>(call)];
    for (const auto& [name, bytes] : files_out()) {
      if (!name.ends_with(".tar")) continue;
      EXPECT_GT(call, first_rename) << name;
      EXPECT_THAT(verify_shards({plan_.out + "/" + name}, true).findings, IsEmpty());
    }
  }
}

TEST_F(ShardWriting, IsVerified) {
  pack_images(plan_, files_);
  const std::string path = plan_.out + "/shard-000000.tar";
  const std::string good = read_file(path);
  std::string bad = good;
  bad[512 + 20] ^= 1;  // in the first image
  write_file(path, bad);
  EXPECT_THAT(findings(/*decodes=*/false), IsEmpty());
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("shard-000000.tar: member '000000000.jpg': ")));
  write_file(path, good.substr(0, good.size() - 1));
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("shard-000000.tar: byte")));
  write_file(path, testing::tar_of({{"a.png", image_file(1)}, {"a.cls", "x"}}));
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("member 'a.cls' holds 'x'")));
  write_file(path, testing::tar_of({{"a.png", image_file(1)}, {"a.cls", "1"}, {"b.png", "x"}}));
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("'b.png' has no class beside it"),
                                      HasSubstr("shard-000000.tar.index: is of an archive"),
                                      HasSubstr("member 'b.png': neither a JPEG nor a PNG")));
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 0; i < 30; ++i) files.emplace_back(std::to_string(i) + ".png", "");
  write_file(path, testing::tar_of(files));
  EXPECT_THAT(findings(), SizeIs(kMostFindings));
  EXPECT_THAT(verify_shards({scratch_.file("none.tar")}, false).findings,
              ElementsAre(HasSubstr("no 'none.tar' in")));
}

}  // namespace
}  // namespace shoal
