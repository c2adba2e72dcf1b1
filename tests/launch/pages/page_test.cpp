#include "launch/pages/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/markup.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::markup_mistake;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Page, EscapesTexts) {
  EXPECT_EQ(xml_text("a<b> & \"c\"\n"), "a&lt;b&gt; &amp; &quot;c&quot; ");
  EXPECT_EQ(xml_text("\u00e9"), "\u00e9");
}

TEST(Page, IsOneDocumentOfItsData) {
  Page page("A & B {{data}}");
  page.begin_section("empty", "Empty");
  page.begin_section("one", "One <b>");
  page.add({{"paragraph", "</script> & {{data}}"}});
  page.add({{"heading", "heading"}});
  page.add({{"list", {"x", "y"}}});
  page.add({{"facts", Page::Json::array({Page::Json::array({"name", "<value>"})})}});
  page.add_table({"caption <i>", {{"a", "b"}, {"c", "<d>"}}}, /*is_folded=*/true);
  page.add({{"curves", {{"title", "</script>"}}},
            {"table", {{"caption", "numbers"}, {"rows", {{"x"}, {"y"}}}}}});
  const std::string html = page.html();
  EXPECT_EQ(markup_mistake(html), "");
  for (const char* part :
       {"<h1>A &amp; B {{data}}</h1>", "<a class=\"skip\" href=\"#content\">",
        "<li><a href=\"#one\">One &lt;b&gt;</a></li>", "<p>&lt;/script&gt; &amp; {{data}}</p>",
        "<h3>heading</h3>", "<li>x</li>", "<dt>name</dt><dd>&lt;value&gt;</dd>",
        "<summary>caption &lt;i&gt;</summary>", "<th scope=\"row\">c</th><td>&lt;d&gt;</td>",
        "<figure class=\"plot curves\"><figcaption>&lt;/script&gt;</figcaption>",
        "\"title\":\"\\u003c/script>\"", "<noscript>"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_THAT(html, Not(HasSubstr("#empty")));
  EXPECT_EQ(page.json()["sections"].size(), 1u);
}

TEST(Page, SharesListsOfSteps) {
  Page page("");
  EXPECT_EQ(page.steps_index({1, 2}), 0u);
  EXPECT_EQ(page.steps_index({1, 3}), 1u);
  EXPECT_EQ(page.steps_index({1, 2}), 0u);
  EXPECT_EQ(page.json()["steps"], (Page::Json{{1, 2}, {1, 3}}));
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

}  // namespace
}  // namespace shoal
