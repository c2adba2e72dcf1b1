#include "parallel/checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "runtime/base/utf8.h"
#include "runtime/files/crc32c.h"
#include "runtime/files/sha256.h"
#include "runtime/records/metrics.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

// Far more than any writer needs; a hostile text of short items would cost many times its size.
constexpr size_t kMostFiles = 65'536;
constexpr size_t kMostValues = 65'536;
constexpr size_t kMostOrigins = 1'024;
constexpr size_t kMostSavedDims = 8;
/// Blocks of a shard of 2 TiB.
constexpr size_t kMostBlocks = size_t{1} << 19;
/// JSON values and keys that one line consists of.
constexpr size_t kMostHeld = kMostBlocks + 64;
/// The parser holds a string several times.
constexpr size_t kLongestLine = size_t{8} << 20;
/// Bytes of a manifest besides files and tensors; it has few values.
constexpr uint64_t kMostHeadBytes = uint64_t{2} << 20;
/// No tensor takes fewer in the text.
constexpr size_t kFewestTensorBytes = 80;
constexpr char kStepPrefix[] = "step-";
constexpr std::string_view kBegin = "{\"shoal_checkpoint\":";

/// Receives the canonical text piece by piece.
using Sink = std::function<void(std::string_view)>;

/// "[\n" + one item a line + "\n]"; "[]" if there is none.
template <typename Items, typename Emit>
void emit_list(const Items& items, const Emit& emit, const Sink& sink) {
  if (items.empty()) return sink("[]");
  const char* before = "[\n";
  for (const auto& item : items) {
    sink(before);
    sink(emit(item));
    before = ",\n";
  }
  sink("\n]");
}

std::string emit_file(const ManifestFile& file) {
  std::string blocks;
  for (const uint32_t crc : file.block_crcs) {
    blocks += fmt::format("{}\"{:08x}\"", blocks.empty() ? "" : ",", crc);
  }
  return fmt::format("{{\"name\":{},\"bytes\":{},\"blocks\":[{}]}}", json_quote(file.name),
                     file.bytes, blocks);
}

std::string emit_tensor(const ManifestTensor& tensor) {
  return fmt::format(
      "{{\"name\":{},\"dtype\":\"{}\",\"shape\":[{}],\"file\":{},\"offset\":{},\"bytes\":{},"
      "\"crc32c\":\"{:08x}\"}}",
      json_quote(tensor.name), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), tensor.file,
      tensor.offset, tensor.bytes, tensor.crc);
}

std::string emit_value(const ManifestValue& item) {
  std::string value;
  if (const auto* integer = std::get_if<int64_t>(&item.value)) {
    value = fmt::format("\"integer\":{}", *integer);
  } else if (const auto* real = std::get_if<double>(&item.value)) {
    value = fmt::format("\"real\":\"{}\"", hex_float(*real));
  } else {
    value = "\"text\":" + json_quote(std::get<std::string>(item.value));
  }
  return fmt::format("{{\"name\":{},{}}}", json_quote(item.name), value);
}

void emit_without_crc(const Manifest& manifest, const Sink& sink) {
  sink(fmt::format("{{\"shoal_checkpoint\":{},\n\"run_id\":{},\n\"step\":{},\n\"samples\":{},\n",
                   kManifestFormat, json_quote(manifest.run_id), manifest.step, manifest.samples));
  sink(fmt::format("\"score\":{},\n\"parent\":{},\n",
                   manifest.score.has_value() ? json_quote(hex_float(*manifest.score)) : "null",
                   json_quote(manifest.parent)));
  sink(fmt::format("\"recipe\":{},\n\"recipe_sha256\":\"{}\",\n", json_quote(manifest.recipe),
                   sha256_hex(manifest.recipe)));
  const auto emit_origin = [](const auto& item) {
    return fmt::format("{{{}:{}}}", json_quote(item.first), json_quote(item.second));
  };
  sink("\"written_by\":");
  emit_list(manifest.written_by, emit_origin, sink);
  sink(",\n\"files\":");
  emit_list(manifest.files, emit_file, sink);
  sink(",\n\"tensors\":");
  emit_list(manifest.tensors, emit_tensor, sink);
  sink(",\n\"values\":");
  emit_list(manifest.values, emit_value, sink);
  sink(",\n");
}

std::string emit_crc(std::string_view text) {
  return fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(text));
}

/// A manifest that this build does not write, or a text that it does not read.
[[noreturn]] void refuse(const std::string& problem) { throw std::invalid_argument(problem); }

