#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/inspect/ckpt.h"
#include "launch/inspect/inspect.h"
#include "launch/inspect/tensor_summary.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "tests/support/failing_reads.h"
#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::FailingReads;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::save_sample;
using testing::ScratchFolder;
using testing::write_file;

class CheckpointCommands : public ::testing::Test {
 protected:
  ScratchFolder run_;
  PosixFileSystem files_;
  std::ostringstream out_;

  std::string save(int64_t step, std::optional<double> score = {}) {
    return save_sample(files_, run_.file("ckpt"), {.step = step, .score = score});
  }
  nlohmann::json json() { return nlohmann::json::parse(out_.str()); }
  static void rot(const std::string& path) {
    const std::string shard = path + "/" + shard_name(0, 2);
    std::string bytes = read_file(shard);
    bytes.back() ^= 1;
    write_file(shard, bytes);
  }
};

TEST_F(CheckpointCommands, VerifyTellsARottenCheckpoint) {
  save(10);
  const std::string newest = save(20);
  EXPECT_EQ(checkpoint_verify({.checkpoint = {.path = run_.path()}}, out_), ExitCode::kOk);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("step 20"), HasSubstr("valid")));
  rot(newest);
  EXPECT_THROW(checkpoint_verify({.checkpoint = {.path = newest}}, out_), CheckpointError);
  out_.str("");
  EXPECT_EQ(checkpoint_verify({.checkpoint = {.path = run_.path()}, .json = true}, out_),
            ExitCode::kCheckpoint);
  EXPECT_EQ(json()["valid"], false);
  EXPECT_THAT(json()["error"].get<std::string>(), HasSubstr(shard_name(0, 2)));
}

TEST_F(CheckpointCommands, ListNamesAllOfARunAlsoTheDamaged) {
  save(10, 0.5);
  write_file(save(20) + "/" + kManifestName, "{}");
  save(30);
  EXPECT_EQ(checkpoint_list({.checkpoint = {.path = run_.path()}, .json = true}, out_),
            ExitCode::kCheckpoint);
  const nlohmann::json rows = json()["checkpoints"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["step"], 10);
  EXPECT_EQ(rows[0]["score"], 0.5);
  EXPECT_TRUE(rows[1].contains("error"));
  EXPECT_EQ(rows[2]["files"], 2);
  out_.str("");
  EXPECT_EQ(checkpoint_list({.checkpoint = {.path = run_.path()}}, out_), ExitCode::kCheckpoint);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("0.5000"), HasSubstr("damaged"), HasSubstr("step-")));
}

TEST_F(CheckpointCommands, ListTellsOfShardsThatAreCutOrMissing) {
  const std::string cut = save(10) + "/" + shard_name(0, 2);
  const std::string missing = save(20) + "/" + shard_name(1, 2);
  rot(save(30));  // of the right size: only `verify` reads the data
  const std::string bytes = read_file(cut);
  write_file(cut, bytes.substr(0, bytes.size() - 1));
  std::filesystem::remove(missing);
  EXPECT_EQ(checkpoint_list({.checkpoint = {.path = run_.path()}, .json = true}, out_),
            ExitCode::kCheckpoint);
  const nlohmann::json rows = json()["checkpoints"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows[0]["error"].get<std::string>(),
              AllOf(HasSubstr(cut), HasSubstr(std::to_string(bytes.size() - 1) + " bytes")));
  EXPECT_THAT(rows[1]["error"].get<std::string>(), HasSubstr(missing + "' is missing"));
  EXPECT_EQ(rows[2]["step"], 30);
  out_.str("");
  EXPECT_EQ(checkpoint_list({.checkpoint = {.path = run_.path()}}, out_), ExitCode::kCheckpoint);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("damaged: '" + cut), HasSubstr("damaged: '" + missing)));
}

