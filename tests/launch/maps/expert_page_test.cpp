#include "launch/maps/expert_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::ScratchFolder;

/// 4 x 2 pixels of one colour.
Picture plain(const Rgb& colour) { return {4, 2, std::vector<Rgb>(8, colour)}; }

TEST(ExpertPage, TintsEachPatchInItsUnitsColour) {
  const Picture picture = tinted(plain({30, 60, 90}), {"layer", 1, 2, {}, {}}, {1, -1});
  const Rgb grey{60, 60, 60};
  for (size_t i = 0; i < 8; ++i) {
    if (i % 4 < 2) {
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(picture.pixels[i][c], 0.4 * 60 + 0.6 * unit_colour(1)[c], 0.51);
      }
    } else {
      EXPECT_EQ(picture.pixels[i], grey);
    }
  }
}

TEST(ExpertPage, UnitsHaveColoursOfTheirOwn) {
  std::set<Rgb> colours;
  for (int64_t unit = 0; unit < 64; ++unit) colours.insert(unit_colour(unit));
  EXPECT_EQ(colours.size(), 64u);
}

TEST(ExpertPage, ShowsMapsBesideImagesWithALegendAndTheRegions) {
  RegionCounter regions(3);
  regions.add({2, -1, 2, 0},
              {{0.25, 0.1, 0, 0.5}, {0, 0, 0, 0}, {0.25, 0.1, 0, 0.5}, {1, 0, 0, 1}});
  const ExpertMaps maps{{plain({9, 9, 9}), plain({8, 8, 8})},
                        {"", "a frog & more"},
                        5,
                        {{"a<b>", 1, 2, {{2, -1}, {2, 0}}, regions.table()}}};
  const ScratchFolder scratch;
  PosixFileSystem files;
  write_expert_page(files, scratch.path(), "Title & more", maps);
  const std::string page = read_file(scratch.file("index.html"));
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("<h1>Title &amp; more</h1>"), HasSubstr("<h2>a&lt;b&gt;</h2>"),
            HasSubstr("</span>unit 2</th><td>50.0 %"), HasSubstr("</span>no unit</th><td>25.0 %"),
            HasSubstr("</span>unit 1</th><td>0.0 %"), HasSubstr("the first 5 images"),
            HasSubstr("<td>0.375 ±0.375</td>"), HasSubstr("<td>-</td>"), Not(HasSubstr("<h2>a<b>")),
            HasSubstr(">image 0<"), HasSubstr(">image 1, a frog &amp; more<")));
  EXPECT_THAT(page, HasSubstr("1.000 (+1.67)"));  // 0.375 is the mean, 0.375 the deviation
  for (const char* name : {"image-000.png", "image-001.a<b>.png"}) {
    EXPECT_THAT(read_file(scratch.file(name)), HasSubstr("IHDR"));
  }
}

}  // namespace
}  // namespace shoal
