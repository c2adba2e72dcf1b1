#include "launch/machine/break_even_file.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

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

TEST(BreakEvenFile, IsChosenUnlessTheCheckpointTellsWhatItsRunBeganWith) {
  const testing::ScratchFolder scratch;
  const auto world = make_self_communicator();
  const std::string cache = scratch.path(), path = break_even_path(cache);
  const auto choose = [&](const std::map<std::string, std::string>& written_by) {
    return choose_break_evens(written_by, cache, *world);
  };
  const ChosenBreakEvens built_in = choose({});
  EXPECT_EQ(built_in.values.rows.many, BreakEvens{}.rows.many);
  EXPECT_EQ(built_in.source, "the densities built in");
  write_break_evens(path, processor_model(), kMeasured);
  EXPECT_EQ(choose({}).values.diagonals.few, 0.5);
  EXPECT_EQ(choose({}).source, path);
  const ChosenBreakEvens kept = choose({{kWrittenBreakEvens, to_text(BreakEvens{})}});
  EXPECT_EQ(kept.values.diagonals.few, BreakEvens{}.diagonals.few);
  EXPECT_EQ(kept.source, "the checkpoint");
}

TEST(BreakEvenFile, ThatIsDamagedIsNamed) {
  const testing::ScratchFolder scratch;
  const std::string path = break_even_path(scratch.path());
  const std::string densities = to_text(kMeasured);
  const std::string wrong = std::string(densities).replace(densities.find("0.5"), 3, "1.5");
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"processor": "Toy CPU"})"),
        std::string(R"({"processor": "Toy CPU", "break_even": {"rows": 1}})"),
        R"({"processor": "Toy CPU", "break_even": )" + wrong + "}"}) {
    testing::write_file(path, text);
    try {
      read_break_evens(path, "Toy CPU");
      FAIL() << "it was read: " << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace shoal
