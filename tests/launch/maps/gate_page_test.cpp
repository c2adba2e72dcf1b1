#include "launch/maps/gate_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Three tokens: markup, a blank, and a byte that is no UTF-8.
class ThreeTokens : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 3; }
  std::string identity() const override { return "three"; }
  void encode(std::string_view, std::vector<int64_t>&) const override {}
  size_t complete_prefix(std::string_view) const override { return 0; }
  std::string_view bytes_of(int64_t id) const override {
    return std::array<std::string_view, 3>{"<b>&", " ", "\xff"}.at(static_cast<size_t>(id));
  }
};

GateMaps some_maps() {
  GateMaps maps{"A <title>", {"blocks.0.gate", "blocks.<1>.gate"}, {}, {}, nullptr};
  maps.samples = {{"First", {0, 1, 2}, {false, true, false}, {{1, 0, 1}, {0, 0, 1}}}};
  for (size_t gate : {0, 1}) maps.numbers.push_back(gate_numbers(maps.samples, gate, 16));
  return maps;
}

/// Its blocks of tokens.
std::vector<Page::Json> tokens_of(const GateMaps& maps) {
  std::vector<Page::Json> tokens;
  const Page::Json sections = gate_page(maps).json()["sections"];
  for (const auto& block : sections.back()["blocks"]) {
    if (block.contains("tokens")) tokens.push_back(block["tokens"]);
  }
  return tokens;
}

TEST(GatePage, HasEachTokenAndWhereItAttends) {
  const auto tokens = tokens_of(some_maps()).at(0);
  EXPECT_EQ(tokens["title"], "First: 3 tokens");
  EXPECT_EQ(tokens["texts"], (Page::Json{"0", "1", "2"}));
  EXPECT_EQ(tokens["labelled"], Page::Json::array({1}));
  EXPECT_EQ(tokens["open"], (Page::Json{"101", "001"}));
}

TEST(GatePage, EscapesTextAndShowsBlanks) {
  const ThreeTokens tokenizer;
  GateMaps maps = some_maps();
  maps.tokenizer = &tokenizer;
  EXPECT_EQ(tokens_of(maps).at(0)["texts"], (Page::Json{"<b>&", "\u00b7", "\\xff"}));
  const std::string page = gate_page(maps).html();
  EXPECT_THAT(page, HasSubstr("<h1>A &lt;title&gt;</h1>"));
  EXPECT_THAT(page, HasSubstr("blocks.&lt;1&gt;.gate"));
  EXPECT_THAT(page, Not(HasSubstr("\"<b>")));
}

/// So many tokens, without labels, under one gate that is open for the first of each sample.
GateMaps long_maps(const std::vector<int64_t>& sizes) {
  GateMaps maps{"Long", {"blocks.0.gate"}, {}, {}, nullptr};
  for (const int64_t size : sizes) {
    std::vector<bool> is_open(static_cast<size_t>(size), false);
    is_open[0] = true;
    maps.samples.push_back({"Sample", std::vector<int64_t>(is_open.size(), 7), {}, {is_open}});
  }
  maps.numbers.push_back(gate_numbers(maps.samples, 0, 16));
  return maps;
}

TEST(GatePage, DrawsTheFirstTokensAndTellsNumbersOfAll) {
  const GateMaps maps = long_maps({kMostDrawnTokens - 2, 5, 19'997});
  const auto tokens = tokens_of(maps);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0]["title"], "Sample: 19998 tokens");
  EXPECT_EQ(tokens[1]["title"], "Sample: 5 tokens, the first 2 drawn");
  EXPECT_EQ(tokens[1]["texts"].size(), 2u);
  EXPECT_THAT(gate_page(maps).html(), HasSubstr("the first 20000 of 40000 tokens, 2 of 3 samples"));
  EXPECT_DOUBLE_EQ(maps.numbers[0].rate, 3.0 / 40'000);
}

TEST(GatePage, DrawsAllTokensOfFew) {
  EXPECT_THAT(gate_page(some_maps()).html(), HasSubstr("the first 3 of 3 tokens, 1 of 1 samples"));
  const SampleExtent full =
      first_tokens(long_maps({kMostDrawnTokens, 1}).samples, kMostDrawnTokens);
  EXPECT_EQ(full.tokens, kMostDrawnTokens);
  EXPECT_EQ(full.samples, 1);
}

TEST(VisibleText, HasSignsForWhatCannotBeSeen) {
  EXPECT_EQ(visible_text("a b\n\t"), "a\u00b7b\u21b5\u2192");
  EXPECT_EQ(visible_text(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(visible_text("\u00e9\u20ac"), "\u00e9\u20ac");
  EXPECT_EQ(visible_text("\xe2\x82"), "\\xe2\\x82");
}

}  // namespace
}  // namespace shoal
