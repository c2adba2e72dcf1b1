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

int64_t appearances(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(GatePage, HasOneItemATokenAndOneBoxALayer) {
  const std::string page = gate_page(some_maps());
  EXPECT_EQ(appearances(page, "<li"), 3);
  EXPECT_EQ(appearances(page, "<i>") + appearances(page, "<i class"), 6);
  EXPECT_EQ(appearances(page, "<i class=\"o\">1</i>"), 2);
  EXPECT_EQ(appearances(page, "<i class=\"o\">2</i>"), 1);
  EXPECT_EQ(appearances(page, "<li class=\"l\">"), 1);
  EXPECT_THAT(page, HasSubstr("attends in layer 1, 2"));
  EXPECT_THAT(page, HasSubstr("labelled, does not attend"));
  EXPECT_THAT(page, HasSubstr("<code>2</code>"));
}

TEST(GatePage, EscapesTextAndShowsBlanks) {
  const ThreeTokens tokenizer;
  GateMaps maps = some_maps();
  maps.tokenizer = &tokenizer;
  const std::string page = gate_page(maps);
  EXPECT_THAT(page, HasSubstr("<code>&lt;b&gt;&amp;</code>"));
  EXPECT_THAT(page, HasSubstr("<code>\u00b7</code>"));
  EXPECT_THAT(page, HasSubstr("<code>\\xff</code>"));
  EXPECT_THAT(page, HasSubstr("<h1>A &lt;title&gt;</h1>"));
  EXPECT_THAT(page, HasSubstr("blocks.&lt;1&gt;.gate"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
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
  const std::string page = gate_page(maps);
  EXPECT_EQ(appearances(page, "<li"), kMostDrawnTokens);
  EXPECT_EQ(appearances(page, "<section>"), 2);
  EXPECT_THAT(page, HasSubstr("Sample: 19998 tokens</h2>"));
  EXPECT_THAT(page, HasSubstr("Sample: 5 tokens, the first 2 drawn</h2>"));
  EXPECT_THAT(page, HasSubstr("the first 20000 of 40000 tokens, 2 of 3 samples"));
  EXPECT_DOUBLE_EQ(maps.numbers[0].rate, 3.0 / 40'000);
}

TEST(GatePage, DrawsAllTokensOfFew) {
  EXPECT_THAT(gate_page(some_maps()), HasSubstr("the first 3 of 3 tokens, 1 of 1 samples"));
  const SampleExtent full =
      first_tokens(long_maps({kMostDrawnTokens, 1}).samples, kMostDrawnTokens);
  EXPECT_EQ(full.tokens, kMostDrawnTokens);
  EXPECT_EQ(full.samples, 1);
}

TEST(GatePage, LoadsNothingAndRunsNothing) {
  const std::string page = gate_page(some_maps());
  for (const char* part : {"http", "<script", "<link", "src=", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
}

TEST(VisibleText, HasSignsForWhatCannotBeSeen) {
  EXPECT_EQ(visible_text("a b\n\t"), "a\u00b7b\u21b5\u2192");
  EXPECT_EQ(visible_text(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(visible_text("\u00e9\u20ac"), "\u00e9\u20ac");
  EXPECT_EQ(visible_text("\xe2\x82"), "\\xe2\\x82");
}

}  // namespace
}  // namespace shoal
