#include "parallel/checkpoint/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/base/error.h"
#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;
using testing::sample_data;
using testing::SampleCheckpoint;
using testing::save_sample;
using testing::ScratchFolder;
using testing::write_file;

std::string error_of(const std::string& path) {
  try {
    CheckpointReader(path).verify_data();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

class Checkpoint : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  PosixFileSystem files_;
  std::string ckpt_ = scratch_.file("ckpt");

  std::string save(const SampleCheckpoint& sample = {}) {
    return save_sample(files_, ckpt_, sample);
  }
  /// What verify says of the checkpoint while `name` holds `bytes`.
  std::string error_with(const std::string& path, const std::string& name,
                         const std::string& bytes) {
    const std::string good = read_file(path + "/" + name);
    write_file(path + "/" + name, bytes);
    const std::string error = error_of(path);
    write_file(path + "/" + name, good);
    return error;
  }
};

TEST_F(Checkpoint, ReadsBackEveryTensor) {
  const std::string path = save();
  EXPECT_EQ(error_of(path), "");
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.manifest().step, 10);
  EXPECT_EQ(reader.manifest().tensors.size(), 12u);
  EXPECT_EQ(read_file(scratch_.file("LATEST")), "step-00000010\n");
  const ManifestTensor* tensor = reader.manifest().find_tensor("layer1.experts.1.fc1.weight");
  ASSERT_NE(tensor, nullptr);
  std::string bytes(tensor->bytes, '\0');
  reader.read(*tensor, bytes.data());
  EXPECT_EQ(bytes, read_file(path + "/" + shard_name(1, 2)).substr(tensor->offset, tensor->bytes));
  EXPECT_EQ(tensor->offset % 4, 0u);
}

TEST_F(Checkpoint, ChecksFilesOfManyBlocks) {
  SampleCheckpoint sample;
  sample.num_shards = 1;
  sample.rows = 700000;  // 8.4 and 5.6 MB: tensors that begin, end and run through blocks
  const std::string path = save(sample);
  EXPECT_EQ(CheckpointReader(path).manifest().files[0].block_crcs.size(), 4u);
  EXPECT_EQ(error_of(path), "");
  std::string bytes = read_file(path + "/" + shard_name(0, 1));
  bytes[2 * kBlockBytes + 5] = static_cast<char>(~bytes[2 * kBlockBytes + 5]);
  EXPECT_THAT(error_with(path, shard_name(0, 1), bytes),
              AllOf(HasSubstr("bytes 8388608..12582912"), HasSubstr("layer0.experts.0.fc1.weight"),
                    Not(HasSubstr("layer0.weight"))));
}

TEST_F(Checkpoint, MayHoldATensorWithoutBytesWhereOneOfManyBlocksBegins) {
  const std::string temporary = make_save_folder(files_, ckpt_, 10);
  const ShardLayout layout = lay_out_shard(
      {{"a", Dtype::kF32, {3 << 20}, 0, 0}, {"b", Dtype::kF64, {0}, 0, 0}}, "run-a", 10, 0, 1);
  Manifest manifest;
  manifest.run_id = "run-a";
  manifest.step = 10;
  const std::string data = sample_data(layout.data_bytes(), 0, 10);
  add_shard(manifest, layout, write_shard(files_, temporary, layout, data));
  std::reverse(manifest.tensors.begin(), manifest.tensors.end());  // by name, not by place
  EXPECT_EQ(error_of(commit_checkpoint(files_, ckpt_, temporary, manifest)), "");
}

TEST_F(Checkpoint, IsDetectedWhenAFileIsCutAtAnyLength) {
  const std::string path = save();
  for (const std::string& name : {std::string(kManifestName), shard_name(0, 2), shard_name(1, 2)}) {
    const std::string good = read_file(path + "/" + name);
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_THAT(error_with(path, name, good.substr(0, length)), HasSubstr(name)) << length;
    }
    EXPECT_NE(error_with(path, name, good + "x"), "");
  }
}

TEST_F(Checkpoint, IsDetectedWhenAnyBitFlips) {
  const std::string path = save();
  for (const std::string& name : {std::string(kManifestName), shard_name(0, 2), shard_name(1, 2)}) {
    const std::string good = read_file(path + "/" + name);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_THAT(error_with(path, name, bad), HasSubstr(name)) << bit;
    }
  }
}

TEST_F(Checkpoint, NamesTensorAndBytesOfARottenPayload) {
  const std::string path = save();
  const CheckpointReader reader(path);
  const ManifestTensor* tensor = reader.manifest().find_tensor("layer0.mask");
  std::string bytes = read_file(path + "/" + shard_name(0, 2));
  bytes[tensor->offset + 1] ^= 1;
  EXPECT_THAT(
      error_with(path, shard_name(0, 2), bytes),
      AllOf(HasSubstr("layer0.mask"), HasSubstr("bytes 0.."), Not(HasSubstr("layer0.weight"))));
  write_file(path + "/" + shard_name(0, 2), bytes);
  std::string out(tensor->bytes, '\0');
  try {
    reader.read(*tensor, out.data());
    ADD_FAILURE() << "read a rotten tensor";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tensor 'layer0.mask', bytes " + std::to_string(tensor->offset)));
  }
}

