#include <gtest/gtest.h>

#include <string>

#include "runtime/files/crc32c.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

std::string ascending(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * 7 + i / 13);
  return bytes;
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, IsTheSameFromTablesAndFromTheInstruction) {
  const std::string bytes = ascending(300);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; count + begin < bytes.size(); count += 3) {
      const std::string_view part = std::string_view(bytes).substr(begin, count);
      ASSERT_EQ(crc32c(part, 7), crc32c_portable(part, 7));
    }
  }
}

TEST(Crc32c, ContinuesWhereItStopped) {
  const std::string bytes = ascending(100);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes.substr(cut), crc32c(bytes.substr(0, cut))), crc32c(bytes));
  }
}

TEST(Sha256, MatchesTheStandardsVectors) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 sha;
  sha.update("a");
  sha.update("bc");
  EXPECT_EQ(sha.hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace shoal
