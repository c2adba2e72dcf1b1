#include "launch/inspect/sparsity_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

int64_t occurrences(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

SparseMoment moment(int64_t step, bool is_drawn) {
  SparseMoment moment;
  moment.step = step;
  moment.mask = {6, 0.5, 0.25, 1, 0, 3, 1.5};
  moment.permutation = PermutationNumbers{true, 0.75, 0.125};
  if (!is_drawn) return moment;
  moment.mask_picture = ShrunkMatrix{1, 2, {0.0, 1.0}};
  moment.permutation_picture = ShrunkMatrix{2, 2, {0.0, 1.0, 1.0, 0.0}};
  return moment;
}

SparsityHistory some_history(size_t experts) {
  SparseLayerHistory layer{"blocks.<0>.experts.*.fc1.weight", 3, 4, 0.5, {}, {}};
  for (size_t e = 0; e < experts; ++e) {
    const bool is_drawn = e < kMostDrawnMatrices;
    layer.matrices.push_back({fmt::format("blocks.<0>.experts.{}.fc1.weight", e),
                              {moment(10, is_drawn), moment(20, is_drawn)}});
  }
  for (const auto& [step, distance] : {std::pair{5, 0.1}, {10, 0.5}, {20, 0.75}}) {
    FlatRecord record;
    record.parse(fmt::format(R"({{"step":{},"soft":1,"distance":{},"penalty":{}}})", step, distance,
                             1 - distance));
    layer.curves.add(record);
  }
  return {"diagonal", "learned", {10, 20}, {layer}};
}

TEST(SparsityPage, DrawsEachCheckpointOfEachExpert) {
  const std::string page = sparsity_page("A <title>", some_history(2)).html();
  EXPECT_EQ(occurrences(page, "alt=\"mask at step"), 2 * 2);
  EXPECT_EQ(occurrences(page, "alt=\"permutation at step"), 2 * 2);
  EXPECT_EQ(occurrences(page, "<figure class=\"plot curves\">"), 1);
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h1>A &lt;title&gt;</h1>"),
                    HasSubstr("<h2>blocks.&lt;0&gt;.experts.*.fc1.weight</h2>"),
                    HasSubstr("3 x 4 weights, pattern diagonal, 50.00 % asked for; 2 experts"),
                    HasSubstr("<h3>expert 1</h3>"), HasSubstr("0 / 1.5 / 3"),
                    HasSubstr("soft at the last logged step"), HasSubstr("<td>0.75 at 20</td>"),
                    HasSubstr("</html>")));
  EXPECT_THAT(page, Not(HasSubstr("checkpoints drawn")));
}

TEST(SparsityPage, SaysWhichExpertsItLeavesOut) {
  const std::string page = sparsity_page("t", some_history(kMostDrawnMatrices + 1)).html();
  EXPECT_THAT(page, AllOf(HasSubstr("9 experts, the first 8 shown"), HasSubstr("expert 7"),
                          Not(HasSubstr("expert 8"))));
}

TEST(SparsityPage, NamesTheKindOfSoftPermutationsThatAreNoMatrices) {
  SparsityHistory history = some_history(1);
  history.permutation = "kaleidoscope";
  for (SparseMoment& one : history.layers[0].matrices[0].moments) {
    one.permutation = PermutationNumbers{true, {}, {}};
    one.permutation_picture.reset();
  }
  const std::string page = sparsity_page("t", history).html();
  EXPECT_THAT(page, HasSubstr("permutation soft, kaleidoscope"));
  EXPECT_EQ(occurrences(page, "alt=\"permutation"), 0);
  history.layers[0].matrices[0].moments[0].permutation = PermutationNumbers{false, 0.5, {}};
  EXPECT_EQ(order_text(history.layers[0].matrices[0].moments[0], "kaleidoscope"), "hard");
  history.layers[0].matrices[0].moments[0].permutation.reset();
  EXPECT_EQ(order_text(history.layers[0].matrices[0].moments[0], "none"), "none");
}

}  // namespace
}  // namespace shoal