TEST_F(CheckpointCommands, TellWhatCannotBeReadFromWhatIsDamaged) {
  const std::string older = save(10), newest = save(20);
  const std::string shard = newest + "/" + shard_name(1, 2);
  const FailingReads failing(shard, EACCES);
  EXPECT_THROW(checkpoint_verify({.checkpoint = {.path = run_.path()}}, out_), StorageError);
  EXPECT_THROW(checkpoint_digest({.checkpoint = {.path = run_.path()}}, out_), StorageError);
  EXPECT_THROW(inspect({.checkpoint = {.path = run_.path()}}, {}, out_), StorageError);
  EXPECT_EQ(checkpoint_verify({.checkpoint = {.path = run_.path()}, .json = true}, out_),
            ExitCode::kStorage);
  EXPECT_TRUE(json()["valid"].is_null());
  EXPECT_THAT(json()["error"].get<std::string>(), HasSubstr(shard));
  out_.str("");
  EXPECT_EQ(checkpoint_list({.checkpoint = {.path = run_.path()}}, out_), ExitCode::kStorage);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr(older), HasSubstr("not read: '" + shard)));
  EXPECT_THAT(out_.str(), Not(HasSubstr("damaged")));
}

TEST_F(CheckpointCommands, PassOverWhatCannotBeReadIfTold) {
  const std::string older = save(10);
  const std::string shard = save(20) + "/" + shard_name(1, 2);
  const FailingReads failing(shard, EACCES);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(checkpoint_verify({.checkpoint = {.path = run_.path(), .override_model = true}}, out_),
            ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr(older));
  EXPECT_EQ(inspect({.checkpoint = {.path = run_.path(), .override_model = true}}, {}, out_),
            ExitCode::kOk);
  EXPECT_THROW(checkpoint_diff({.checkpoint = {.path = run_.path()}, .other = older}, out_),
               StorageError);
  EXPECT_EQ(
      checkpoint_diff({.checkpoint = {.path = run_.path(), .override_model = true}, .other = older},
                      out_),
      ExitCode::kOk);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, AllOf(HasSubstr("warning: passing over"), HasSubstr(shard)));
  EXPECT_EQ(list_checkpoint_paths(run_.path()).size(), 2u);
}

TEST_F(CheckpointCommands, ListOfOnesThatCanAllBeReadIsOk) {
  const std::string path = save(10);
  for (const std::string& given : {run_.path(), run_.file("ckpt"), path}) {
    EXPECT_EQ(checkpoint_list({.checkpoint = {.path = given}}, out_), ExitCode::kOk) << given;
    EXPECT_EQ(checkpoint_list({.checkpoint = {.path = given}, .json = true}, out_), ExitCode::kOk)
        << given;
  }
}

TEST_F(CheckpointCommands, ListRefusesAFolderThatIsNotThere) {
  for (const std::string& given : {run_.file("absent"), run_.file("absent/")}) {
    for (const bool as_json : {false, true}) {
      try {
        checkpoint_list({.checkpoint = {.path = given}, .json = as_json}, out_);
        ADD_FAILURE() << given;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
      }
      EXPECT_EQ(out_.str(), "");
    }
  }
}

TEST_F(CheckpointCommands, DigestIsOfTheContent) {
  const std::string path = save(10);
  checkpoint_digest({.checkpoint = {.path = path}}, out_);
  EXPECT_EQ(out_.str(), content_digest(CheckpointReader(path)) + "\n");
}

TEST_F(CheckpointCommands, DiffTellsWhatDiffers) {
  const std::string a = save(10), b = save(11);
  EXPECT_EQ(checkpoint_diff({.checkpoint = {.path = a}, .other = a, .json = true}, out_),
            ExitCode::kOk);
  EXPECT_EQ(json()["equal"], true);
  EXPECT_EQ(checkpoint_diff({.checkpoint = {.path = a}, .other = a}, out_), ExitCode::kOk);
  out_.str("");
  EXPECT_EQ(checkpoint_diff({.checkpoint = {.path = a}, .other = b, .json = true}, out_), kDiffers);
  EXPECT_EQ(json()["equal"], false);
  out_.str("");
  EXPECT_EQ(checkpoint_diff({.checkpoint = {.path = a}, .other = b}, out_), kDiffers);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("step\n  a: 10\n  b: 11"), HasSubstr("layer0.weight")));
}