TEST_F(Checkpoint, RefusesMissingExtraAndSwappedShards) {
  const std::string path = save();
  const std::string first = path + "/" + shard_name(0, 2), second = path + "/" + shard_name(1, 2);
  const std::string a = read_file(first), b = read_file(second);
  write_file(first, b);
  write_file(second, a);
  EXPECT_THAT(error_of(path), HasSubstr("shard-00000"));
  write_file(first, a);
  std::filesystem::remove(second);
  EXPECT_THAT(error_of(path), AllOf(HasSubstr("shard-00001-of-00002.safetensors' is missing"),
                                    HasSubstr("layer1.")));
  std::filesystem::create_symlink(first, second);
  EXPECT_THAT(error_of(path), HasSubstr("is a link to '" + first + "'; links are not followed"));
  std::filesystem::remove(second);
  write_file(second, b);
  write_file(path + "/" + shard_name(2, 3), b);
  EXPECT_THAT(error_of(path), HasSubstr("does not belong"));
}

TEST_F(Checkpoint, RefusesShardsOfAnotherStepOrRun) {
  const std::string path = save();
  const std::string later = save({.step = 11});
  EXPECT_THAT(error_with(path, shard_name(1, 2), read_file(later + "/" + shard_name(1, 2))),
              AllOf(HasSubstr(shard_name(1, 2)), HasSubstr("step '11', not of 10")));
  const std::string other =
      save_sample(files_, scratch_.file("other"), {.run_id = "run-b", .step = 10});
  EXPECT_THAT(error_with(path, shard_name(0, 2), read_file(other + "/" + shard_name(0, 2))),
              HasSubstr("run_id 'run-b', not of run-a"));
}

TEST_F(Checkpoint, RefusesAFolderNamedAfterAnotherStep) {
  const std::string path = save();
  std::filesystem::rename(path, ckpt_ + "/step-00000020");
  EXPECT_THAT(error_of(ckpt_ + "/step-00000020"), HasSubstr("checkpoint of step 10"));
  std::filesystem::rename(ckpt_ + "/step-00000020", ckpt_ + "/kept");
  EXPECT_EQ(error_of(ckpt_ + "/kept"), "");
}

TEST_F(Checkpoint, RefusesPickles) {
  write_file(scratch_.file("model.pt"), std::string("PK\x03\x04", 4) + "rest");
  write_file(scratch_.file("model.bin"), "plain");
  EXPECT_THAT(error_of(scratch_.file("model.pt")), HasSubstr("pickle checkpoints are not loaded"));
  EXPECT_THAT(error_of(scratch_.file("model.bin")), HasSubstr("is a file"));
  EXPECT_THAT(error_of(scratch_.file("none")), HasSubstr("No such file"));
}

TEST_F(Checkpoint, HasADigestOfItsContentAlone) {
  const std::string digest = content_digest(CheckpointReader(save()));
  EXPECT_THAT(digest, ::testing::MatchesRegex("sha256:[0-9a-f]{64}"));
  const auto digest_of = [&](const SampleCheckpoint& sample) {
    return content_digest(CheckpointReader(save_sample(files_, scratch_.file("other"), sample)));
  };
  EXPECT_EQ(digest_of({.run_id = "run-b", .score = 0.5}), digest);
  EXPECT_NE(digest_of({.step = 11}), digest);
  EXPECT_NE(digest_of({.rows = 6}), digest);
}

TEST_F(Checkpoint, DigestDoesNotDependOnShards) {
  const auto save_as = [&](bool one_shard) {
    const std::string folder = scratch_.file(one_shard ? "one" : "two");
    Manifest manifest;
    manifest.run_id = "run";
    manifest.step = 3;
    const std::string temporary = make_save_folder(files_, folder, 3);
    const std::vector<SafetensorsEntry> both{{"a", Dtype::kF32, {2}, 0, 0},
                                             {"b", Dtype::kF32, {3}, 0, 0}};
    const int64_t shards = one_shard ? 1 : 2;
    for (int64_t i = 0; i < shards; ++i) {
      const std::vector<SafetensorsEntry> part =
          one_shard ? both : std::vector<SafetensorsEntry>{both[static_cast<size_t>(i)]};
      const ShardLayout layout = lay_out_shard(part, "run", 3, i, shards);
      const std::string data =
          one_shard ? "aaaaaaaabbbbbbbbbbbb" : std::string(layout.data_bytes(), i == 0 ? 'a' : 'b');
      add_shard(manifest, layout, write_shard(files_, temporary, layout, data));
    }
    return content_digest(CheckpointReader(commit_checkpoint(files_, folder, temporary, manifest)));
  };
  EXPECT_EQ(save_as(true), save_as(false));
}

}  // namespace
}  // namespace shoal
