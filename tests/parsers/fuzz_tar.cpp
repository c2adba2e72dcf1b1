#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/tar.h"

/// Input: a tar archive, as it is and with a right checksum in each of its blocks; or the index of
/// one. Whatever it is, reading ends with members that lie within the archive under safe names,
/// which are written and listed again, and with samples that an index gives again; or with a
/// DataError.
namespace shoal {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void check_members(const std::vector<TarMember>& members, const std::string& archive) {
  if (members.empty()) std::abort();
  std::string again;
  for (const TarMember& member : members) {
    const auto bytes = static_cast<int64_t>(archive.size());
    if (member.offset < kTarBlockBytes || member.size < 0 || member.size > bytes - member.offset ||
        member.offset > bytes) {
      std::abort();
    }
    if (member.name.empty() || member.name.front() == '/' ||
        ("/" + member.name + "/").find("/../") != std::string::npos) {
      std::abort();
    }
    again += tar_header(member.name, member.size) +
             archive.substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.size)) +
             tar_padding(member.size);
  }
  again += tar_end();
  const std::vector<TarMember> listed = list_tar(bytes_of(again), "again");
  const auto is_same = [](const TarMember& a, const TarMember& b) {
    return a.name == b.name && a.size == b.size;
  };
  if (!std::ranges::equal(members, listed, is_same)) std::abort();
}

void check_samples(const std::string& archive) {
  const auto samples = samples_of_tar(bytes_of(archive), "fuzz", Labels::kOptional);
  for (const ShardSample& sample : samples) {
    if (sample.name.find_first_of("\n\t") != std::string::npos) return;
  }
  const std::string index = emit_shard_index({samples, {"cat", "dog"}}, bytes_of(archive));
  const ShardList again = parse_shard_index(index, bytes_of(archive), "again");
  if (again.samples != samples || again.class_names.size() != 2) std::abort();
}

void read_archive(const std::string& archive) {
  std::vector<TarMember> members;
  try {
    members = list_tar(bytes_of(archive), "fuzz");
  } catch (const DataError&) {
    return;
  }
  check_members(members, archive);
  try {
    check_samples(archive);
  } catch (const DataError&) {
  }
}

void read_index(const std::string& index) {
  const std::string archive(2048, 'x');
  try {
    for (const ShardSample& sample : parse_shard_index(index, bytes_of(archive), "fuzz").samples) {
      if (image_in(bytes_of(archive), sample).size() != static_cast<size_t>(sample.size)) {
        std::abort();
      }
    }
  } catch (const DataError&) {
  }
}

/// Else a change of a header is nothing but a wrong checksum.
std::string with_checksums(std::string archive) {
  constexpr size_t kBlock = kTarBlockBytes, kChecksum = 148, kChecksumBytes = 8;
  for (size_t start = 0; start + kBlock <= archive.size(); start += kBlock) {
    const auto begin = archive.begin() + static_cast<std::ptrdiff_t>(start);
    if (std::all_of(begin, begin + kBlock, [](char c) { return c == '\0'; })) continue;
    archive.replace(start + kChecksum, kChecksumBytes, kChecksumBytes, ' ');
    unsigned sum = 0;
    for (size_t i = start; i < start + kBlock; ++i) sum += static_cast<unsigned char>(archive[i]);
    char digits[kChecksumBytes];
    std::snprintf(digits, sizeof(digits), "%06o", sum);
    archive.replace(start + kChecksum, 7, digits, 7);
  }
  return archive;
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  shoal::read_archive(text);
  shoal::read_archive(shoal::with_checksums(text));
  shoal::read_index(text);
  return 0;
}