TEST_F(CheckpointCommands, InspectShowsOverviewTensorsAndDifferences) {
  const std::string a = save(10), b = save(11);
  inspect({.checkpoint = {.path = run_.path()}, .json = true}, {}, out_);
  EXPECT_EQ(json()["step"], 11);
  EXPECT_EQ(json()["values"]["t"], -3);
  EXPECT_EQ(json()["written_by"]["world"], "2");
  out_.str("");
  inspect({.checkpoint = {.path = a}, .tensors = true, .json = true}, {}, out_);
  EXPECT_EQ(json()["list"].size(), 12u);
  EXPECT_EQ(json()["list"][0]["dtype"], "I64");
  out_.str("");
  inspect({.checkpoint = {.path = a}, .tensors = true}, {}, out_);
  EXPECT_THAT(out_.str(), HasSubstr("layer0.experts.0.fc1.weight [5,3]"));
  out_.str("");
  EXPECT_EQ(inspect({.checkpoint = {.path = a}, .diff = b}, {}, out_), kDiffers);
  EXPECT_THAT(out_.str(), HasSubstr("10 tensors differ"));
  EXPECT_EQ(inspect({.checkpoint = {.path = a}, .diff = b, .json = true}, {}, out_), kDiffers);
  EXPECT_EQ(inspect({.checkpoint = {.path = a}, .diff = a, .json = true}, {}, out_), ExitCode::kOk);
  out_.str("");
  EXPECT_EQ(inspect({.checkpoint = {.path = a}, .diff = a}, {}, out_), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "all tensors are equal\n");
}

TEST_F(CheckpointCommands, InspectShowsTheExpertsOfTheCheckpointsStep) {
  const std::string path = save(10);
  EXPECT_THROW(inspect({.checkpoint = {.path = path}, .experts = true}, {}, out_), DataError);
  write_file(run_.file("experts.jsonl"),
             R"({"step":5,"layer":"blocks.0","load":[1,1]})"
             "\n"
             R"({"step":9,"layer":"blocks.0","load":[3,1],"load_cv":0.5,"rank_overload":[1.5,0.5]})"
             "\n"
             R"({"step":9,"layer":"blocks.2","load":[0,8],"load_cv":1.0,"dead_experts":1})"
             "\n"
             R"({"step":12,"layer":"blocks.0","load":[2,2]})"
             "\n");
  inspect({.checkpoint = {.path = run_.path()}, .experts = true}, {}, out_);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("step 9"), HasSubstr("blocks.0: 0=75.0% 1=25.0%"),
                                HasSubstr("blocks.2: 0=0.0% 1=100.0%"), HasSubstr("0.500"),
                                HasSubstr("blocks.0: 0=1.50 1=0.50")));
  out_.str("");
  write_file(run_.file("experts.jsonl"), read_file(run_.file("experts.jsonl")) + "{\"step\":");
  inspect({.checkpoint = {.path = path + "/."}, .json = true, .experts = true}, {}, out_);
  EXPECT_EQ(json()["step"], 9);
  EXPECT_EQ(json()["layers"].size(), 2u);
  write_file(run_.file("experts.jsonl"), "{\"step\":1}\n");
  try {
    inspect({.checkpoint = {.path = path}, .experts = true}, {}, out_);
    ADD_FAILURE() << "read a broken record";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("experts.jsonl:1"));
  }
}

TEST_F(CheckpointCommands, InspectShowsTheMetricsOfAllLayers) {
  const std::string path = save(10);
  write_file(run_.file("experts.jsonl"), R"({"step":9,"layer":"blocks.0","load":[3,1]})"
                                         "\n");
  inspect({.checkpoint = {.path = path}, .json = true, .experts = true}, {}, out_);
  EXPECT_EQ(json()["metrics"], nlohmann::json::object());
  write_file(run_.file("metrics.jsonl"),
             R"({"step":4,"event":"eval","router_agreement":0.25})"
             "\n"
             R"({"step":8,"event":"eval","router_agreement":0.75})"
             "\n"
             R"({"step":9,"loss":1.5,"moe_load_p95":1.625,"moe_dead_units":3})"
             "\n"
             R"({"step":11,"loss":1.5,"moe_load_p95":2.0})"
             "\n"
             R"({"step":12,"event":"eval","router_agreement":0.5})"
             "\n");
  out_.str("");
  inspect({.checkpoint = {.path = path}, .json = true, .experts = true}, {}, out_);
  EXPECT_EQ(
      json()["metrics"],
      (nlohmann::json{{"moe_load_p95", 1.625}, {"moe_dead_units", 3}, {"router_agreement", 0.75}}));
  out_.str("");
  inspect({.checkpoint = {.path = path}, .experts = true}, {}, out_);
  EXPECT_THAT(out_.str(), ::testing::ContainsRegex(" moe_load_p95 +1.6250\n +moe_dead_units +3\n"
                                                   " +router_agreement +0.7500\n"));
}

