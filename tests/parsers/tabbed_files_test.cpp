#include "runtime/data/sequences/tabbed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

const TabbedLayout kLabelled{.columns = {"label", "text"}, .classes = 12};

/// What reading this file refuses; "nothing" if it does not.
std::string tabbed_refusal(const std::string& text, const TabbedLayout& layout = kLabelled) {
  const ScratchFolder folder;
  write_file(folder.file("f"), text);
  try {
    TabbedFiles files({folder.file("f")}, layout);
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(TabbedFiles, ReadsFilesOneAfterTheOther) {
  const ScratchFolder folder;
  write_file(folder.file("a"), "0\tx\r\n11\t\n");
  write_file(folder.file("b"), "3.00\ty\tz");  // no line end
  const TabbedFiles files({folder.file("a"), folder.file("b")}, kLabelled);
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(files.read(0).label, 0);
  EXPECT_THAT(files.read(0).columns, ElementsAre("0", "x"));
  EXPECT_EQ(files.read(1).label, 11);
  EXPECT_THAT(files.read(1).columns, ElementsAre("11", ""));
  EXPECT_EQ(files.read(2).label, 3);
  EXPECT_THAT(files.read(2).columns, ElementsAre("3.00", "y\tz"));
  EXPECT_THAT(files.where(2), HasSubstr("/b: line 1"));
  EXPECT_THROW(files.read(3), DataError);
  EXPECT_THROW(files.read(-1), DataError);
}

TEST(TabbedFiles, KeepsEveryByte) {
  const ScratchFolder folder;
  std::string text = "1\t";
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != '\n') text.push_back(static_cast<char>(byte));
  }
  write_file(folder.file("f"), text + "\n");
  const TabbedFiles files({folder.file("f")}, kLabelled);
  EXPECT_EQ(files.read(0).columns[1], text.substr(2));
}

TEST(TabbedFiles, NamesFileAndLine) {
  EXPECT_THAT(tabbed_refusal("1\ta\n\n"),
              HasSubstr("/f: line 2: 1 column, expected label<TAB>text"));
  for (const char* label :
       {"12", "-1", "1.5", "", ".0", "1e0", "0x1", " 1", "nan", "99999999999999999999999999"}) {
    EXPECT_THAT(tabbed_refusal(std::string("1\ta\n") + label + "\tb\n"),
                HasSubstr("/f: line 2: the label is '"))
        << label;
  }
  EXPECT_THAT(tabbed_refusal("\x1B[31m\ta\n"), HasSubstr("the label is '?[31m'"));
  EXPECT_THAT(tabbed_refusal(std::string(100, 'x') + "\ta\n"),
              HasSubstr("the label is '" + std::string(80, 'x') + "...'"));
}

TEST(TabbedFiles, RefusesFilesWithoutRecords) {
  EXPECT_THAT(tabbed_refusal(""), HasSubstr("/f: holds no records, lines of label<TAB>text"));
  const TabbedLayout header{.columns = {"text", "label"}, .label_column = 1, .has_header = true};
  EXPECT_THAT(tabbed_refusal("text\tlabel\n", header), HasSubstr("holds no records"));
  EXPECT_THAT(tabbed_refusal("a\t1\n", header),
              HasSubstr("line 1: begins with 'a?1', not with the line text<TAB>label"));
  EXPECT_EQ(tabbed_refusal("text\tlabel\r\na\t1\n", header), "nothing");
}

TEST(TabbedFiles, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_THROW(TabbedFiles({folder.path()}, kLabelled), DataError);
  EXPECT_THROW(TabbedFiles({folder.file("missing")}, kLabelled), DataError);
}

}  // namespace
}  // namespace shoal
