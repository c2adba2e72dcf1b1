#include "models/formats/foreign_weights.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "tests/support/foreign_model.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::save_tensors;
using testing::ScratchFolder;
using testing::some_tensors;
using testing::Tensors;
using testing::write_file;

class ForeignWeightsFiles : public ::testing::Test {
 protected:
  ScratchFolder folder_;
  const Tensors a_ = some_tensors({{"a", {2, 3}}}), b_ = some_tensors({{"b", {4}}});

  void save_shards(const std::string& index) {
    save_tensors(folder_.file("one.safetensors"), a_);
    save_tensors(folder_.file("two.safetensors"), b_);
    write_file(folder_.file("model.safetensors.index.json"), index);
  }
  /// What refuses `path`.
  static std::string refusal(const std::string& path) {
    try {
      const ForeignWeights weights(path);
    } catch (const CheckpointError& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return "none";
  }
};

TEST_F(ForeignWeightsFiles, AreReadFromAFolderOrAFileWithTheConfigBeside) {
  save_tensors(folder_.file("model.safetensors"), a_);
  write_file(folder_.file("config.json"),
             R"({"n": 3, "part": {"rate": 0.5, "on": true}, "no": null})");
  for (const std::string& path : {folder_.path(), folder_.file("model.safetensors")}) {
    const ForeignWeights weights(path);
    ASSERT_NE(weights.find("a"), nullptr);
    EXPECT_TRUE(at::equal(weights.read(*weights.find("a")), a_.at("a")));
    EXPECT_EQ(weights.config().integer("n"), 3);
    EXPECT_EQ(weights.config().section("part").number("rate"), 0.5);
    EXPECT_EQ(weights.config().section("part").boolean("on"), true);
    EXPECT_EQ(weights.config().integer("no"), std::nullopt);
    EXPECT_EQ(weights.config().section("none").text("x"), std::nullopt);
    EXPECT_THROW(weights.config().text("n"), Error);
  }
}

TEST_F(ForeignWeightsFiles, AreReadFromShardsThroughLinks) {
  save_shards(
      R"({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const std::string stored = folder_.file("blob");
  std::filesystem::rename(folder_.file("two.safetensors"), stored);
  std::filesystem::create_symlink(stored, folder_.file("two.safetensors"));
  const ForeignWeights weights(folder_.path());
  EXPECT_TRUE(at::equal(weights.read(*weights.find("a")), a_.at("a")));
  EXPECT_TRUE(at::equal(weights.read(*weights.find("b")), b_.at("b")));
}

TEST_F(ForeignWeightsFiles, IndexThatDoesNotFitItsShardsIsRefused) {
  save_shards(R"({"weight_map": {"a": "two.safetensors", "b": "two.safetensors"}})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("lists the tensor 'a' in two.safetensors"));
  save_shards(R"({"weight_map": {"a": "one.safetensors", "b": "gone.safetensors"}})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("gone.safetensors"));
  save_shards(R"({"weight_map": {"a": "../one.safetensors"}})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("expected the name of a file"));
  save_shards(R"({"weight_map": {"a": 1}})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("weight_map.a is 1, expected a string"));
  save_shards(R"({"weight_map": [1]})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("weight_map is [1], expected an object"));
  save_shards("[]");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("index.json': is not a JSON object"));
  save_shards("{}");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("has no weight_map"));
  Tensors both = a_;
  both.insert(b_.begin(), b_.end());
  save_shards(R"({"weight_map": {"a": "one.safetensors"}})");
  save_tensors(folder_.file("one.safetensors"), both);
  EXPECT_THAT(refusal(folder_.path()),
              AllOf(HasSubstr("does not list the tensor 'b' of '"), HasSubstr("one.safetensors'")));
}

TEST_F(ForeignWeightsFiles, WhatIsNotSafetensorsIsRefusedByName) {
  EXPECT_THAT(refusal(folder_.file("none")), HasSubstr("none' does not exist"));
  write_file(folder_.file("pytorch_model.bin"), "PK\x03\x04 and so on");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("launch/pickle_to_safetensors"));
  EXPECT_THAT(refusal(folder_.file("pytorch_model.bin")),
              HasSubstr("launch/pickle_to_safetensors"));
  save_tensors(folder_.file("model.safetensors"), a_);
  std::string bytes = testing::read_file(folder_.file("model.safetensors"));
  write_file(folder_.file("model.safetensors"), bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("model.safetensors': "));
  save_tensors(folder_.file("model.safetensors"), a_);
  write_file(folder_.file("config.json"), "{");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("config.json': is not a JSON object"));
}

TEST_F(ForeignWeightsFiles, LinksThatLeadNowhereAreNamed) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    save_tensors(folder_.file("model.safetensors"), a_);
    std::filesystem::remove(folder_.file(name));
    std::filesystem::create_symlink("gone", folder_.file(name));
    EXPECT_THAT(refusal(folder_.path()), HasSubstr(std::string(name) + "': a link: No such file"));
    std::filesystem::remove(folder_.file(name));
  }
  std::filesystem::create_symlink("gone", folder_.file("link"));
  EXPECT_THAT(refusal(folder_.file("link")),
              HasSubstr("link' is a link to 'gone', which does not"));
}

TEST_F(ForeignWeightsFiles, SizesOfHostileShapesAreRefused) {
  // Nothing is stored: another size is zero.
  for (const int64_t size : {int64_t{0}, int64_t{1} << 31, int64_t{1} << 60}) {
    std::vector<SafetensorsEntry> entries{{"a", Dtype::kF32, {size, 0}, 0, 0}};
    write_file(folder_.file("model.safetensors"), emit_safetensors_header(entries, {}));
    const ForeignWeights weights(folder_.path());
    try {
      weights.shape_of("a", 2);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      EXPECT_THAT(error.what(), HasSubstr("expected sizes from 1 to 2147483647"));
    }
  }
}

TEST_F(ForeignWeightsFiles, NamesAreKnownWithoutTheirPrefix) {
  save_tensors(folder_.file("model.safetensors"),
               some_tensors({{"x.h.0.w", {1}}, {"x.h.1.w", {1}}, {"x.h.3.w", {1}}, {"head", {1}}}));
  ForeignWeights weights(folder_.path());
  weights.strip("x.");
  EXPECT_NE(weights.find("h.0.w"), nullptr);
  EXPECT_NE(weights.find("head"), nullptr);
  EXPECT_EQ(weights.find("h.1.w")->stored_name, "x.h.1.w");
  EXPECT_EQ(weights.count_blocks("h."), 2);  // the gap ends it
  save_tensors(folder_.file("model.safetensors"), some_tensors({{"x.w", {1}}, {"w", {1}}}));
  ForeignWeights twice(folder_.path());
  EXPECT_THROW(twice.strip("x."), CheckpointError);
}

}  // namespace
}  // namespace shoal