TEST_F(CheckpointCommands, InspectDrawsTheLoadsUpToTheCheckpoint) {
  const std::string path = save(10), picture = run_.file("loads.svg");
  const auto draw = [&](const std::string& file) {
    return inspect({.checkpoint = {.path = path}, .experts = true, .heat_map = file}, {}, out_);
  };
  EXPECT_THROW(draw(picture), DataError);  // no records
  EXPECT_FALSE(std::filesystem::exists(picture));
  write_file(run_.file("experts.jsonl"), R"({"step":5,"layer":"blocks.0","load":[3,1]})"
                                         "\n"
                                         R"({"step":8,"layer":"blocks.0","load":[2,2]})"
                                         "\n"
                                         R"({"step":12,"layer":"blocks.0","load":[0,4]})"
                                         "\n");
  write_file(picture, "an older one");
  EXPECT_EQ(draw(picture), ExitCode::kOk);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("step 8"), HasSubstr("heat map of the logged steps up to 8: ")));
  const std::string svg = read_file(picture);
  EXPECT_THAT(svg, AllOf(HasSubstr(">blocks.0</text>"), HasSubstr(">5</text>"),
                         HasSubstr(">8</text>"), Not(HasSubstr(">12</text>"))));
  EXPECT_THAT(svg, HasSubstr("of " + std::filesystem::path(run_.path()).filename().string()));
  EXPECT_THROW(draw(run_.file("none/loads.svg")), StorageError);
  try {
    draw(run_.file("metrics.jsonl"));
    ADD_FAILURE() << "drew into a file that is no picture";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("metrics.svg"));
  }
}

TEST(TensorSummary, DecodesEveryDtype) {
  const auto first = [](Dtype dtype, const std::string& bytes) {
    return decode_numbers(dtype, bytes).at(0);
  };
  EXPECT_EQ(first(Dtype::kF64, std::string("\0\0\0\0\0\0\xf8\xbf", 8)), -1.5);
  EXPECT_EQ(first(Dtype::kF32, std::string("\0\0\xc0\x3f", 4)), 1.5);
  EXPECT_EQ(first(Dtype::kBF16, "\xc0\xbf"), -1.5);
  EXPECT_EQ(first(Dtype::kF16, std::string("\0\x3e", 2)), 1.5);
  EXPECT_EQ(first(Dtype::kF16, std::string("\x01\x80", 2)), -std::ldexp(1.0, -24));
  EXPECT_TRUE(std::isinf(first(Dtype::kF16, std::string("\0\x7c", 2))));
  EXPECT_EQ(first(Dtype::kI64, std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8)), -2.0);
  EXPECT_EQ(first(Dtype::kI32, std::string("\x02\0\0\0", 4)), 2.0);
  EXPECT_EQ(first(Dtype::kU8, "\xff"), 255.0);
  EXPECT_EQ(first(Dtype::kBool, "\x01"), 1.0);
}

TEST_F(CheckpointCommands, SummariesMatchTheNumbers) {
  const CheckpointReader reader(save(10));
  const ManifestTensor& tensor = *reader.manifest().find_tensor("layer1.mask");
  std::string bytes(tensor.bytes, '\0');
  reader.read(tensor, bytes.data());
  double squares = 0, largest = 0;
  for (const char byte : bytes) {
    const double number = static_cast<unsigned char>(byte);
    squares += number * number;
    largest = std::max(largest, number);
  }
  const TensorSummary summary = summarise(reader, tensor);
  EXPECT_DOUBLE_EQ(summary.norm, std::sqrt(squares));
  EXPECT_EQ(summary.max, largest);
  EXPECT_EQ(summary.num_not_finite, 0);
}

}  // namespace
}  // namespace shoal
