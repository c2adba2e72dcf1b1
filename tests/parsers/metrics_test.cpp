#include "runtime/records/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::FailingFileSystem;
using ::testing::HasSubstr;

class Metrics : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("shoal_metrics_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string text(const char* name) const {
    std::ifstream file(path(name));
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  static MetricsRecord record(int64_t step) {
    return MetricsRecord().add("step", step).add_exact("loss", 1.0 / 3.0);
  }

 private:
  fs::path folder_;
};

TEST_F(Metrics, HexFloatsHoldEveryBit) {
  for (const double value : {1.0 / 3.0, -0.0, 5e-324, 1e300}) {
    EXPECT_EQ(std::signbit(std::strtod(hex_float(value).c_str(), nullptr)), std::signbit(value));
    EXPECT_EQ(std::strtod(hex_float(value).c_str(), nullptr), value);
  }
}

TEST_F(Metrics, WritesOneObjectALineInTheOrderOfItsKeys) {
  JsonLines lines(path("m.jsonl"), 0);
  lines.write(record(1));
  EXPECT_EQ(text("m.jsonl"),
            "{\"step\":1,\"loss\":0.3333333333333333,\"loss_hex\":\"0x1.5555555555555p-2\"}\n");
}

TEST_F(Metrics, NotFiniteNumbersAreNullWithTheirHexText) {
  const std::string json = MetricsRecord().add_exact("loss", std::nan("")).to_json();
  EXPECT_THAT(json, HasSubstr("\"loss\":null"));
  EXPECT_THAT(json, HasSubstr("nan"));
}

TEST_F(Metrics, NotANumberHasNoSign) {
  CsvTable table(path("m.csv"), {"step", "loss", "loss_hex"}, 0);
  table.write(MetricsRecord().add("step", int64_t{1}).add_exact("loss", -std::nan("")));
  table.write(MetricsRecord().add("step", int64_t{2}).add_exact("loss", -INFINITY));
  EXPECT_EQ(text("m.csv"), "step,loss,loss_hex\n1,nan,nan\n2,-inf,-inf\n");
}

TEST_F(Metrics, ResumeDropsLaterAndBrokenLines) {
  {
    JsonLines lines(path("m.jsonl"), 0);
    for (int64_t step = 1; step <= 5; ++step) lines.write(record(step));
  }
  std::ofstream(path("m.jsonl"), std::ios::app) << "{\"step\":\"2\"}\n{\"step\":2,\"lo";
  JsonLines resumed(path("m.jsonl"), 3);
  resumed.write(record(4));
  const std::string all = text("m.jsonl");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 4);
  EXPECT_THAT(all, HasSubstr("\"step\":4"));
  EXPECT_THAT(all, ::testing::Not(HasSubstr("\"step\":5")));
}

TEST_F(Metrics, CsvKeepsItsHeaderAndColumnsOverAResume) {
  {
    CsvTable table(path("m.csv"), {"step", "loss", "top1"}, 0);
    table.write(record(1));
    table.write(record(2));
  }
  CsvTable resumed(path("m.csv"), {"step", "loss", "top1"}, 1);
  resumed.write(MetricsRecord().add("step", int64_t{2}).add("top1", 0.5).add("other", 1.0));
  EXPECT_EQ(text("m.csv"), "step,loss,top1\n1,0.3333333333333333,\n2,,0.5\n");
}

TEST_F(Metrics, CsvOfOtherColumnsIsRewrittenToThoseOfTheResumedRun) {
  std::ofstream(path("m.csv")) << "event,step,gone,top1\n,1,a,\neval,1,,0.5\n,2,b,\n,3,\n,2";
  CsvTable resumed(path("m.csv"), {"step", "event", "loss", "top1"}, 2);
  resumed.write(MetricsRecord().add("step", int64_t{3}).add("loss", 0.25));
  EXPECT_EQ(text("m.csv"), "step,event,loss,top1,gone\n1,,,,a\n1,eval,,0.5,\n2,,,,b\n3,,0.25,,\n");
}

TEST_F(Metrics, CsvWhoseHeaderWasCutOffGetsOne) {
  std::ofstream(path("m.csv")) << "step,lo";
  CsvTable resumed(path("m.csv"), {"step", "loss"}, 2);
  resumed.write(record(1));
  EXPECT_EQ(text("m.csv"), "step,loss\n1,0.3333333333333333\n");
}

TEST_F(Metrics, CsvMayHaveLineEndsOfOtherSystemsButNotLackTheStep) {
  std::ofstream(path("m.csv")) << "loss,step\r\n0.5,1\r\n";
  CsvTable(path("m.csv"), {"step", "loss"}, 2);
  EXPECT_EQ(text("m.csv"), "step,loss\n1,0.5\n");
  std::ofstream(path("other.csv")) << "name,loss\na,1\n";
  EXPECT_THROW(CsvTable(path("other.csv"), {"step", "loss"}, 2), StorageError);
  EXPECT_EQ(text("other.csv"), "name,loss\na,1\n");
}

TEST_F(Metrics, AFullDiskDelaysLinesButLosesNone) {
  const auto files = std::make_shared<FailingFileSystem>();
  files->error = ENOSPC;
  JsonLines lines(path("m.jsonl"), 0, files);
  files->longest_write = 10;
  files->fail_at = files->calls() + 1;  // in the middle of the first line
  files->fail_for_ever = true;
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_THROW(lines.write(record(step)), StorageError);
  }
  EXPECT_EQ(text("m.jsonl").size(), 10u);
  files->fail_at = -1;
  lines.write(record(4));
  std::string expected;
  for (int64_t step = 1; step <= 4; ++step) expected += record(step).to_json() + "\n";
  EXPECT_EQ(text("m.jsonl"), expected);
}

TEST_F(Metrics, TellHowManyLinesAreLostAtTheEnd) {
  const auto files = std::make_shared<FailingFileSystem>();
  files->error = ENOSPC;
  JsonLines lines(path("m.jsonl"), 0, files);
  lines.finish();
  files->fail_at = files->calls();
  files->fail_for_ever = true;
  for (int64_t step = 1; step <= 2; ++step) EXPECT_THROW(lines.write(record(step)), StorageError);
  try {
    lines.finish();
    ADD_FAILURE() << "lines were lost silently";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m.jsonl"));
    EXPECT_THAT(error.what(), HasSubstr("2 lines lost"));
  }
}

TEST_F(Metrics, WaitingLinesAreTriedOnceMoreAtTheEnd) {
  const auto files = std::make_shared<FailingFileSystem>();
  {
    CsvTable table(path("m.csv"), {"step"}, 0, files);
    files->fail_at = files->calls();
    EXPECT_THROW(table.write(record(1)), StorageError);
  }
  EXPECT_EQ(text("m.csv"), "step\n1\n");
}

TEST_F(Metrics, WhatIsNoRegularFileIsNamed) {
  const std::string path = this->path("m.csv");
  const auto error = [&] {
    try {
      CsvTable(path, {"step"}, 0);
    } catch (const StorageError& refusal) {
      return std::string(refusal.what());
    }
    return std::string();
  };
  fs::create_directory(path);
  EXPECT_EQ(error(), "'" + path + "' is a folder, not a file that lines can be added to");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(error(), "'" + path + "' is something special, not a file that lines can be added to");
}

TEST_F(Metrics, AFolderThatIsMissingIsAStorageError) {
  EXPECT_THROW(JsonLines(path("none/m.jsonl"), 0), StorageError);
}

}  // namespace
}  // namespace shoal
