#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/files/safetensors.h"

namespace shoal {
namespace {

constexpr uint64_t kHeaderSizeBytes = 8;
constexpr size_t kLongestQuote = 200;
// Far more than any writer needs; short ones would cost many times their bytes.
constexpr size_t kMostMetadata = 1'000;
/// No tensor takes fewer in the text.
constexpr size_t kFewestEntryBytes = 48;

std::string shorten(const std::string& text) {
  return text.size() <= kLongestQuote ? text : text.substr(0, kLongestQuote) + "…";
}

/// Accepts exactly the grammar of a safetensors header from the parser's events, so that a hostile
/// file costs no more memory than the entries it truly lists. Returning false ends the parse.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(size_t /*elements*/) override {
    if (place_ == Place::kBegin) return go_to(Place::kTop);
    if (place_ == Place::kMetadata) return go_to(Place::kMetadataKeys);
    if (place_ != Place::kEntry) return refuse("an object");
    seen_.clear();
    num_offsets_ = 0;
    return go_to(Place::kEntryKeys);
  }

  bool end_object() override {
    if (place_ == Place::kTop) return go_to(Place::kEnd);
    if (place_ == Place::kEntryKeys && seen_.size() != kFields.size()) {
      return fail_entry(" lacks dtype, shape or data_offsets");
    }
    return go_to(Place::kTop);
  }

  bool key(string_t& name) override {
    if (place_ == Place::kEntryKeys) return entry_key(name);
    if (place_ == Place::kMetadataKeys) {
      if (metadata.contains(name)) return fail_duplicate(name);
      if (metadata.size() == kMostMetadata) {
        return fail(fmt::format("the header has more than {} keys of metadata", kMostMetadata));
      }
      metadata_key_ = std::move(name);
      return true;
    }
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return fail("'__metadata__' appears twice");
      return go_to(Place::kMetadata);
    }
    entries.emplace_back().name = std::move(name);
    return go_to(Place::kEntry);
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataKeys) {
      metadata.emplace(std::move(metadata_key_), std::move(value));
      return true;
    }
    if (place_ != Place::kDtype) return refuse("a string");
    const std::optional<Dtype> dtype = parse_dtype(value);
    if (!dtype.has_value()) {
      return fail_entry(fmt::format(
          " has the dtype '{}'; known are F64 F32 BF16 F16 I64 I32 U8 BOOL", shorten(value)));
    }
    entries.back().dtype = *dtype;
    return go_to(Place::kEntryKeys);
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ == Place::kShape) return go_to(Place::kShapeItems);
    if (place_ == Place::kOffsets) return go_to(Place::kOffsetItems);
    return refuse("a list");
  }

  bool end_array() override {
    if (place_ == Place::kOffsetItems && num_offsets_ != 2) {
      return fail_entry(": data_offsets are not two numbers");
    }
    return go_to(Place::kEntryKeys);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShapeItems) {
      std::vector<int64_t>& shape = entries.back().shape;
      if (value > static_cast<uint64_t>(INT64_MAX) || shape.size() == 8) {
        return fail_entry(": a shape has at most 8 sizes below 2^63");
      }
      shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsetItems && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entries.back().begin : entries.back().end) = value;
      return true;
    }
    return refuse("a number");
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { return refuse("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return refuse("a number that is not an integer");
  }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return fail(fmt::format("the header is not JSON at byte {}", kHeaderSizeBytes + position - 1));
  }

 private:
  enum class Place {
    kBegin,
    kTop,
    kMetadata,
    kMetadataKeys,
    kEntry,
    kEntryKeys,
    kDtype,
    kShape,
    kShapeItems,
    kOffsets,
    kOffsetItems,
    kEnd
  };
  static constexpr std::array kFields{std::pair{"dtype", Place::kDtype},
                                      std::pair{"shape", Place::kShape},
                                      std::pair{"data_offsets", Place::kOffsets}};
  Place place_ = Place::kBegin;
  std::set<Place> seen_;  ///< keys of the entry
  bool has_metadata_ = false;
  int num_offsets_ = 0;
  std::string metadata_key_;

  bool go_to(Place place) {
    place_ = place;
    return true;
  }

  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool refuse(const char* what) {
    return fail(
        fmt::format("{} in the wrong place{}", what,
                    entries.empty() ? "" : ", near tensor '" + shorten(entries.back().name) + "'"));
  }
  /// Fails with the name of the tensor being read, followed by `text`.
  bool fail_entry(const std::string& text) {
    return fail(fmt::format("tensor '{}'{}", shorten(entries.back().name), text));
  }
  bool fail_duplicate(const std::string& name) {
    return fail(fmt::format("the key '{}' appears twice", shorten(name)));
  }

  bool entry_key(const std::string& name) {
    for (const auto& [known, place] : kFields) {
      if (name == known) {
        place_ = place;
        return seen_.insert(place).second || fail_duplicate(name);
      }
    }
    return fail_entry(fmt::format(" has an unknown key '{}'", shorten(name)));
  }
};

