#include "parallel/checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "parallel/checkpoint/manifest_cursor.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/error.h"
#include "runtime/base/metrics.h"
#include "runtime/base/sha256.h"

namespace shoal {
namespace {

// Far more than any writer needs; a hostile text of short items would cost many times its size.
constexpr size_t kMostFiles = 65'536;
constexpr size_t kMostValues = 65'536;
constexpr size_t kMostOrigins = 1'024;
/// No tensor takes fewer in the text.
constexpr size_t kFewestTensorBytes = 80;

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

/// Empty, or what no writer of ours would produce.
std::string check_file(const Manifest& manifest, size_t index) {
  const ManifestFile& file = manifest.files[index];
  const auto count = static_cast<int64_t>(manifest.files.size());
  if (file.name != shard_name(static_cast<int64_t>(index), count)) {
    return fmt::format("file {} of {} is named '{}'", index, count, file.name);
  }
  const uint64_t blocks = file.bytes / kBlockBytes + (file.bytes % kBlockBytes != 0 ? 1 : 0);
  if (file.bytes == 0 || file.block_crcs.size() != blocks) {
    return fmt::format("'{}' of {} bytes has {} block checksums, not {}", file.name, file.bytes,
                       file.block_crcs.size(), blocks);
  }
  return "";
}

std::string check_tensor(const Manifest& manifest, const ManifestTensor& tensor) {
  const auto count = static_cast<int64_t>(manifest.files.size());
  if (tensor.file >= count || tensor_bytes(tensor.dtype, tensor.shape) != tensor.bytes) {
    return fmt::format("tensor '{}' {} of {} bytes in file {} of {}", tensor.name,
                       describe_tensor(tensor.dtype, tensor.shape), tensor.bytes, tensor.file,
                       count);
  }
  const ManifestFile& file = manifest.files[static_cast<size_t>(tensor.file)];
  if (tensor.offset > file.bytes || tensor.bytes > file.bytes - tensor.offset) {
    return fmt::format("tensor '{}' lies behind the end of '{}'", tensor.name, file.name);
  }
  return "";
}

template <typename Item>
std::string check_order(const std::vector<Item>& items) {
  const auto wrong = std::adjacent_find(
      items.begin(), items.end(), [](const auto& a, const auto& b) { return !(a.name < b.name); });
  if (wrong == items.end()) return "";
  return fmt::format("'{}' and the name behind it are out of order or equal", wrong->name);
}

std::string check(const Manifest& manifest) {
  std::string problem = check_order(manifest.tensors);
  if (problem.empty()) problem = check_order(manifest.values);
  for (size_t i = 0; i < manifest.files.size() && problem.empty(); ++i) {
    problem = check_file(manifest, i);
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!problem.empty()) break;
    problem = check_tensor(manifest, tensor);
  }
  return problem;
}

/// Piece by piece: a second copy of a large text would double the memory.
void require_canonical(const Manifest& manifest, std::string_view text, const std::string& path) {
  std::string_view rest = text;
  const auto refuse = [&] {
    throw CheckpointError(
        fmt::format("'{}': byte {}: not the canonical form", path, text.size() - rest.size()));
  };
  emit_without_crc(manifest, [&](std::string_view piece) {
    if (!rest.starts_with(piece)) refuse();
    rest.remove_prefix(piece.size());
  });
  if (!rest.empty()) refuse();
}

template <typename Read>
void read_list(ManifestCursor& cursor, size_t most, const Read& read) {
  cursor.expect("[");
  if (cursor.accept("]")) return;
  size_t count = 0;
  do {
    if (count++ == most) cursor.fail(fmt::format("more than {} items in a list", most));
    cursor.expect("\n");
    read();
  } while (cursor.accept(","));
  cursor.expect("\n]");
}

/// Numbers or checksums on one line: "1,2]" behind the bracket.
template <typename Read>
void read_row(ManifestCursor& cursor, const Read& read) {
  cursor.expect("[");
  if (cursor.accept("]")) return;
  do {
    read();
  } while (cursor.accept(","));
  cursor.expect("]");
}

double read_hex_float(ManifestCursor& cursor) {
  const std::optional<double> value = parse_hex_float(cursor.string());
  if (!value.has_value()) cursor.fail("expected a real in hexadecimal before this");
  return *value;
}

ManifestFile read_file(ManifestCursor& cursor) {
  ManifestFile file;
  cursor.expect("{\"name\":");
  file.name = cursor.string();
  cursor.expect(",\"bytes\":");
  file.bytes = cursor.count();
  cursor.expect(",\"blocks\":");
  read_row(cursor, [&] { file.block_crcs.push_back(cursor.crc()); });
  cursor.expect("}");
  return file;
}

ManifestTensor read_tensor(ManifestCursor& cursor) {
  ManifestTensor tensor;
  cursor.expect("{\"name\":");
  tensor.name = cursor.string();
  cursor.expect(",\"dtype\":");
  const std::optional<Dtype> dtype = parse_dtype(cursor.string());
  if (!dtype.has_value()) cursor.fail("unknown dtype before this");
  tensor.dtype = *dtype;
  cursor.expect(",\"shape\":");
  read_row(cursor, [&] {
    if (tensor.shape.size() == 8) cursor.fail("more than 8 dimensions");
    tensor.shape.push_back(cursor.integer());
  });
  cursor.expect(",\"file\":");
  tensor.file = cursor.integer();
  cursor.expect(",\"offset\":");
  tensor.offset = cursor.count();
  cursor.expect(",\"bytes\":");
  tensor.bytes = cursor.count();
  cursor.expect(",\"crc32c\":");
  tensor.crc = cursor.crc();
  cursor.expect("}");
  return tensor;
}

ManifestValue read_value(ManifestCursor& cursor) {
  ManifestValue item;
  cursor.expect("{\"name\":");
  item.name = cursor.string();
  if (cursor.accept(",\"integer\":")) {
    item.value = cursor.integer(/*allow_negative=*/true);
  } else if (cursor.accept(",\"real\":")) {
    item.value = read_hex_float(cursor);
  } else {
    cursor.expect(",\"text\":");
    item.value = cursor.string();
  }
  cursor.expect("}");
  return item;
}

void read_format(ManifestCursor& cursor, const std::string& path) {
  cursor.expect("{\"shoal_checkpoint\":");
  const int64_t format = cursor.integer();
  if (format == kManifestFormat) return;
  if (format < kManifestFormat) cursor.fail(fmt::format("there is no format {}", format));
  throw NewerFormatError(
      fmt::format("'{}': written by format {}, this build reads ≤ {}", path, format,
                  kManifestFormat),
      "a newer Shoal wrote it: update, or name an older checkpoint; to resume from an older one, "
      "move this one away");
}

void read_head(ManifestCursor& cursor, Manifest& manifest) {
  cursor.expect(",\n\"run_id\":");
  manifest.run_id = cursor.string();
  cursor.expect(",\n\"step\":");
  manifest.step = cursor.integer();
  cursor.expect(",\n\"samples\":");
  manifest.samples = cursor.integer();
  cursor.expect(",\n\"score\":");
  if (!cursor.accept("null")) manifest.score = read_hex_float(cursor);
  cursor.expect(",\n\"parent\":");
  manifest.parent = cursor.string();
  cursor.expect(",\n\"recipe\":");
  manifest.recipe = cursor.string();
  cursor.expect(",\n\"recipe_sha256\":");
  if (cursor.string() != sha256_hex(manifest.recipe)) cursor.fail("the recipe's hash is wrong");
  cursor.expect(",\n\"written_by\":");
  read_list(cursor, kMostOrigins, [&] {
    cursor.expect("{");
    std::string key = cursor.string();
    cursor.expect(":");
    manifest.written_by.emplace(std::move(key), cursor.string());
    cursor.expect("}");
  });
}

}  // namespace

