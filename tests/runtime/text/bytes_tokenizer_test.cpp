#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "tests/support/draws.h"

namespace shoal {
namespace {

TEST(BytesTokenizer, GivesEachByteAsItsId) {
  const auto tokenizer = Registry<Tokenizer>::create("bytes", {});
  std::vector<int64_t> ids{7};
  tokenizer->encode(std::string("a\0\xFF", 3), ids);
  EXPECT_EQ(ids, (std::vector<int64_t>{7, 97, 0, 255}));
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->identity(), "bytes");
  EXPECT_EQ(tokenizer->end_of_text(), -1);
  EXPECT_EQ(tokenizer->complete_prefix("any text"), 8u);
}

TEST(BytesTokenizer, DecodesRandomBytesToThemselves) {
  const auto tokenizer = Registry<Tokenizer>::create("bytes", {});
  for (uint64_t number = 0; number < 20; ++number) {
    testing::Draws draws(number);
    std::string text(draws.below(2'000), '\0');
    for (char& byte : text) byte = static_cast<char>(draws.below(256));
    std::vector<int64_t> ids;
    tokenizer->encode(text, ids);
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

TEST(BytesTokenizer, RefusesUnknownIds) {
  const auto tokenizer = Registry<Tokenizer>::create("bytes", {});
  EXPECT_THROW(tokenizer->bytes_of(256), std::out_of_range);
  EXPECT_THROW(tokenizer->bytes_of(-1), std::out_of_range);
}

}  // namespace
}  // namespace shoal
