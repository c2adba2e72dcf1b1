#include "runtime/data/shards/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/images/image_list.h"
#include "runtime/data/shards/tar.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".index";
constexpr std::string_view kIndexFormat = "shoal-shard-index";
constexpr int64_t kIndexVersion = 2;  // 1 names neither classes nor files
constexpr size_t kMostHeadersHashed = 64;

constexpr const char* kRemake =
    "a sample is NAME.jpg or NAME.png and, with classes, NAME.cls: make the shard again, as by "
    "shoal data pack";

/// The parts of "folder/000017.seg.png": "folder/000017" and "seg.png", in small letters.
struct MemberName {
  explicit MemberName(std::string_view name) {
    const size_t slash = name.rfind('/');
    const size_t last = slash == name.npos ? 0 : slash + 1;
    const size_t point = std::min(name.find('.', last), name.size());
    is_hidden = point == last;
    sample = name.substr(0, point);
    ending = lower_case(name.substr(std::min(point + 1, name.size())));
  }
  bool is_image() const {
    return !ending.empty() && image_ending("." + ending) == ending;  // "seg.png" is none
  }

  std::string_view sample;
  std::string ending;
  bool is_hidden = false;
};

/// The members of one sample.
struct SampleMembers {
  const TarMember* first = nullptr;
  const TarMember* image = nullptr;
  const TarMember* label = nullptr;
};

/// Samples in the order of their first members.
std::vector<SampleMembers> grouped(const std::vector<TarMember>& members, const std::string& path) {
  std::vector<SampleMembers> samples;
  std::unordered_map<std::string_view, size_t> place_of;
  for (const TarMember& member : members) {
    const MemberName name(member.name);
    if (name.is_hidden) continue;
    const auto [place, is_new] = place_of.emplace(name.sample, samples.size());
    if (is_new) samples.push_back({.first = &member});
    SampleMembers& sample = samples[place->second];
    if (!name.is_image() && name.ending != "cls") continue;
    const TarMember*& kept = name.is_image() ? sample.image : sample.label;
    if (kept != nullptr) {
      throw DataError(member_place(path, member.name) + " is of a sample that has " +
                          quoted_excerpt(kept->name) + " already",
                      kRemake);
    }
    kept = &member;
  }
  return samples;
}

int64_t label_in(std::span<const std::byte> archive, const TarMember& member,
                 const std::string& path) {
  constexpr int64_t kMostBytes = 32;
  const auto* begin = reinterpret_cast<const char*>(archive.data()) + member.offset;
  std::string_view text(begin, static_cast<size_t>(std::min(member.size, kMostBytes)));
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (const std::optional<int64_t> label = parse_digits(text)) return *label;
  throw DataError(member_place(path, member.name) + " holds " + quoted_excerpt(text) +
                      ", not a class, an integer of 0 or more",
                  kRemake);
}

void require_label(const ShardSample& sample, const std::string& path) {
  if (sample.label) return;
  throw DataError(member_place(path, sample.name) + " has no class beside it, a member NAME.cls",
                  "set data.classes: none for images without labels, or pack them with --classes");
}

/// Over the lines of an index and the headers of samples spread evenly.
std::string hash_of(std::string_view lines, const std::vector<ShardSample>& samples,
                    std::span<const std::byte> archive) {
  Sha256 hash;
  hash.update(lines);
  const size_t num_hashed = std::min(kMostHeadersHashed, samples.size());
  for (size_t i = 0; i < num_hashed; ++i) {
    const ShardSample& sample = samples[samples.size() * i / num_hashed];
    const auto* end = reinterpret_cast<const char*>(archive.data()) + sample.offset;
    hash.update({end - kTarBlockBytes, static_cast<size_t>(kTarBlockBytes)});
  }
  return hash.hex();
}

/// Takes the text up to the first `end` off `rest`, and it; nothing without one.
std::optional<std::string_view> take_word(std::string_view& rest, char end) {
  const size_t at = rest.find(end);
  if (at == rest.npos) return std::nullopt;
  const std::string_view word = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  return word;
}

/// take_word for an integer >= 0.
std::optional<int64_t> take_number(std::string_view& rest, char end) {
  const std::optional<std::string_view> word = take_word(rest, end);
  return word ? parse_digits(*word) : std::nullopt;
}

/// One line off `rest`, of a sample within the archive; nothing if it is none.
std::optional<ShardSample> take_sample(std::string_view& rest, int64_t archive_bytes) {
  const std::optional<int64_t> offset = take_number(rest, ' '), size = take_number(rest, ' ');
  std::optional<int64_t> label;
  const bool has_label = !rest.starts_with("- ");
  if (has_label) {
    label = take_number(rest, ' ');
  } else {
    rest.remove_prefix(2);
  }
  const std::optional<std::string_view> name = take_word(rest, '\n');
  const bool is_read = offset && size && label.has_value() == has_label && name && !name->empty();
  if (!is_read || *offset % kTarBlockBytes != 0 || *offset == 0 || *offset > archive_bytes ||
      *size > archive_bytes - *offset) {
    return std::nullopt;
  }
  const size_t tab = std::min(name->find('\t'), name->size());
  return ShardSample{std::string(name->substr(0, tab)), *offset, *size, label,
                     std::string(name->substr(std::min(tab + 1, name->size())))};
}

}  // namespace