/// Hands over each line without its newline, and where it begins. Refuses lines too long to parse.
void for_each_line(std::string_view text,
                   const std::function<void(std::string_view line, size_t begin)>& use) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kLongestLine) {
      refuse(fmt::format("byte {}: a line of {} bytes; at most {} are read", begin, end - begin,
                         kLongestLine));
    }
    use(text.substr(begin, end - begin), begin);
    begin = end + 1;
  }
}

void check_file(const Manifest& manifest, size_t index) {
  const ManifestFile& file = manifest.files[index];
  const auto count = static_cast<int64_t>(manifest.files.size());
  if (file.name != shard_name(static_cast<int64_t>(index), count)) {
    refuse(fmt::format("file {} of {} is named '{}'", index, count, file.name));
  }
  const uint64_t blocks = file.bytes / kBlockBytes + (file.bytes % kBlockBytes != 0 ? 1 : 0);
  if (file.bytes == 0 || blocks > kMostBlocks || file.block_crcs.size() != blocks) {
    refuse(fmt::format("'{}' of {} bytes has {} block checksums, not {}", file.name, file.bytes,
                       file.block_crcs.size(), blocks));
  }
}

void check_tensor(const Manifest& manifest, const ManifestTensor& tensor) {
  const auto count = static_cast<int64_t>(manifest.files.size());
  if (tensor.file < 0 || tensor.file >= count ||
      tensor_bytes(tensor.dtype, tensor.shape) != tensor.bytes) {
    refuse(fmt::format("tensor '{}' {} of {} bytes in file {} of {}", tensor.name,
                       describe_tensor(tensor.dtype, tensor.shape), tensor.bytes, tensor.file,
                       count));
  }
  const ManifestFile& file = manifest.files[static_cast<size_t>(tensor.file)];
  if (tensor.offset > file.bytes || tensor.bytes > file.bytes - tensor.offset) {
    refuse(fmt::format("tensor '{}' reaches past the end of '{}'", tensor.name, file.name));
  }
}

template <typename Item>
void check_order(const std::vector<Item>& items) {
  const auto wrong = std::ranges::adjacent_find(items, std::greater_equal{}, &Item::name);
  if (wrong == items.end()) return;
  refuse(fmt::format("'{}' and the name after it are out of order or equal", wrong->name));
}

void check_counts(const Manifest& manifest) {
  if (manifest.files.size() > kMostFiles || manifest.values.size() > kMostValues ||
      manifest.written_by.size() > kMostOrigins) {
    refuse("more files, values or origins than are read");
  }
}

/// Refuses what no writer of ours would produce.
void check_manifest(const Manifest& manifest) {
  check_counts(manifest);
  if (manifest.step < 0 || manifest.samples < 0) refuse("a negative step or number of samples");
  check_order(manifest.tensors);
  check_order(manifest.values);
  for (size_t i = 0; i < manifest.files.size(); ++i) check_file(manifest, i);
  for (const ManifestTensor& tensor : manifest.tensors) check_tensor(manifest, tensor);
}

/// Refuses unknown and repeated keys, other spellings of numbers and strings, and all else that the
/// JSON parser tolerates. Piece by piece, since a copy of a large text would double the memory.
void require_canonical(const Manifest& manifest, std::string_view text) {
  std::string_view rest = text;
  const auto require = [&](bool is_canonical) {
    if (is_canonical) return;
    refuse(fmt::format("byte {}: not the canonical form", text.size() - rest.size()));
  };
  emit_without_crc(manifest, [&](std::string_view piece) {
    require(rest.starts_with(piece));
    rest.remove_prefix(piece.size());
  });
  require(rest.empty());
}

int64_t integer_of(const Json& json) {
  if (!json.is_number_integer()) refuse("expected an integer");
  return json.get<int64_t>();
}

uint64_t count_of(const Json& json) { return static_cast<uint64_t>(integer_of(json)); }

uint32_t crc_of(const Json& json) {
  const auto& digits = json.get_ref<const std::string&>();
  uint32_t crc = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), crc, 16);
  return crc;
}

double real_of(const Json& json) {
  const std::optional<double> value = parse_hex_float(json.get_ref<const std::string&>());
  if (!value.has_value()) refuse("expected a real in hexadecimal");
  return *value;
}

ManifestFile file_of(const Json& json) {
  ManifestFile file{json.at("name"), count_of(json.at("bytes")), {}};
  for (const Json& crc : json.at("blocks")) file.block_crcs.push_back(crc_of(crc));
  return file;
}

