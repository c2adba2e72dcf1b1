#include "parallel/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/files/crc32c.h"
#include "runtime/files/file_system.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

constexpr size_t kMostTensorsNamed = 4;

std::string own_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const std::string trimmed = path.substr(0, end + 1);
  return trimmed.substr(trimmed.find_last_of('/') + 1);
}

/// `title` and the first few tensors with their bytes in the file; empty if there is none.
std::string name_some(const char* title, const std::vector<const ManifestTensor*>& tensors) {
  if (tensors.empty()) return "";
  std::string text = title;
  for (size_t i = 0; i < std::min(tensors.size(), kMostTensorsNamed); ++i) {
    text += fmt::format("{}'{}' bytes {}..{}", i == 0 ? "" : ", ", tensors[i]->name,
                        tensors[i]->offset, tensors[i]->offset + tensors[i]->bytes);
  }
  if (tensors.size() > kMostTensorsNamed) {
    text += fmt::format(" and {} more", tensors.size() - kMostTensorsNamed);
  }
  return text;
}

/// A file given where a folder is expected is most likely another tool's checkpoint.
void refuse_file(const std::string& path) {
  if (kind_of(path) != PathKind::kOther) return;
  const UntrustedFolder folder(parent_path(path));
  refuse_pickle(folder.open(own_name(path)));
  throw CheckpointError(
      fmt::format("'{}' is a file; a checkpoint is a folder with {}", path, kManifestName));
}

void check_step_of_folder(const std::string& path, int64_t step) {
  const std::optional<int64_t> named = parse_step_folder(own_name(path));
  if (named.has_value() && *named != step) {
    throw CheckpointError(fmt::format("'{}' holds the checkpoint of step {}", path, step));
  }
}

}  // namespace

std::string read_manifest_text(const std::string& path) {
  refuse_file(path);
  const UntrustedFolder folder(path);
  const UntrustedFile file = folder.open(kManifestName);
  if (file.size() > kLargestManifest) {
    throw CheckpointError(fmt::format("'{}' has {} bytes; at most {} are read", file.path(),
                                      file.size(), kLargestManifest));
  }
  return file.read(0, file.size());
}

CheckpointReader::CheckpointReader(const std::string& path, std::string_view manifest_text)
    : folder_(path), manifest_(parse_manifest(manifest_text, path + "/" + kManifestName)) {
  check_step_of_folder(path, manifest_.step);
  group_tensors();
  check_names();
  for (const ManifestFile& file : manifest_.files) files_.push_back(folder_.open(file.name));
  check_sizes();
  for (size_t i = 0; i < files_.size(); ++i) check_header(i);
}

void CheckpointReader::check_names() const {
  const std::vector<std::string> present = folder_.names();
  for (size_t i = 0; i < manifest_.files.size(); ++i) {
    const ManifestFile& file = manifest_.files[i];
    if (std::ranges::binary_search(present, file.name)) continue;
    throw CheckpointError(
        fmt::format("'{}/{}' is missing{}", path(), file.name, tensors_within(i, 0, file.bytes)));
  }
  for (const std::string& name : present) {
    if (name == kManifestName ||
        std::ranges::find(manifest_.files, name, &ManifestFile::name) != manifest_.files.end()) {
      continue;
    }
    throw CheckpointError(fmt::format("'{}/{}' does not belong to this checkpoint", path(), name),
                          "move it elsewhere");
  }
}

void CheckpointReader::check_sizes() const {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].size() == manifest_.files[i].bytes) continue;
    const uint64_t both = std::min(files_[i].size(), manifest_.files[i].bytes);
    throw CheckpointError(fmt::format(
        "'{}' has {} bytes, not {}{}", files_[i].path(), files_[i].size(), manifest_.files[i].bytes,
        tensors_within(i, both, std::max(files_[i].size(), manifest_.files[i].bytes))));
  }
}

void CheckpointReader::check_header(size_t index) const {
  const std::string& file = files_[index].path();
  const SafetensorsHeader header = read_safetensors_header(files_[index]);
  const size_t num_listed = tensors_of_[index].size();
  const auto wanted = shard_metadata(manifest_.run_id, manifest_.step);
  for (const auto& [key, value] : wanted) {
    const auto found = header.metadata.find(key);
    if (found == header.metadata.end() || found->second != value) {
      throw CheckpointError(fmt::format(
          "'{}' is a shard of {} {}, not of {}", file, key,
          found == header.metadata.end() ? "unknown" : "'" + found->second + "'", value));
    }
  }
  if (header.metadata.size() != wanted.size() || header.entries.size() != num_listed) {
    throw CheckpointError(fmt::format("'{}' holds {} tensors; the manifest lists {}", file,
                                      header.entries.size(), num_listed));
  }
  for (const SafetensorsEntry& entry : header.entries) {
    const ManifestTensor* tensor = manifest_.find_tensor(entry.name);
    if (tensor == nullptr || static_cast<size_t>(tensor->file) != index ||
        tensor->dtype != entry.dtype || tensor->shape != entry.shape ||
        tensor->offset != header.data_begin + entry.begin) {
      throw CheckpointError(
          fmt::format("'{}': tensor '{}' {} at bytes {}..{} is not what the manifest lists", file,
                      entry.name, describe_tensor(entry.dtype, entry.shape),
                      header.data_begin + entry.begin, header.data_begin + entry.end));
    }
  }
}