std::vector<ShardSample> samples_of_tar(std::span<const std::byte> archive, const std::string& path,
                                        Labels labels) {
  const std::vector<TarMember> members = list_tar(archive, path);
  std::vector<ShardSample> samples;
  for (const SampleMembers& found : grouped(members, path)) {
    if (found.image == nullptr) {
      throw DataError(member_place(path, found.first->name) + " has no image of its name beside it",
                      kRemake);
    }
    ShardSample sample{found.image->name, found.image->offset, found.image->size};
    if (labels != Labels::kIgnored && found.label != nullptr) {
      sample.label = label_in(archive, *found.label, path);
    }
    if (labels == Labels::kRequired) require_label(sample, path);
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) throw DataError(path + ": holds no samples", kRemake);
  return samples;
}

std::string shard_index_path(const std::string& shard) { return shard + std::string(kIndexEnding); }

std::string emit_shard_index(const ShardList& list, std::span<const std::byte> archive) {
  std::string lines = join_words(list.class_names, "\t") + "\n";
  for (const ShardSample& sample : list.samples) {
    lines += fmt::format("{} {} {} {}{}{}\n", sample.offset, sample.size,
                         sample.label ? std::to_string(*sample.label) : "-", sample.name,
                         sample.file.empty() ? "" : "\t", sample.file);
  }
  return fmt::format("{} {} {} {} {}\n", kIndexFormat, kIndexVersion, archive.size(),
                     list.samples.size(), hash_of(lines, list.samples, archive)) +
         lines;
}

ShardList parse_shard_index(std::string_view text, std::span<const std::byte> archive,
                            const std::string& path) {
  const auto refuse = [&](const std::string& what) -> DataError {
    return DataError(fmt::format("{}: {}", shard_index_path(path), what),
                     fmt::format("remove it, and the headers of {} are read again", path));
  };
  const std::optional<std::string_view> format = take_word(text, ' ');
  const std::optional<int64_t> version = take_number(text, ' ');
  if (format != kIndexFormat || !version) throw refuse("not the index of a shard");
  if (*version < 1 || *version > kIndexVersion) {
    throw refuse(fmt::format("version {}; versions 1 to {} can be read", *version, kIndexVersion));
  }
  const auto archive_bytes = std::ssize(archive);
  const std::optional<int64_t> bytes = take_number(text, ' '), num_samples = take_number(text, ' ');
  const std::optional<std::string_view> hash = take_word(text, '\n');
  if (!bytes || !num_samples || !hash) throw refuse("damaged in its first line");
  if (*bytes != archive_bytes) {
    throw refuse(
        fmt::format("is of an archive of {} bytes, and {} has {}", *bytes, path, archive_bytes));
  }
  const std::string_view lines = text;
  ShardList list;
  std::vector<ShardSample>& samples = list.samples;
  if (*version > 1) list.class_names = split(take_word(text, '\n').value_or(""), '\t');
  while (!text.empty()) {
    std::optional<ShardSample> sample = take_sample(text, archive_bytes);
    if (!sample) throw refuse(fmt::format("damaged in line {}", samples.size() + *version + 1));
    samples.push_back(std::move(*sample));
  }
  if (samples.empty() || std::ssize(samples) != *num_samples) {
    throw refuse(fmt::format("damaged: it lists {} of {} samples", samples.size(), *num_samples));
  }
  if (hash_of(lines, samples, archive) != *hash) {
    throw refuse(fmt::format("does not fit {}: its hash is of other samples", path));
  }
  return list;
}

std::optional<ShardList> indexed_samples(const MappedFile& shard) {
  const std::string path = shard_index_path(shard.path());
  if (!data_file_exists(path)) return std::nullopt;
  const MappedFile index(path, "");
  const std::span<const std::byte> bytes = index.bytes();
  return parse_shard_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                           shard.bytes(), shard.path());
}

std::vector<std::string> class_names_of_shards(const std::vector<std::string>& shards) {
  for (const std::string& shard : shards) {
    if (auto list = indexed_samples(MappedFile(shard, ""))) return std::move(list->class_names);
  }
  return {};
}

std::span<const std::byte> image_in(std::span<const std::byte> archive, const ShardSample& sample) {
  return archive.subspan(static_cast<size_t>(sample.offset), static_cast<size_t>(sample.size));
}

std::string member_place(const std::string& path, const std::string& name) {
  return fmt::format("{}: member {}", path, quoted_excerpt(name));
}

Shard::Shard(const std::string& path, Labels labels)
    : file_(path, "data.path with data.train.shards and data.valid.shards must name shards") {
  std::optional<ShardList> indexed = indexed_samples(file_);
  if (!indexed) {
    list_.samples = samples_of_tar(file_.bytes(), path, labels);
    return;
  }
  list_ = std::move(*indexed);
  if (labels != Labels::kRequired) return;
  for (const ShardSample& sample : samples()) require_label(sample, path);
}

std::vector<std::string> shards_in(const std::string& folder, const std::string& hint) {
  std::vector<std::string> paths;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    const bool is_shard = name.ends_with(kShardEnding) && !name.starts_with('.');
    if (is_shard) paths.push_back(entry->path().lexically_normal().string());
  }
  if (failed) throw DataError(folder + ": cannot be listed: " + failed.message(), hint);
  if (paths.empty()) throw DataError(folder + ": no shard (*.tar) in it", hint);
  std::ranges::sort(paths);
  return paths;
}

}  // namespace shoal
