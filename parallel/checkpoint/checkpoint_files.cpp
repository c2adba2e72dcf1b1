#include "parallel/checkpoint/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/files/crc32c.h"

namespace shoal {
namespace {

bool exists(const std::string& path) { return kind_of(path) != PathKind::kNothing; }

/// Writes through to the file and keeps the checksum of each block.
class BlockWriter {
 public:
  explicit BlockWriter(OutputFile& file) : file_(file) {}

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, kBlockBytes - in_block_);
      file_.write(piece);
      crc_ = crc32c(piece, crc_);
      in_block_ += piece.size();
      if (in_block_ == kBlockBytes) end_block();
      bytes.remove_prefix(piece.size());
    }
  }

  std::vector<uint32_t> finish() {
    if (in_block_ > 0) end_block();
    return std::move(crcs_);
  }

 private:
  OutputFile& file_;
  std::vector<uint32_t> crcs_;
  uint32_t crc_ = 0;
  uint64_t in_block_ = 0;

  void end_block() {
    crcs_.push_back(crc_);
    crc_ = 0;
    in_block_ = 0;
  }
};

void verify_shard(const std::string& folder, const ManifestFile& written) {
  const UntrustedFile file = UntrustedFolder(folder).open(written.name);
  file.drop_cache();
  for (size_t block = 0; block < written.block_crcs.size(); ++block) {
    const uint64_t begin = block * kBlockBytes;
    const uint64_t end = std::min(begin + kBlockBytes, written.bytes);
    if (crc32c(file.read(begin, end - begin)) != written.block_crcs[block]) {
      throw StorageError(fmt::format("'{}': bytes {}..{} read back are not those written",
                                     file.path(), begin, end));
    }
  }
}

/// Returns once the manifest is on the disk and was read back.
void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  OutputFile file(files, folder + "/" + kManifestName, FileSystem::Mode::kCreate);
  const std::string text = emit_manifest(manifest);
  file.write(text);
  file.sync();
  file.close();
  const UntrustedFile written = UntrustedFolder(folder).open(kManifestName);
  written.drop_cache();
  if (written.read(0, written.size()) == text) return;
  throw StorageError(fmt::format("'{}': the text read back is not that written", written.path()));
}

/// Checks what a save folder holds, but not the files' contents.
void verify_folder(const std::string& folder, const Manifest& manifest) {
  const UntrustedFolder present(folder);
  for (const ManifestFile& file : manifest.files) {
    const uint64_t bytes = present.open(file.name).size();
    if (bytes != file.bytes) {
      throw StorageError(fmt::format("'{}/{}' has {} bytes, {} were written", folder, file.name,
                                     bytes, file.bytes));
    }
  }
  if (present.names().size() != manifest.files.size() + 1) {
    throw StorageError(fmt::format("'{}' holds files that this save has not written", folder));
  }
}

/// Renames `temporary` to `path`; what was there becomes `replaced`, for remove_leftovers.
void move_into_place(FileSystem& files, const std::string& temporary, const std::string& path,
                     const std::string& replaced) {
  if (!exists(path)) return rename_path(files, temporary, path);
  remove_folder(files, replaced);
  rename_path(files, path, replaced);
  try {
    rename_path(files, temporary, path);
  } catch (const StorageError&) {
    files.rename(replaced, path);
    throw;
  }
}

}  // namespace

ShardLayout lay_out_shard(std::vector<SafetensorsEntry> entries, const std::string& run_id,
                          int64_t step, int64_t index, int64_t count) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(dtype_bytes(b.dtype), std::string_view(a.name)) <
           std::make_tuple(dtype_bytes(a.dtype), std::string_view(b.name));
  });
  ShardLayout layout{shard_name(index, count), "", std::move(entries)};
  layout.header = emit_safetensors_header(layout.entries, shard_metadata(run_id, step));
  return layout;
}

ShardReport write_shard(FileSystem& files, const std::string& folder, const ShardLayout& layout,
                        std::string_view data) {
  ShardReport report;
  report.file.name = layout.name;
  report.file.bytes = layout.file_bytes();
  OutputFile file(files, folder + "/" + layout.name, FileSystem::Mode::kCreate);
  BlockWriter blocks(file);
  blocks.write(layout.header);
  blocks.write(data.substr(0, layout.data_bytes()));
  report.file.block_crcs = blocks.finish();
  for (const SafetensorsEntry& entry : layout.entries) {
    report.tensor_crcs.push_back(crc32c(data.substr(entry.begin, entry.end - entry.begin)));
  }
  file.sync();
  file.close();
  verify_shard(folder, report.file);
  return report;
}

void add_shard(Manifest& manifest, const ShardLayout& layout, const ShardReport& report) {
  const auto index = static_cast<int64_t>(manifest.files.size());
  manifest.files.push_back(report.file);
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const SafetensorsEntry& entry = layout.entries[i];
    manifest.tensors.push_back({entry.name, entry.dtype, entry.shape, index,
                                layout.header.size() + entry.begin, entry.end - entry.begin,
                                report.tensor_crcs[i]});
  }
}

std::string make_save_folder(FileSystem& files, const std::string& folder, int64_t step) {
  if (!exists(folder)) make_directory(files, folder);
  for (int64_t attempt = 0;; ++attempt) {
    std::string path = fmt::format("{}/.tmp-{}-{}", folder, step_folder(step), attempt);
    if (exists(path)) continue;
    make_directory(files, path);
    return path;
  }
}

std::string commit_checkpoint(FileSystem& files, const std::string& folder,
                              const std::string& temporary, const Manifest& manifest) {
  write_manifest(files, temporary, manifest);
  sync_directory(files, temporary);
  verify_folder(temporary, manifest);
  std::string path = folder + "/" + step_folder(manifest.step);
  move_into_place(files, temporary, path,
                  fmt::format("{}/.old-{}", folder, step_folder(manifest.step)));
  sync_directory(files, folder);
  return path;
}

std::string write_score(FileSystem& files, const std::string& folder, int64_t step, double score) {
  const std::string path = folder + "/" + step_folder(step);
  Manifest manifest = parse_manifest(read_manifest_text(path), path);
  manifest.score = score;
  const std::string temporary = make_save_folder(files, folder, step);
  write_manifest(files, temporary, manifest);
  rename_path(files, temporary + "/" + kManifestName, path + "/" + kManifestName);
  sync_directory(files, path);
  try {
    remove_folder(files, temporary);
  } catch (const StorageError&) {  // The score is written; remove_leftovers takes the folder later.
  }
  return path;
}

void write_latest(FileSystem& files, const std::string& folder, int64_t step) {
  replace_file(files, parent_path(folder) + "/LATEST", step_folder(step) + "\n");
}

}  // namespace shoal
