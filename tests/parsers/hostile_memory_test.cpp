#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/formats/foreign_config.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/base/error.h"
#include "runtime/data/shards/tar.h"
#include "runtime/files/crc32c.h"
#include "tests/parsers/tar_fixture.h"
#include "tests/support/peak_memory.h"
#include "tests/support/scratch_folder.h"

// Sanitizers keep freed memory back, so that there is nothing to measure.
#if !defined(__SANITIZE_ADDRESS__)

namespace shoal {
namespace {

using testing::peak_bytes_of;
using testing::ScratchFolder;
using testing::write_file;

// What is taken is in proportion to the text: one of this length stands for all.
constexpr size_t kTextBytes = size_t{24} << 20;
constexpr int64_t kAllowedBytes = int64_t{64} << 20;

/// A list of as many items as make the text about kTextBytes long.
std::string long_list(const std::function<std::string(int64_t)>& item) {
  std::string text;
  for (int64_t i = 0; text.size() + (size_t{64} << 10) < kTextBytes; ++i) {
    text += (i == 0 ? "\n" : ",\n") + item(i);
  }
  return text + "\n";
}

/// Four letters that rise with i.
std::string short_name(int64_t i) {
  std::string name;
  for (int64_t digits = i, k = 0; k < 4; ++k, digits /= 26) {
    name.insert(name.begin(), static_cast<char>('a' + digits % 26));
  }
  return name;
}

/// What is between the brackets or quotes of each key.
using Contents = std::map<std::string, std::string>;

/// A manifest with a right checksum.
std::string manifest_of(const Contents& contents) {
  std::string text = emit_manifest({});
  for (const auto& [key, value] : contents) {
    text.insert(text.find("\"" + key + "\":") + key.size() + 4, value);
  }
  text.resize(text.rfind("\"crc32c\""));
  return text + fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(text));
}

class HostileMemory : public ::testing::Test {
 protected:
  ScratchFolder scratch_;

