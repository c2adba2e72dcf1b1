#include "launch/job/break_even_file.h"

#include <gtest/gtest.h>

#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

const BreakEvens kMeasured{{0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}, {0.7, 0.8, 0.9}};

TEST(BreakEvenFile, GivesBackWhatWasMeasuredOnSuchAProcessor) {
  const testing::ScratchFolder scratch;
  const std::string path = break_even_path(scratch.file("cache"));
  EXPECT_FALSE(read_break_evens(path, "Toy CPU").has_value());
  write_break_evens(path, "Toy CPU", kMeasured);
  const auto found = read_break_evens(path, "Toy CPU");
  ASSERT_TRUE(found.has_value());
  for (const int64_t tokens : {1, 64, 65}) {
    EXPECT_EQ(found->rows.at(tokens), kMeasured.rows.at(tokens));
    EXPECT_EQ(found->diagonals.at(tokens), kMeasured.diagonals.at(tokens));
    EXPECT_EQ(found->blocks.at(tokens), kMeasured.blocks.at(tokens));
  }
  EXPECT_FALSE(read_break_evens(path, "another CPU").has_value());
}

TEST(BreakEvenFile, IsReadByRankZeroForAll) {
  const testing::ScratchFolder scratch;
  const std::string path = break_even_path(scratch.path());
  const auto world = make_self_communicator();
  EXPECT_FALSE(agree_on_break_evens(path, *world).has_value());
  write_break_evens(path, processor_model(), kMeasured);
  EXPECT_EQ(agree_on_break_evens(path, *world)->diagonals.few, 0.5);
}

TEST(BreakEvenFile, ThatIsDamagedIsNamed) {
  const testing::ScratchFolder scratch;
  const std::string path = break_even_path(scratch.path());
  testing::write_file(path, "{");
  try {
    read_break_evens(path, "Toy CPU");
    FAIL() << "it was read";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal
