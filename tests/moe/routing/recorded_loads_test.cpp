#include "moe/routing/recorded_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadRecords : public ::testing::Test {
 protected:
  std::vector<LoadRecord> read(const std::string& text) {
    const std::string file = folder_.file("experts.jsonl");
    testing::write_file(file, text);
    std::vector<LoadRecord> records;
    for_each_load_record(file, "a hint",
                         [&](const LoadRecord& record) { records.push_back(record); });
    return records;
  }
  /// What a file is refused with whose second line is this.
  std::string refusal(const std::string& line) {
    try {
      read(R"({"step":5,"layer":"a","load":[1,2]})"
           "\n" +
           line + "\n");
    } catch (const DataError& error) {
      EXPECT_EQ(error.hint(), "a hint");
      return error.what();
    }
    return "";
  }
  testing::ScratchFolder folder_;
};

TEST_F(LoadRecords, AreThoseOfWholeLines) {
  const std::string last = R"({"step":10,"layer":"b","load":[3.5,1],"memory_units":1})";
  const std::vector<LoadRecord> records = read(R"({"step":5,"layer":"a","load":[9,0]})"
                                               "\n" +
                                               last + "\n" + R"({"step":15,"layer":"a","lo)");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].step, 5);
  EXPECT_EQ(records[0].layer, "a");
  EXPECT_THAT(records[0].load_U, ElementsAre(9, 0));
  EXPECT_EQ(records[1].line, 2);
  EXPECT_THAT(records[1].load_U, ElementsAre(3.5, 1));
  EXPECT_EQ(records[0].memory_units, 0);
  EXPECT_EQ(records[1].memory_units, 1);
  EXPECT_EQ(records[1].text, last);
}

TEST_F(LoadRecords, OfAnEmptyFileAreNone) { EXPECT_TRUE(read("").empty()); }

TEST_F(LoadRecords, LinesThatAreNoneAreNamed) {
  for (const char* line :
       {R"({"step":5,"layer":"a","load":["x"]})", R"({"step":5,"layer":"a","load":[1,-1]})",
        R"({"step":5,"layer":"a","load":[null]})", R"({"step":5,"layer":"a","load":3})",
        R"({"step":5,"layer":5,"load":[1]})", R"({"step":"5","layer":"a","load":[1]})",
        R"({"step":5.5,"layer":"a","load":[1]})", R"({"step":5,"layer":"a"})", R"({"step":6})",
        R"({"step":5,"layer":"a","load":[1],"memory_units":2})",
        R"({"step":5,"layer":"a","load":[1],"memory_units":-1})", "[1]", "no json", ""}) {
    EXPECT_THAT(refusal(line), HasSubstr("experts.jsonl:2: not a record")) << line;
  }
}

TEST_F(LoadRecords, OfAFileThatIsNotThereAreAnError) {
  EXPECT_THROW(for_each_load_record(folder_.file("none"), "", [](const LoadRecord&) {}), DataError);
}

}  // namespace
}  // namespace shoal
