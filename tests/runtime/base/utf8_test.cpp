#include "runtime/base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shoal {
namespace {

std::string character(unsigned code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 63)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8, TakesEveryCharacterButSurrogates) {
  for (unsigned code = 0; code < 0x110000; ++code) {
    const std::string text = character(code);
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    const Utf8Check check = check_utf8(text);
    ASSERT_EQ(check.valid, is_surrogate ? 0 : text.size()) << code;
    ASSERT_FALSE(check.is_cut) << code;
  }
}

TEST(Utf8, NamesTheFirstWrongByte) {
  const std::string before = "twelve bytes";
  for (const std::string wrong :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFE", "\xFF", "\xC3(", "\xE2\x82(", "\xF0\x9F\x98("}) {
    for (const std::string after : {"", "x", "\xC3\xA9 and more"}) {
      const Utf8Check check = check_utf8(before + wrong + after);
      EXPECT_EQ(check.valid, before.size()) << wrong;
      EXPECT_FALSE(check.is_cut) << wrong;
    }
  }
}

TEST(Utf8, TellsACutCharacterFromAWrongOne) {
  for (const unsigned code : {0xE9u, 0x20ACu, 0xFFFDu, 0x1F600u, 0x10FFFFu}) {
    const std::string whole = character(code);
    for (size_t length = 1; length < whole.size(); ++length) {
      const Utf8Check check = check_utf8("abc" + whole.substr(0, length));
      EXPECT_EQ(check.valid, 3u);
      EXPECT_TRUE(check.is_cut);
    }
  }
  EXPECT_FALSE(check_utf8("\xED\xA0").is_cut);
  EXPECT_TRUE(check_utf8("\xED").is_cut);
}

}  // namespace
}  // namespace shoal
