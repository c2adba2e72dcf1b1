#include "launch/pages/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/markup.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::markup_mistake;
using ::testing::StartsWith;

TEST(Page, EscapesTexts) {
  EXPECT_EQ(xml_text("a<b> & \"c\"\n"), "a&lt;b&gt; &amp; &quot;c&quot; ");
  EXPECT_EQ(xml_text("\u00e9"), "\u00e9");
}

TEST(Page, HasATitleAWayToItsContentAndAMainPart) {
  const std::string page = page_head("A & B", "p { color: red; }", "<nav></nav>") + kPageEnd;
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_THAT(page, HasSubstr("<h1>A &amp; B</h1>"));
  EXPECT_THAT(page, HasSubstr("<a class=\"skip\" href=\"#content\">"));
  EXPECT_THAT(page, HasSubstr("<nav></nav></header><main id=\"content\">"));
  EXPECT_THAT(page, HasSubstr("p { color: red; }"));
}

/// The bytes that a `data:` address stands for.
std::string decoded_address(const std::string& address) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : address.substr(address.find(',') + 1)) {
    const size_t digit = digits.find(c);
    if (digit == std::string::npos) break;  // =
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return bytes;
}

TEST(Page, HoldsPicturesWithinItself) {
  // Sizes that leave no, one and two bytes behind the last group of three.
  for (int64_t width = 1; width <= 12; ++width) {
    Picture picture{width, 1, {}};
    for (int64_t x = 0; x < width; ++x) picture.pixels.push_back(viridis(x / 12.0));
    const std::string address = png_address(picture);
    EXPECT_THAT(address, StartsWith("data:image/png;base64,"));
    EXPECT_EQ((address.size() - address.find(',') - 1) % 4, 0u);
    EXPECT_EQ(decoded_address(address), png_bytes(picture));
  }
}

TEST(Page, HasScalesOfColoursThatAreNamed) {
  const std::string scale = page_scale("from 0 to <1>", {{0, 0, 0}, {255, 255, 255}},
                                       {{0.0, "0"}, {0.25, "a & b"}, {1.0, "1"}});
  EXPECT_EQ(markup_mistake(scale), "");
  EXPECT_THAT(scale, HasSubstr("role=\"img\" aria-label=\"from 0 to &lt;1&gt;\""));
  EXPECT_THAT(scale, HasSubstr("left:25%;transform:translateX(-25%)\">a &amp; b</span>"));
}

}  // namespace
}  // namespace shoal