/// Empty, or what is wrong with the entries' places; sorts them by place.
std::string check_layout(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    const std::optional<uint64_t> bytes = tensor_bytes(entry.dtype, entry.shape);
    if (!bytes.has_value() || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
      return fmt::format("tensor '{}' {} does not fill its bytes {}..{} of the data",
                         shorten(entry.name), describe_tensor(entry.dtype, entry.shape),
                         entry.begin, entry.end);
    }
  }
  std::ranges::sort(entries, [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t place = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != place) {
      return fmt::format("tensor '{}' begins at byte {} of the data, not at {}",
                         shorten(entry.name), entry.begin, place);
    }
    place = entry.end;
  }
  if (place > data_bytes) {
    return fmt::format("the file is cut off: {} of {} bytes of data are there", data_bytes, place);
  }
  if (place != data_bytes) {
    return fmt::format("the tensors cover {} bytes of data, the file has {}", place, data_bytes);
  }
  return "";
}

std::string find_duplicate(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names(entries.size());
  std::transform(entries.begin(), entries.end(), names.begin(),
                 [](const SafetensorsEntry& entry) { return std::string_view(entry.name); });
  std::ranges::sort(names);
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return "";
  return fmt::format("the tensor '{}' appears twice", shorten(std::string(*twice)));
}

/// What is wrong, or "": the JSON parser would end at a zero byte and skip a byte order mark.
std::string check_text(std::string_view json, uint64_t file_bytes) {
  if (json.size() > kLargestSafetensorsHeader) {
    return fmt::format("the header has {} bytes; at most {} are read", json.size(),
                       kLargestSafetensorsHeader);
  }
  if (file_bytes < kHeaderSizeBytes + json.size()) return "the header is longer than the file";
  if (json.empty() || json[0] != '{') return "the header does not begin with '{'";
  const size_t zero = json.find('\0');
  if (zero != std::string_view::npos) {
    return fmt::format("the header has a zero byte at {}", kHeaderSizeBytes + zero);
  }
  return "";
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& path) {
  HeaderReader reader;
  SafetensorsHeader header;
  header.data_begin = kHeaderSizeBytes + json.size();
  std::string problem = check_text(json, file_bytes);
  // All at once: growing by doubling would hold the entries twice.
  if (problem.empty()) reader.entries.reserve(json.size() / kFewestEntryBytes + 1);
  if (problem.empty() && !nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    problem = reader.problem;
  }
  if (problem.empty()) problem = check_layout(reader.entries, file_bytes - header.data_begin);
  if (problem.empty()) problem = find_duplicate(reader.entries);
  if (!problem.empty()) throw CheckpointError(fmt::format("'{}': {}", path, problem));
  header.entries = std::move(reader.entries);
  header.metadata = std::move(reader.metadata);
  return header;
}

}  // namespace shoal