ManifestTensor tensor_of(const Json& json) {
  const std::optional<Dtype> dtype = parse_dtype(json.at("dtype").get_ref<const std::string&>());
  if (!dtype.has_value()) refuse("unknown dtype");
  const Json& sizes = json.at("shape");
  if (sizes.size() > kMostSavedDims) refuse("more than 8 dimensions");
  ManifestTensor tensor{json.at("name"), *dtype, {}, 0, 0, 0, 0};
  tensor.shape.reserve(sizes.size());
  for (const Json& size : sizes) tensor.shape.push_back(integer_of(size));
  tensor.file = integer_of(json.at("file"));
  tensor.offset = count_of(json.at("offset"));
  tensor.bytes = count_of(json.at("bytes"));
  tensor.crc = crc_of(json.at("crc32c"));
  return tensor;
}

ManifestValue value_of(const Json& json) {
  if (json.contains("integer")) return {json.at("name"), integer_of(json.at("integer"))};
  if (json.contains("real")) return {json.at("name"), real_of(json.at("real"))};
  return {json.at("name"), json.at("text").get<std::string>()};
}

/// Takes in a canonical text line by line: a line of the head is one key with its value, a line of
/// a list one item. No more than one line is held as JSON. Lines of other forms are passed over,
/// and require_canonical finds them.
class LineReader {
 public:
  explicit LineReader(Manifest& manifest) : manifest_(manifest) {}

  void read(std::string_view line) {
    if (line.ends_with(',')) line.remove_suffix(1);
    if (line.starts_with('{')) return read_item(line);
    const size_t end_of_key = line.find("\":", 1);
    if (!line.starts_with('"') || end_of_key == std::string_view::npos) return;
    key_ = line.substr(1, end_of_key - 1);
    if (!line.ends_with('[')) read_head(parse(line.substr(end_of_key + 2)));
  }

 private:
  Manifest& manifest_;
  std::string_view key_;

  static Json parse(std::string_view text) {
    size_t num_held = 0;
    return Json::parse(text, [&](int /*depth*/, Json::parse_event_t, const Json& /*parsed*/) {
      if (++num_held > kMostHeld) refuse("too many values in one line");
      return true;
    });
  }

  void read_head(const Json& value) {
    if (key_ == "run_id") value.get_to(manifest_.run_id);
    if (key_ == "step") manifest_.step = integer_of(value);
    if (key_ == "samples") manifest_.samples = integer_of(value);
    if (key_ == "score" && !value.is_null()) manifest_.score = real_of(value);
    if (key_ == "parent") value.get_to(manifest_.parent);
    if (key_ == "recipe") value.get_to(manifest_.recipe);
  }

  void read_item(std::string_view line) {
    if (key_ == "tensors") manifest_.tensors.push_back(tensor_of(parse(line)));
    if (key_ == "files") manifest_.files.push_back(file_of(parse(line)));
    if (key_ == "values") manifest_.values.push_back(value_of(parse(line)));
    if (key_ == "written_by") {
      manifest_.written_by.merge(parse(line).get<std::map<std::string, std::string>>());
    }
    check_counts(manifest_);
  }
};

/// Not compared with the canonical form, which alone shows whether all of it was understood.
Manifest read_lines(std::string_view text) {
  Manifest manifest;
  // All at once: growing by doubling would hold the tensors twice.
  manifest.tensors.reserve(text.size() / kFewestTensorBytes);
  LineReader reader(manifest);
  for_each_line(text, [&](std::string_view line, size_t begin) {
    const auto refuse_line = [&](const char* problem) {
      refuse(fmt::format("the line at byte {}: {}", begin, problem));
    };
    try {
      reader.read(line);
    } catch (const Json::parse_error&) {
      refuse_line("not JSON");
    } catch (const Json::exception& error) {
      refuse_line(error.what());
    } catch (const std::invalid_argument& error) {
      refuse_line(error.what());
    }
  });
  return manifest;
}

template <typename Item>
const Item* find_by_name(const std::vector<Item>& sorted, std::string_view name) {
  const auto found = std::ranges::lower_bound(sorted, name, std::less{}, &Item::name);
  return found != sorted.end() && found->name == name ? &*found : nullptr;
}

/// The format that the text claims; nothing if it is no manifest.
std::optional<int64_t> format_of(std::string_view text) {
  int64_t format = 0;
  if (!text.starts_with(kBegin)) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + kBegin.size(), end, format);
  return error == std::errc() ? std::optional(format) : std::nullopt;
}

}  // namespace

