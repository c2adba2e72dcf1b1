#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/sha256.h"
#include "runtime/text/gpt2_tokenizer.h"

namespace shoal {
namespace {

using namespace std::string_view_literals;

/// The tokenizer of the files in the folder that GPT2_BPE names, by OpenAI's names or Hugging
/// Face's.
Gpt2Tokenizer gpt2() {
  const char* variable = std::getenv("GPT2_BPE");
  if (variable == nullptr) throw std::runtime_error("set GPT2_BPE to the folder of GPT-2's files");
  const std::string folder = variable;
  if (std::filesystem::exists(folder + "/encoder.json")) {
    return Gpt2Tokenizer({folder + "/encoder.json", folder + "/vocab.bpe"});
  }
  return Gpt2Tokenizer({folder + "/vocab.json", folder + "/merges.txt"});
}

struct FrozenIds {
  const char* name;
  std::string_view text;
  std::vector<int64_t> ids;
};

// What tiktoken 0.14.0 (encode_ordinary) and tokenizers 0.23.3 (ByteLevel without a space before)
// both give.
const std::vector<FrozenIds> kFrozenIds{
    {"Empty", ""sv, {}},
    {"OneSpace", " "sv, {220}},
    {"OnlySpaces", "     "sv, {220, 220, 220, 220, 220}},
    {"SpacesAndTabs", " \t \t\t  x"sv, {220, 197, 220, 197, 197, 220, 2124}},
    {"TrailingSpaces", "word   "sv, {4775, 220, 220, 220}},
    {"Newlines", "a\n\n\nb\n \n c\n"sv, {64, 628, 198, 65, 198, 220, 198, 269, 198}},
    {"CrLf", "one\r\ntwo\r\n\r\nthree"sv, {505, 201, 198, 11545, 201, 198, 201, 198, 15542}},
    {"Contractions",
     "I'm you're he'd we'll they've it's don't DON'T 'tis ''s s'"sv,
     {40,  1101, 345,   821, 339, 1549, 356,   1183,  484, 1053, 340, 338,
      836, 470,  23917, 6,   51,  705,  48010, 10148, 82,  264,  6}},
    {"Numbers",
     "3.14 1,000,000 2024a a2024 x\302\262"sv,
     {18, 13, 1415, 352, 11, 830, 11, 830, 48609, 64, 257, 1238, 1731, 2124, 31185}},
    {"DigitsOfOtherScripts",
     "\331\243\331\244\331\245 \340\245\247\340\245\250\340\245\251 \342\205\243 \302\275 \345\233\233"sv,
     {149, 96,    149, 97,   149, 98, 220,   24231, 100, 24231,
      101, 24231, 102, 2343, 227, 96, 25208, 10263, 249, 249}},
    {"Punctuation",
     "Hello, world! (a-b) [c] {d} ... --- $5 #1 @-@"sv,
     {15496, 11, 995, 0,    357,   64,  12, 65,   8,  685,  66, 60,
      1391,  67, 92,  2644, 11420, 720, 20, 1303, 16, 2488, 12, 31}},
    {"Emoji",
     "\360\237\230\200 \360\237\221\250\342\200\215\360\237\221\251\342\200\215\360\237\221\247 \360\237\221\215\360\237\217\275 \360\237\207\251\360\237\207\252"sv,
     {47249, 222, 50169, 101, 447, 235,   41840, 102, 447,  235, 41840, 100,
      50169, 235, 8582,  237, 121, 12520, 229,   102, 8582, 229, 103}},
    {"CombiningMarks",
     "e\314\201 n\314\203o a\314\210\314\243 \340\244\271\340\244\277\340\244\250\340\245\215\340\244\246\340\245\200"sv,
     {68,    136, 223,   299, 136,   225, 78,    257, 136,   230, 136,   96,
      28225, 117, 11976, 123, 11976, 101, 24231, 235, 11976, 99,  24231, 222}},
    {"NoBreakSpace",
     "a\302\240b \302\240 c\302\240\302\240d"sv,
     {64, 1849, 65, 5624, 269, 1849, 1849, 67}},
    {"OtherSpaces",
     "a\342\200\203b\343\200\200c\302\205d\342\200\250e\341\232\200f"sv,
     {64, 447, 225, 65, 5099, 222, 66, 126, 227, 67, 447, 101, 68, 157, 248, 222, 69}},
    {"NoSpaces",
     "\341\240\216a \342\200\213\342\200\213b \357\273\277c"sv,
     {157, 254, 236, 64, 20126, 9525, 65, 27332, 119, 123, 66}},
    {"Cjk",
     "\344\275\240\345\245\275\357\274\214\344\270\226\347\225\214\343\200\202\346\227\245\346\234\254\350\252\236\343\201\256\343\203\206\343\202\255\343\202\271\343\203\210 \355\225\234\352\265\255\354\226\264"sv,
     {19526, 254,   25001, 121,   171, 120,   234, 10310, 244,   45911, 234,
      16764, 33768, 98,    17312, 105, 45739, 252, 5641,  24336, 25084, 43302,
      220,   47991, 250,   166,   113, 255,   168, 244,   112}},
    {"Cyrillic",
     "\320\237\321\200\320\270\320\262\320\265\321\202, \320\272\320\260\320\272 \320\264\320\265\320\273\320\260?"sv,
     {140, 253, 21169, 18849, 38857, 16843, 20375, 11, 12466, 118, 16142, 31583, 12466, 112, 16843,
      30143, 16142, 30}},
    {"EndOfTextIsText", "a<|endoftext|>b"sv, {64, 27, 91, 437, 1659, 5239, 91, 29, 65}},
    {"Zero", "a\000b\000\000"sv, {64, 188, 65, 188, 188}},
    {"ControlCharacters", "\001\034\037\177"sv, {189, 216, 219, 221}},
    {"Private",
     "\356\200\200\364\217\277\277\357\277\275"sv,
     {29773, 222, 176, 237, 123, 123, 4210}},
    {"WikiText",
     " = Robert Boulter = \n \n Robert Boulter is an English film , <unk> @-@ @,@ @.@ \n"sv,
     {796,  5199, 347,  2852, 353, 796,  220, 198, 220,  198, 5199, 347,  2852, 353, 318, 281, 3594,
      2646, 837,  1279, 2954, 29,  2488, 12,  31,  2488, 11,  31,   2488, 13,   31,  220, 198}},
    {"Code",
     "for (int i = 0; i < n; ++i) {\n    x[i] += 1;\n\t}\n"sv,
     {1640, 357, 600, 1312, 796,  657, 26, 1312, 1279,  299, 26, 19969, 72,  8,  1391,
      198,  220, 220, 220,  2124, 58,  72, 60,   15853, 352, 26, 198,   197, 92, 198}},
};

TEST(Gpt2BpeData, GivesTheIdsOfTiktokenAndHuggingFace) {
  const Gpt2Tokenizer tokenizer = gpt2();
  for (const FrozenIds& one : kFrozenIds) {
    std::vector<int64_t> ids;
    tokenizer.encode(one.text, ids);
    EXPECT_EQ(ids, one.ids) << one.name;
    EXPECT_EQ(tokenizer.decode(ids), one.text) << one.name;
  }
}

TEST(Gpt2BpeData, GivesThemForTenThousandBytesWithoutASpace) {
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < 10'240; ++i) {
    state = (state * 1103515245u + 12345u) % (1u << 31);
    text += static_cast<char>('a' + (state >> 16) % 26);
  }
  const Gpt2Tokenizer tokenizer = gpt2();
  std::vector<int64_t> ids;
  tokenizer.encode(text, ids);
  EXPECT_EQ(ids.size(), 6'114u);
  std::string list;
  for (const int64_t id : ids) list += (list.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(sha256_hex(list), "e5e769cdd3205850d59d4e2f617cf52d01d85bf3cd35a229f1ae5593bcb94534");
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Gpt2BpeData, KnowsTheVocabulary) {
  const Gpt2Tokenizer tokenizer = gpt2();
  EXPECT_EQ(tokenizer.vocabulary(), 50'257);
  EXPECT_EQ(tokenizer.end_of_text(), 50'256);
  EXPECT_EQ(tokenizer.bytes_of(50'256), "<|endoftext|>");
  EXPECT_EQ(tokenizer.bytes_of(262), " the");
  EXPECT_EQ(tokenizer.identity(),
            "gpt2:bf1b1b3b284e5ee7ba042096371ca6f3af1872d66b08d88fb8c3a75ac4912b6c");
}

}  // namespace
}  // namespace shoal
