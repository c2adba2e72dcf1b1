#include "launch/pages/sample_sheet.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "launch/pages/picture.h"
#include "models/task.h"
#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_file;

/// Two pictures of each sample, of which the second one has numbers 0, 1, 2 ...
std::vector<PictureColumn> columns_of(int64_t samples, int64_t side) {
  return {{"clean", at::full({samples, 3, side, side}, 0.5, torch::kFloat32)},
          {"restored", at::full({samples, 3, side, side}, 1.0, torch::kFloat32), "PSNR \u2103",
           torch::arange(samples, torch::kFloat64)}};
}

TEST(SampleSheet, IsReadFromItsOwnPicture) {
  const std::string png = sheet_png(columns_of(3, 8), 40);
  const std::optional<SampleSheet> sheet = read_sheet(png);
  ASSERT_TRUE(sheet.has_value());
  EXPECT_EQ(sheet->step, 40);
  EXPECT_EQ(sheet->samples, 3);
  EXPECT_EQ(sheet->shrunk_by, 1);
  ASSERT_EQ(sheet->columns.size(), 2u);
  EXPECT_EQ(sheet->columns[0].name, "clean");
  EXPECT_THAT(sheet->columns[0].numbers, IsEmpty());
  EXPECT_EQ(sheet->columns[1].number, "PSNR \u2103");
  EXPECT_THAT(sheet->columns[1].numbers, ElementsAre(0, 1, 2));
  const PngHead head = read_png_head(png).value();
  EXPECT_EQ(head.width, 2 * 8 + 1);
  EXPECT_EQ(head.height, 3 * 8 + 2);
}

TEST(SampleSheet, HasNumbersThatAreNotFinite) {
  std::vector<PictureColumn> columns = columns_of(1, 8);
  columns[1].number_b = torch::tensor({std::nan("")}, torch::kFloat64);
  EXPECT_TRUE(std::isnan(read_sheet(sheet_png(columns, 1)).value().columns[1].numbers.at(0)));
}

TEST(SampleSheet, StaysSmall) {
  // Two pictures of 200 x 200 pixels take 80,000 of the 262,144.
  EXPECT_EQ(read_sheet(sheet_png(columns_of(6, 200), 1)).value().samples, 3);
  const SampleSheet large = read_sheet(sheet_png(columns_of(6, 800), 1)).value();
  EXPECT_EQ(large.shrunk_by, 3);
  EXPECT_EQ(large.samples, 1);
  EXPECT_EQ(read_png_head(sheet_png(columns_of(6, 800), 1)).value().width, 2 * 266 + 1);
}

TEST(SampleSheet, ShrinksToMeans) {
  std::vector<PictureColumn> columns = columns_of(1, 800);
  columns[0].image_bCHW.slice(3, 0, 800, 3).fill_(0.0);  // every third column of pixels
  const std::string shrunk = sheet_png(columns, 1);
  columns[0].image_bCHW.fill_(1.0 / 3);
  EXPECT_EQ(sheet_png(columns, 1), shrunk);
}

TEST(SampleSheet, IsNoneOfAnotherPicture) {
  EXPECT_FALSE(read_sheet("").has_value());
  EXPECT_FALSE(read_sheet(png_bytes({1, 1, {{1, 2, 3}}})).has_value());
  for (const char* text : {"no JSON", "[]", "{}", R"({"step": "x", "samples": 1})",
                           R"({"step": 1, "samples": 1, "shrunk_by": 1, "columns": []})",
                           R"({"step": 1, "samples": 1, "shrunk_by": 1, "columns": [1]})"}) {
    EXPECT_FALSE(read_sheet(png_bytes({1, 1, {{1, 2, 3}}}, text)).has_value()) << text;
  }
}

TEST(SheetFile, IsDroppedByARunThatResumesBeforeIt) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("pictures.png");
  write_file(path, sheet_png(columns_of(1, 8), 40));
  SheetFile(path, 40);
  EXPECT_TRUE(std::filesystem::exists(path));
  SheetFile(path, 39);
  EXPECT_FALSE(std::filesystem::exists(path));
  SheetFile(path, 0);  // where there is none
}

TEST(SheetFile, WaitsForRoomOnTheDisk) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("pictures.png");
  const auto files = std::make_shared<testing::FailingFileSystem>();
  files->error = ENOSPC;
  SheetFile file(path, 0, files);
  file.write("first");
  files->fail_at = files->calls();
  EXPECT_THROW(file.write("second"), StorageError);
  EXPECT_EQ(read_file(path), "first");
  file.finish();  // there is room again
  EXPECT_EQ(read_file(path), "second");
  files->fail_at = files->calls();
  files->fail_for_ever = true;
  EXPECT_THROW(file.write("third"), StorageError);
  try {
    file.finish();
    ADD_FAILURE() << "the last pictures were lost silently";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the pictures of the last evaluation are lost"));
  }
  EXPECT_EQ(read_file(path), "second");
}

}  // namespace
}  // namespace shoal