std::string step_folder(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> parse_step_folder(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const size_t digits = std::string_view(kStepPrefix).size();
  std::from_chars(name.data() + digits, name.data() + name.size(), step);
  // Other spellings, and what is no number, are not what step_folder writes.
  if (step < 0 || step_folder(step) != name) return std::nullopt;
  return step;
}

const ManifestTensor* Manifest::find_tensor(std::string_view name) const {
  return find_by_name(tensors, name);
}

const ManifestValue* Manifest::find_value(std::string_view name) const {
  return find_by_name(values, name);
}

uint64_t Manifest::total_bytes() const {
  uint64_t total = 0;
  for (const ManifestFile& file : files) total += file.bytes;
  return total;
}

std::string emit_manifest(const Manifest& manifest) {
  std::string text;
  try {
    check_manifest(manifest);
    emit_without_crc(manifest, [&](std::string_view piece) { text += piece; });
    for_each_line(text, [](std::string_view, size_t) {});  // refuses a line that is too long
    const size_t valid = check_utf8(text).valid;
    if (valid < text.size()) refuse(fmt::format("byte {} is not UTF-8", valid));
  } catch (const std::invalid_argument& problem) {
    throw Error(ExitCode::kInternal,
                fmt::format("a manifest was put together wrongly: {}", problem.what()));
  }
  return text += emit_crc(text);
}

void refuse_newer_format(std::string_view text, const std::string& path) {
  const std::optional<int64_t> format = format_of(text);
  if (!format || *format <= kManifestFormat) return;
  throw NewerFormatError(
      fmt::format("'{}': written by format {}, this build reads ≤ {}", path, *format,
                  kManifestFormat),
      "a newer Shoal wrote it: update, or name an older checkpoint; to resume from an older one, "
      "move this one away");
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  refuse_newer_format(text, path);
  const std::optional<int64_t> format = format_of(text);
  if (format != kManifestFormat) {
    throw CheckpointError(format ? fmt::format("'{}': there is no format {}", path, *format)
                                 : fmt::format("'{}': expected {} at byte 0", path, kBegin));
  }
  const size_t end = text.size() - std::min(text.size(), emit_crc("").size());
  if (text.substr(end) != emit_crc(text.substr(0, end))) {
    throw CheckpointError(fmt::format("'{}': the checksum of bytes 0..{} is wrong", path, end));
  }
  try {
    Manifest manifest = read_lines(text.substr(0, end));
    check_manifest(manifest);
    require_canonical(manifest, text.substr(0, end));
    return manifest;
  } catch (const std::invalid_argument& problem) {
    throw CheckpointError(fmt::format("'{}': {}", path, problem.what()));
  }
}

CheckpointSize estimate_checkpoint(const std::vector<SafetensorsEntry>& entries, int64_t ranks) {
  CheckpointSize size;
  uint64_t header_bytes = 0, tensors_bytes = 0;
  for (const SafetensorsEntry& entry : entries) {
    size.data_bytes += tensor_bytes(entry.dtype, entry.shape).value();
    header_bytes += safetensors_entry_bytes(entry);
  }
  const uint64_t largest_file = size.data_bytes + kLargestSafetensorsHeader;
  for (const SafetensorsEntry& entry : entries) {
    const uint64_t bytes = tensor_bytes(entry.dtype, entry.shape).value();
    tensors_bytes +=
        2 + emit_tensor({entry.name, entry.dtype, entry.shape, kMostFiles, largest_file, bytes, 0})
                .size();
  }
  // Shards that are cut for their headers are more than half full.
  size.num_shards =
      static_cast<uint64_t>(ranks) + 2 * (header_bytes / kLargestSafetensorsHeader + 1);
  size.largest_header_bytes = std::min(header_bytes + kMostHeadBytes, kLargestSafetensorsHeader);
  const uint64_t blocks = (size.data_bytes + header_bytes) / kBlockBytes + 2 * size.num_shards;
  const std::string file = emit_file({shard_name(0, kMostFiles), largest_file, {0}});
  const std::string block = "\"00000000\",";
  size.manifest_bytes =
      kMostHeadBytes + size.num_shards * (file.size() + 2) + blocks * block.size() + tensors_bytes;
  return size;
}

std::string shard_name(int64_t index, int64_t count) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", index, count);
}

std::optional<double> parse_hex_float(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  // Only what hex_float writes: no decimals, blanks or other spellings.
  if (end != text.c_str() + text.size() || hex_float(value) != text) return std::nullopt;
  return value;
}

}  // namespace shoal
