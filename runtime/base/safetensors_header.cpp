#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/safetensors.h"

namespace shoal {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kLongestQuote = 200;
// Far more than any writer needs; short ones would cost many times their bytes.
constexpr size_t kMostMetadata = 1'000;
/// No tensor takes fewer in the text.
constexpr size_t kFewestEntryBytes = 48;

std::string shorten(const std::string& text) {
  return text.size() <= kLongestQuote ? text : text.substr(0, kLongestQuote) + "…";
}

/// Takes the parser's events and accepts exactly the grammar of a safetensors header, so that a
/// hostile file costs no more memory than the entries it truly lists. Returning false ends the
/// parse.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(size_t /*elements*/) override {
    switch (place_) {
      case Place::kBegin:
        place_ = Place::kTop;
        return true;
      case Place::kMetadata:
        place_ = Place::kMetadataKeys;
        return true;
      case Place::kEntry:
        place_ = Place::kEntryKeys;
        has_dtype_ = has_shape_ = false;
        num_offsets_ = -1;
        return true;
      default:
        return refuse("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    if (place_ == Place::kEntryKeys && !(has_dtype_ && has_shape_ && num_offsets_ == 2)) {
      return fail(fmt::format("tensor '{}' lacks dtype, shape or data_offsets",
                              shorten(entries.back().name)));
    }
    place_ = Place::kTop;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::kTop) {
      if (name == "__metadata__") {
        if (std::exchange(has_metadata_, true)) return fail("'__metadata__' appears twice");
        place_ = Place::kMetadata;
      } else {
        entries.emplace_back().name = std::move(name);
        place_ = Place::kEntry;
      }
      return true;
    }
    if (place_ == Place::kMetadataKeys) {
      if (metadata.contains(name)) return fail(duplicate(name));
      if (metadata.size() == kMostMetadata) {
        return fail(fmt::format("the header has more than {} keys of metadata", kMostMetadata));
      }
      metadata_key_ = std::move(name);
      return true;
    }
    return entry_key(name);
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataKeys) {
      metadata.emplace(std::move(metadata_key_), std::move(value));
      return true;
    }
    if (place_ != Place::kDtype) return refuse("a string");
    const std::optional<Dtype> dtype = parse_dtype(value);
    if (!dtype.has_value()) {
      return fail(
          fmt::format("tensor '{}' has the dtype '{}'; known are F64 F32 BF16 F16 I64 I32 "
                      "U8 BOOL",
                      shorten(entries.back().name), shorten(value)));
    }
    entries.back().dtype = *dtype;
    place_ = Place::kEntryKeys;
    return true;
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItems;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItems;
    } else {
      return refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsetItems && num_offsets_ != 2) {
      return fail(fmt::format("tensor '{}': data_offsets are not two numbers",
                              shorten(entries.back().name)));
    }
    place_ = Place::kEntryKeys;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    SafetensorsEntry* entry = entries.empty() ? nullptr : &entries.back();
    if (place_ == Place::kShapeItems) {
      if (value > static_cast<uint64_t>(INT64_MAX) || entry->shape.size() == 8) {
        return fail(fmt::format("tensor '{}': a shape has at most 8 sizes below 2^63",
                                shorten(entry->name)));
      }
      entry->shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsetItems && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entry->begin : entry->end) = value;
      return true;
    }
    return refuse("a number");
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { return refuse("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return refuse("a number that is no integer");
  }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return fail(fmt::format("the header is not JSON at byte {}", kLengthBytes + position - 1));
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
  Place place_ = Place::kBegin;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false;
  int num_offsets_ = -1;
  std::string metadata_key_;

  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool refuse(const char* what) {
    return fail(
        fmt::format("{} in the wrong place{}", what,
                    entries.empty() ? "" : ", near tensor '" + shorten(entries.back().name) + "'"));
  }
  static std::string duplicate(const std::string& name) {
    return fmt::format("the key '{}' appears twice", shorten(name));
  }

  bool entry_key(const std::string& name) {
    if (name == "dtype") {
      place_ = Place::kDtype;
      return !std::exchange(has_dtype_, true) || fail(duplicate(name));
    }
    if (name == "shape") {
      place_ = Place::kShape;
      return !std::exchange(has_shape_, true) || fail(duplicate(name));
    }
    if (name == "data_offsets") {
      place_ = Place::kOffsets;
      return std::exchange(num_offsets_, 0) < 0 || fail(duplicate(name));
    }
    return fail(fmt::format("tensor '{}' has an unknown key '{}'", shorten(entries.back().name),
                            shorten(name)));
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
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
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
  if (place != data_bytes) {
    return fmt::format("the tensors cover {} bytes of data, the file has {}", place, data_bytes);
  }
  return "";
}

std::string find_duplicate(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names(entries.size());
  std::transform(entries.begin(), entries.end(), names.begin(),
                 [](const SafetensorsEntry& entry) { return std::string_view(entry.name); });
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return "";
  return fmt::format("the tensor '{}' appears twice", shorten(std::string(*twice)));
}

/// Empty, or what is wrong before any parsing: the JSON parser takes a zero byte for the end of
/// its input, and skips a byte order mark.
std::string check_text(std::string_view json, uint64_t file_bytes) {
  if (json.size() > kLargestSafetensorsHeader) {
    return fmt::format("the header has {} bytes; at most {} are read", json.size(),
                       kLargestSafetensorsHeader);
  }
  if (file_bytes < kLengthBytes + json.size()) return "the header is longer than the file";
  if (json.empty() || json[0] != '{') return "the header does not begin with '{'";
  const size_t zero = json.find('\0');
  if (zero != std::string_view::npos) {
    return fmt::format("the header has a zero byte at {}", kLengthBytes + zero);
  }
  return "";
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& path) {
  HeaderReader reader;
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + json.size();
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