  /// What reading a checkpoint of these files takes beside them.
  int64_t bytes_beside(const std::vector<std::pair<std::string, std::string>>& contents) const {
    int64_t total = 0;
    for (const auto& [name, bytes] : contents) {
      write_file(scratch_.file(name), bytes);
      total += static_cast<int64_t>(bytes.size());
    }
    return peak_bytes_of([&] { CheckpointReader(scratch_.path()).verify_data(); }) - total;
  }
  int64_t bytes_beside_manifest(const Contents& contents) const {
    return bytes_beside({{kManifestName, manifest_of(contents)}});
  }
  int64_t bytes_beside_header(const std::string& json) const {
    std::string file;
    for (int shift = 0; shift < 64; shift += 8) file += static_cast<char>(json.size() >> shift);
    const std::string shard = shard_name(0, 1);
    Manifest manifest;
    manifest.files = {{shard, file.size() + json.size(), {}}};
    manifest.files[0].block_crcs.resize((manifest.files[0].bytes - 1) / kBlockBytes + 1);
    return bytes_beside({{kManifestName, emit_manifest(manifest)}, {shard, file + json}});
  }
};

TEST_F(HostileMemory, OfAManifestThatIsTooLongIsNone) {
  write_file(scratch_.file(kManifestName), "{");
  std::filesystem::resize_file(scratch_.file(kManifestName), kLargestManifest + 1);
  EXPECT_LT(peak_bytes_of([&] { CheckpointReader{scratch_.path()}; }), 8 << 20);
}

TEST_F(HostileMemory, OfTensorsIsBounded) {
  const auto tensor = [](int64_t i) {
    return fmt::format(
        "{{\"name\":\"tensor.{:09}\",\"dtype\":\"U8\",\"shape\":[1,1,1,1,1],\"file\":0,"
        "\"offset\":0,\"bytes\":1,\"crc32c\":\"00000000\"}}",
        i);
  };
  const std::string one_file = fmt::format(
      "\n{{\"name\":\"{}\",\"bytes\":1,\"blocks\":[\"00000000\"]}}\n", shard_name(0, 1));
  EXPECT_LT(bytes_beside_manifest({{"files", one_file}, {"tensors", long_list(tensor)}}),
            kAllowedBytes);
}

TEST_F(HostileMemory, OfFilesIsBounded) {
  const auto file = [](int64_t i) {
    return fmt::format("{{\"name\":\"{}\",\"bytes\":1,\"blocks\":[\"00000000\"]}}",
                       shard_name(i, 99999));
  };
  EXPECT_LT(bytes_beside_manifest({{"files", long_list(file)}}), kAllowedBytes);
}

TEST_F(HostileMemory, OfValuesAndOriginsIsBounded) {
  const auto value = [](int64_t i) {
    return fmt::format("{{\"name\":\"{}\",\"integer\":0}}", short_name(i));
  };
  EXPECT_LT(bytes_beside_manifest({{"values", long_list(value)}}), kAllowedBytes);
  const auto origin = [](int64_t i) { return fmt::format("{{\"{}\":\"\"}}", short_name(i)); };
  EXPECT_LT(bytes_beside_manifest({{"written_by", long_list(origin)}}), kAllowedBytes);
}

TEST_F(HostileMemory, OfOneItemIsBounded) {
  const auto one_file = [](const std::string& blocks) {
    return "\n{\"name\":\"x\",\"bytes\":1,\"blocks\":" + blocks + "}\n";
  };
  std::string numbers = "[1", names = "\n{\"name\":1";
  while (numbers.size() + 100 < kTextBytes) numbers += ",\n1";
  EXPECT_LT(bytes_beside_manifest({{"files", one_file(numbers + "]")}}), kAllowedBytes);
  EXPECT_LT(bytes_beside_manifest({{"files", one_file(std::string(kTextBytes, '['))}}),
            kAllowedBytes);
  for (int64_t i = 0; names.size() + 100 < kTextBytes; ++i) {
    names += fmt::format(",\n\"{}{}\":1", short_name(i), i / 456976);
  }
  EXPECT_LT(bytes_beside_manifest({{"tensors", names + "}\n"}}), kAllowedBytes);
  EXPECT_LT(bytes_beside_manifest({{"written_by", names + "}\n"}}), kAllowedBytes);
}

TEST_F(HostileMemory, OfALongRecipeIsBounded) {
  EXPECT_LT(bytes_beside_manifest({{"recipe", std::string(23 << 20, 'x')}}), kAllowedBytes);
}

TEST_F(HostileMemory, OfAHeaderOfTensorsIsBounded) {
  std::string json = "{";
  for (int64_t i = 0; json.size() + 200 < kLargestSafetensorsHeader; ++i) {
    json += fmt::format(
        "{}\"t{:015}\":{{\"dtype\":\"U8\",\"shape\":[0,1,1,1,1],"
        "\"data_offsets\":[0,0]}}",
        i == 0 ? "" : ",", i);
  }
  EXPECT_LT(bytes_beside_header(json + "}"), kAllowedBytes);
}

TEST_F(HostileMemory, OfAHeaderOfMetadataIsBounded) {
  std::string json = "{\"__metadata__\":{";
  for (int64_t i = 0; json.size() + 200 < kLargestSafetensorsHeader; ++i) {
    json += fmt::format("{}\"{}{}\":\"\"", i == 0 ? "" : ",", short_name(i), i / 456976);
  }
  EXPECT_LT(bytes_beside_header(json + "}}"), kAllowedBytes);
}

TEST_F(HostileMemory, OfAForeignConfigIsBounded) {
  const std::string deep = std::string(kTextBytes, '[');
  std::string names = "{\"x\":1", numbers = "{\"x\":[1";
  for (int64_t i = 0; names.size() + 100 < kTextBytes; ++i) {
    names += fmt::format(",\"{}{}\":\"\"", short_name(i), i / 456976);
  }
  while (numbers.size() + 100 < kTextBytes) numbers += ",1";
  for (const std::string& text : {deep, names + "}", numbers + "]}"}) {
    EXPECT_LT(
        peak_bytes_of([&] { EXPECT_THROW(ForeignConfig(text, "config.json"), CheckpointError); }),
        kAllowedBytes);
  }
}

TEST_F(HostileMemory, OfATarArchiveIsBounded) {
  const std::string member = testing::TarHeader{.name = "a.jpg"}.block();
  std::string members;
  while (members.size() < kTextBytes) members += member;
  const std::string name =
      testing::tar_member({.name = "L", .type = 'L'}, std::string(kTextBytes, 'n')) + member;
  for (const std::string& archive :
       {members + testing::tar_trailer(), name + testing::tar_trailer()}) {
    EXPECT_LT(peak_bytes_of([&] { list_tar(std::as_bytes(std::span(archive)), "a.tar"); }),
              int64_t{8} << 20);
  }
}

TEST_F(HostileMemory, IsMeasuredAtAll) {
  const int64_t bytes = peak_bytes_of([] {
    const std::string text(100 << 20, 'x');
    ASSERT_EQ(text.back(), 'x');
  });
  EXPECT_GT(bytes, 95 << 20);
  EXPECT_LT(bytes, 110 << 20);
}

}  // namespace
}  // namespace shoal

#endif