std::string CheckpointReader::tensors_within(size_t file, uint64_t begin, uint64_t end) const {
  std::vector<const ManifestTensor*> tensors = tensors_of_[file];
  std::erase_if(tensors, [&](const ManifestTensor* tensor) {
    return tensor->offset >= end || tensor->offset + tensor->bytes <= begin;
  });
  return name_some("; tensors there: ", tensors);
}

std::string CheckpointReader::wrong_tensors(size_t file) const {
  std::vector<const ManifestTensor*> tensors = tensors_of_[file];
  std::erase_if(tensors, [&](const ManifestTensor* tensor) {
    uint32_t crc = 0;
    files_[file].stream(tensor->offset, tensor->offset + tensor->bytes,
                        [&](std::string_view piece) { crc = crc32c(piece, crc); });
    return crc == tensor->crc;
  });
  return name_some("; wrong tensors: ", tensors);
}

void CheckpointReader::verify_file(size_t index) const {
  const UntrustedFile& file = files_[index];
  const std::vector<const ManifestTensor*>& tensors = tensors_of_[index];
  auto next = tensors.begin();
  uint32_t tensor_crc = 0;
  for (size_t block = 0; block < manifest_.files[index].block_crcs.size(); ++block) {
    const uint64_t begin = block * kBlockBytes;
    const uint64_t end = std::min(begin + kBlockBytes, file.size());
    const std::string bytes = file.read(begin, end - begin);
    if (crc32c(bytes) != manifest_.files[index].block_crcs[block]) {
      throw CheckpointError(fmt::format("'{}': the checksum of bytes {}..{} is wrong{}",
                                        file.path(), begin, end, wrong_tensors(index)));
    }
    for (; next != tensors.end() && (*next)->offset < end; ++next) {
      const uint64_t from = std::max((*next)->offset, begin) - begin;
      const uint64_t to = std::min((*next)->offset + (*next)->bytes, end) - begin;
      tensor_crc = crc32c(std::string_view(bytes).substr(from, to - from), tensor_crc);
      if ((*next)->offset + (*next)->bytes > end) break;
      check_crc(**next, tensor_crc);
      tensor_crc = 0;
    }
  }
}

void CheckpointReader::group_tensors() {
  tensors_of_.resize(manifest_.files.size());
  for (const ManifestTensor& tensor : manifest_.tensors) {
    tensors_of_[static_cast<size_t>(tensor.file)].push_back(&tensor);
  }
  for (auto& tensors : tensors_of_) {
    // A tensor without bytes begins where its neighbour does, and comes first.
    std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
      return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
    });
  }
}

void CheckpointReader::check_crc(const ManifestTensor& tensor, uint32_t crc) const {
  if (crc == tensor.crc) return;
  throw CheckpointError(fmt::format("'{}': tensor '{}', bytes {}..{}: the checksum is wrong",
                                    files_[static_cast<size_t>(tensor.file)].path(), tensor.name,
                                    tensor.offset, tensor.offset + tensor.bytes));
}

void CheckpointReader::read(const ManifestTensor& tensor, char* out) const {
  const UntrustedFile& file = files_[static_cast<size_t>(tensor.file)];
  uint32_t crc = 0;
  for (uint64_t done = 0; done < tensor.bytes;) {
    const uint64_t count = std::min(tensor.bytes - done, kBlockBytes);
    file.read(tensor.offset + done, out + done, count);
    crc = crc32c(std::string_view(out + done, count), crc);
    done += count;
  }
  check_crc(tensor, crc);
}

void CheckpointReader::stream(const ManifestTensor& tensor,
                              const std::function<void(std::string_view)>& sink) const {
  uint32_t crc = 0;
  files_[static_cast<size_t>(tensor.file)].stream(tensor.offset, tensor.offset + tensor.bytes,
                                                  [&](std::string_view piece) {
                                                    crc = crc32c(piece, crc);
                                                    sink(piece);
                                                  });
  check_crc(tensor, crc);
}

std::string CheckpointReader::tensor_sha256(const ManifestTensor& tensor) const {
  Sha256 sha;
  stream(tensor, [&](std::string_view piece) { sha.update(piece); });
  return sha.hex();
}

std::map<std::string, std::string> shard_metadata(const std::string& run_id, int64_t step) {
  return {{"run_id", run_id}, {"step", std::to_string(step)}};
}

std::string content_digest(const std::vector<ManifestTensor>& sorted_tensors, int64_t step,
                           int64_t samples,
                           const std::function<std::string(const ManifestTensor&)>& sha256_of) {
  Sha256 sha;
  sha.update(fmt::format("step {}\nsamples {}\n", step, samples));
  for (const ManifestTensor& tensor : sorted_tensors) {
    sha.update(fmt::format("{} {} {}\n", json_quote(tensor.name),
                           describe_tensor(tensor.dtype, tensor.shape), sha256_of(tensor)));
  }
  return "sha256:" + sha.hex();
}

std::string content_digest(const CheckpointReader& reader) {
  return content_digest(reader.manifest().tensors, reader.manifest().step,
                        reader.manifest().samples,
                        [&](const ManifestTensor& tensor) { return reader.tensor_sha256(tensor); });
}

}  // namespace shoal