const ManifestTensor* Manifest::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const auto& a, std::string_view b) { return a.name < b; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

const ManifestValue* Manifest::find_value(std::string_view name) const {
  const auto found = std::lower_bound(values.begin(), values.end(), name,
                                      [](const auto& a, std::string_view b) { return a.name < b; });
  return found != values.end() && found->name == name ? &*found : nullptr;
}

uint64_t Manifest::total_bytes() const {
  uint64_t total = 0;
  for (const ManifestFile& file : files) total += file.bytes;
  return total;
}

std::string emit_manifest(const Manifest& manifest) {
  const std::string problem = check(manifest);
  if (!problem.empty())
    throw Error(ExitCode::kInternal, "a manifest was put together wrongly: " + problem);
  std::string text;
  emit_without_crc(manifest, [&](std::string_view piece) { text += piece; });
  return text + emit_crc(text);
}

void refuse_newer_format(std::string_view text, const std::string& path) {
  try {
    ManifestCursor cursor(text, path);
    read_format(cursor, path);
  } catch (const NewerFormatError&) {
    throw;
  } catch (const CheckpointError&) {
    // No manifest at all, or one of ours that is broken: whoever parses it says so.
  }
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  ManifestCursor cursor(text, path);
  Manifest manifest;
  read_format(cursor, path);
  const size_t end = text.size() - std::min(text.size(), emit_crc("").size());
  if (text.substr(end) != emit_crc(text.substr(0, end))) {
    throw CheckpointError(fmt::format("'{}': the checksum of bytes 0..{} is wrong", path, end));
  }
  read_head(cursor, manifest);
  cursor.expect(",\n\"files\":");
  read_list(cursor, kMostFiles, [&] { manifest.files.push_back(read_file(cursor)); });
  cursor.expect(",\n\"tensors\":");
  // All at once: growing by doubling would hold the tensors twice.
  const size_t most_tensors = (end - std::min(end, cursor.place())) / kFewestTensorBytes;
  manifest.tensors.reserve(most_tensors);
  read_list(cursor, most_tensors, [&] { manifest.tensors.push_back(read_tensor(cursor)); });
  cursor.expect(",\n\"values\":");
  read_list(cursor, kMostValues, [&] { manifest.values.push_back(read_value(cursor)); });
  cursor.expect(",\n");
  const std::string problem = check(manifest);
  if (!problem.empty()) throw CheckpointError(fmt::format("'{}': {}", path, problem));
  require_canonical(manifest, text.substr(0, end), path);
  return manifest;
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
