#include "parallel/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "runtime/files/crc32c.h"
#include "runtime/records/metrics.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

Manifest sample() {
  Manifest manifest;
  manifest.run_id = "9f-\"x\"";
  manifest.step = 1200;
  manifest.samples = 1200 * 256;
  manifest.score = 0.1;
  manifest.parent = "step-00001000";
  manifest.recipe = "model:\n\tbackbone: é \\ \x01\n";
  manifest.written_by = {{"libtorch", "2.11.0"}, {"world", "2"}};
  manifest.files = {{shard_name(0, 2), kBlockBytes + 1, {1, 0xFFFFFFFF}},
                    {shard_name(1, 2), 9, {7}}};
  manifest.tensors = {{"a", Dtype::kF32, {2, 1}, 1, 1, 8, 3}, {"b", Dtype::kI64, {}, 0, 64, 8, 4}};
  manifest.values = {{"nan", std::nan("")},
                     {"smallest", std::numeric_limits<int64_t>::min()},
                     {"third", 1.0 / 3},
                     {"why", std::string("text")}};
  return manifest;
}

/// The text with a right checksum, so that the checks after it are reached.
std::string signed_text(std::string text) {
  text.resize(text.rfind("\"crc32c\""));
  char crc[32];
  std::snprintf(crc, sizeof crc, "\"crc32c\":\"%08x\"}\n", crc32c(text));
  return text + crc;
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = emit_manifest(sample());
  const size_t place = text.find(from);
  if (place == std::string::npos) throw std::logic_error("no such text: " + from);
  return signed_text(text.replace(place, from.size(), to));
}

std::string error_of(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest manifest = sample();
  const std::string text = emit_manifest(manifest);
  const Manifest read = parse_manifest(text, "manifest.json");
  EXPECT_EQ(emit_manifest(read), text);
  EXPECT_EQ(read.run_id, manifest.run_id);
  EXPECT_EQ(read.recipe, manifest.recipe);
  EXPECT_EQ(read.score, manifest.score);
  EXPECT_EQ(read.files[0].block_crcs, manifest.files[0].block_crcs);
  EXPECT_EQ(read.find_tensor("a")->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(read.find_tensor("c"), nullptr);
  EXPECT_EQ(std::get<int64_t>(read.find_value("smallest")->value),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(std::get<double>(read.find_value("third")->value), 1.0 / 3);
  EXPECT_TRUE(std::isnan(std::get<double>(read.find_value("nan")->value)));
  EXPECT_EQ(read.total_bytes(), kBlockBytes + 10);
}

TEST(Manifest, WritesAnEmptyOne) {
  const std::string text = emit_manifest({});
  EXPECT_EQ(emit_manifest(parse_manifest(text, "manifest.json")), text);
}

TEST(Manifest, IsDetectedWhenCutAtAnyLengthOrLengthened) {
  const std::string text = emit_manifest(sample());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(error_of(text.substr(0, length)), "") << length;
  }
  EXPECT_NE(error_of(text + "\n"), "");
  EXPECT_NE(error_of(text + text), "");
}

TEST(Manifest, IsDetectedWhenAnyBitFlips) {
  const std::string text = emit_manifest(sample());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string bad = text;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(error_of(bad), "") << bit;
  }
}

TEST(Manifest, RefusesASignedTextWithAnyByteChanged) {
  const std::string text = emit_manifest(sample());
  const size_t end = text.rfind("\"crc32c\"");
  for (size_t place = 0; place < end; ++place) {
    for (const char byte : {'0', '"', ',', '\\', ' ', '}', '\xff'}) {
      std::string other = text;
      other[place] = byte;
      if (other == text) continue;
      const std::string again = signed_text(other);
      // Whatever is accepted must be canonical.
      if (error_of(again).empty()) {
        EXPECT_EQ(emit_manifest(parse_manifest(again, "m")), again);
      }
    }
  }
}

TEST(Manifest, NamesANewerFormat) {
  EXPECT_THAT(error_of(changed("_checkpoint\":1", "_checkpoint\":3")),
              HasSubstr("written by format 3, this build reads ≤ 1"));
  EXPECT_THAT(error_of(changed("_checkpoint\":1", "_checkpoint\":0")), HasSubstr("no format 0"));
  EXPECT_THROW(refuse_newer_format("{\"shoal_checkpoint\":3,\nanything", "m"), NewerFormatError);
  for (const char* text : {"{\"shoal_checkpoint\":1,", "{\"shoal_checkpoint\":0,", "", "{}"}) {
    EXPECT_NO_THROW(refuse_newer_format(text, "m")) << text;
  }
}

TEST(Manifest, RefusesWhatNoWriterWrites) {
  const std::pair<const char*, const char*> spots[] = {
      {"\"step\":1200", "\"step\": 1200"},
      {"\"step\":1200", "\"step\":01200"},
      {"\"step\":1200", "\"step\":-1"},
      {"\"step\":1200", "\"step\":9223372036854775808"},
      {"0x1.999999999999ap-4", "0.1"},
      {"0x1.999999999999ap-4", "0X1.999999999999AP-4"},
      {"ffffffff", "FFFFFFFF"},
      {"shard-00000-of-00002", "shard-00000-of-00003"},
      {"shard-00000-of-00002.safetensors", "../../../etc/passwd"},
      {"\"bytes\":9,", "\"bytes\":0,"},
      {"\"file\":1", "\"file\":2"},
      {"\"offset\":1,", "\"offset\":2,"},
      {"\"shape\":[2,1]", "\"shape\":[2,2]"},
      {"\"shape\":[2,1]", "\"shape\":[2,1,1,1,1,1,1,1,1]"},
      {"\"shape\":[2,1]", "\"shape\":[9223372036854775807,9223372036854775807]"},
      {"\"name\":\"b\"", "\"name\":\"a\""},
      {"\"name\":\"why\"", "\"name\":\"nan\""},
      {"F32", "F8"},
      {"\\u0001", "\\u0041"},
      {"\"world\"", "\"libtorch\""},
      {"backbone", "backbones"},
  };
  for (const auto& [from, to] : spots) EXPECT_NE(error_of(changed(from, to)), "") << to;
}

TEST(Manifest, IsNotWrittenUnsorted) {
  Manifest manifest = sample();
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  EXPECT_THROW(emit_manifest(manifest), Error);
}

TEST(Manifest, IsNotWrittenIfItCouldNotBeReadBack) {
  const auto error_of_writing = [](const Manifest& manifest) {
    try {
      emit_manifest(manifest);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Manifest manifest = sample();
  manifest.values.back().value = std::string(9 << 20, 'x');
  EXPECT_THAT(error_of_writing(manifest), HasSubstr("a line of"));
  manifest = sample();
  manifest.run_id = "\xff";
  EXPECT_THAT(error_of_writing(manifest), HasSubstr("is not UTF-8"));
  manifest = sample();
  manifest.step = -1;
  EXPECT_THAT(error_of_writing(manifest), HasSubstr("negative"));
}

TEST(HexFloat, KeepsEveryBit) {
  for (const double value : {0.0, -0.0, 1.0 / 3, -5e-324, 1.7976931348623157e308,
                             std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(hex_float(*parse_hex_float(hex_float(value))), hex_float(value));
  }
  for (const char* text : {"", "1.5", "0x1", " 0x1p+0", "0x1p+0 ", "inF", "nan(1)", "NAN"}) {
    EXPECT_FALSE(parse_hex_float(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace shoal
