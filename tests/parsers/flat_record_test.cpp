#include "runtime/records/flat_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/records/metrics.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using Kind = FlatRecord::Kind;
using ::testing::ElementsAre;
using testing::ScratchFolder;
using testing::write_file;

TEST(FlatRecord, ReadsWhatAMetricsRecordWrites) {
  MetricsRecord written;
  written.add("step", int64_t{50})
      .add_exact("loss", 1.0 / 3.0)
      .add("event", std::string("a \"b\"\n"));
  written.add("load", std::vector<int64_t>{1, 2}).add("share", std::vector<double>{0.25, 1e-30});
  written.add("bad", std::nan(""));
  FlatRecord record;
  ASSERT_TRUE(record.parse(written.to_json()));
  EXPECT_EQ(record.size(), 7u);
  EXPECT_EQ(record.number("step", 0), 50);
  EXPECT_TRUE(record.find("step")->is_integer);
  EXPECT_EQ(record.number("loss", 0), 1.0 / 3.0);
  EXPECT_FALSE(record.find("loss")->is_integer);
  EXPECT_EQ(record.text("loss_hex"), hex_float(1.0 / 3.0));
  EXPECT_EQ(record.text("event"), "a \"b\"\n");
  EXPECT_THAT(record.find("load")->numbers, ElementsAre(1, 2));
  EXPECT_THAT(record.find("share")->numbers, ElementsAre(0.25, 1e-30));
  EXPECT_TRUE(std::isnan(record.number("bad", 0)));
  EXPECT_EQ(record.find("none"), nullptr);
  EXPECT_EQ(record.number("none", -1), -1);
  EXPECT_EQ(record.number("event", -1), -1);
}

TEST(FlatRecord, PassesOverWhatIsNotFlat) {
  FlatRecord record;
  ASSERT_TRUE(record.parse(
      R"( { "a" : {"b":[1,{"c":"}"}]} , "d":[1,"x"], "e":true,"f":false, "g":[ 1 , null ], "h":[] } )"));
  EXPECT_EQ(record.find("a")->kind, Kind::kOther);
  EXPECT_EQ(record.find("d")->kind, Kind::kOther);
  EXPECT_EQ(record.find("e")->kind, Kind::kOther);
  EXPECT_EQ(record.find("f")->kind, Kind::kOther);
  ASSERT_EQ(record.find("g")->numbers.size(), 2u);
  EXPECT_TRUE(std::isnan(record.find("g")->numbers[1]));
  EXPECT_EQ(record.find("h")->kind, Kind::kNumbers);
  EXPECT_TRUE(record.find("h")->numbers.empty());
  EXPECT_TRUE(record.parse("{}"));
  EXPECT_EQ(record.size(), 0u);
}

TEST(FlatRecord, ReadsEscapesAsUtf8) {
  FlatRecord record;
  ASSERT_TRUE(record.parse(R"({"\u0061\t":"\u00e9\u20ac\ud83d\ude00\/\\"})"));
  EXPECT_EQ(record.text("a\t"), "\u00e9\u20ac\U0001f600/\\");
}

TEST(FlatRecord, RefusesWhatIsNoObject) {
  FlatRecord record;
  for (const char* line : {"",
                           "{",
                           "}",
                           "[1]",
                           "1",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\":1}x",
                           "{\"a\":nan}",
                           "{\"a\":inf}",
                           "{\"a\":-}",
                           "{\"a\":-inf}",
                           "{\"a\":.5}",
                           "{\"a\":01}",
                           "{\"a\":1.}",
                           "{\"a\":1e}",
                           "{\"a\":[1,2}",
                           "{\"a\":[1 2]}",
                           "{\"a\":\"b}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\\u12\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\\udc00\"}",
                           "{a:1}",
                           "{\"a\":tru}",
                           "{\"a\":{\"b\":1}",
                           "{\"a\":1 \"b\":2}"}) {
    EXPECT_FALSE(record.parse(line)) << line;
    EXPECT_EQ(record.size(), 0u) << line;
  }
  EXPECT_FALSE(record.parse("{\"a\":" + std::string(1000, '[') + "}"));  // no deep recursion
}

TEST(FlatRecord, ReadsAllDigitsAndSigns) {
  FlatRecord record;
  ASSERT_TRUE(record.parse(R"({"a":-0,"b":18446744073709551616,"c":-7,"d":2.0,"e":-0.0,"a":5})"));
  EXPECT_TRUE(std::signbit(record[0].number));
  EXPECT_TRUE(record[0].is_integer);
  EXPECT_EQ(record.number("b", 0), 0x1p64);
  EXPECT_TRUE(record.find("b")->is_integer);
  EXPECT_EQ(record.number("c", 0), -7);
  EXPECT_FALSE(record.find("d")->is_integer);
  EXPECT_TRUE(std::signbit(record.number("e", 0)));
  EXPECT_EQ(record.number("a", 0), 5);  // the last one
}

TEST(FlatRecord, RefusesBytesThatJsonHasNot) {
  FlatRecord record;
  EXPECT_FALSE(record.parse(std::string_view("{\"a\":1}\0", 8)));
  EXPECT_FALSE(record.parse("\xEF\xBB\xBF{\"a\":1}"));
  EXPECT_FALSE(record.parse("{\"a\":\"\x01\"}"));
}

TEST(FlatRecord, TakesANumberBeyondDoublesAsNotFinite) {
  FlatRecord record;
  ASSERT_TRUE(record.parse("{\"a\":1e999}"));
  EXPECT_TRUE(std::isnan(record.number("a", 0)));
  ASSERT_TRUE(record.parse("{\"b\":[-1e99999,2,1e999],\"a\" : -1e9999 , \"c\":3}"));
  EXPECT_TRUE(std::isnan(record.number("a", 0)));
  EXPECT_FALSE(record.find("a")->is_integer);
  EXPECT_EQ(record.number("c", 0), 3);
  ASSERT_EQ(record.find("b")->numbers.size(), 3u);
  EXPECT_TRUE(std::isnan(record.find("b")->numbers[0]));
  EXPECT_FALSE(record.parse("{\"a\":1e999}x"));
  ASSERT_TRUE(record.parse("{\"a\":1E-999}"));
  EXPECT_EQ(record.number("a", 1), 0.0);
}

TEST(FlatRecords, NameBrokenLinesAndLeaveOutACutOne) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("metrics.jsonl");
  write_file(path, "{\"step\":1}\nbroken\n{\"step\":2}\n\n{\"step\":3}\r\n{\"step\":4");
  std::vector<double> steps;
  const auto use = [&](const FlatRecord& record) { steps.push_back(record.number("step", 0)); };
  const UnreadLines unread = for_each_flat_record(path, use);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(unread.broken, 2);
  EXPECT_EQ(unread.first_broken, 2);
  EXPECT_TRUE(unread.is_cut);
  write_file(path, "{\"step\":1}\n");
  EXPECT_FALSE(for_each_flat_record(path, use).is_cut);
  EXPECT_EQ(for_each_flat_record(scratch.file("none"), use).broken, 0);
  EXPECT_THROW(for_each_flat_record(scratch.path(), use), DataError);  // a folder
}

}  // namespace
}  // namespace shoal
