#include "runtime/data/shards/shard_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/images/image_list.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/tar.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr const char* kTemporary = ".tmp";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes of a member in an archive, its header included.
int64_t member_bytes(size_t size) {
  const auto blocks = (static_cast<int64_t>(size) + kTarBlockBytes - 1) / kTarBlockBytes;
  return (1 + blocks) * kTarBlockBytes;
}

ClassOptions classes_to_pack(const PackPlan& plan) {
  const std::string& shards = plan.classes_of;
  if (!plan.has_classes && shards.empty()) return {0, {}};
  const std::vector<std::string> names =
      shards.empty() ? class_folders(plan.folder)
                     : class_names_of_shards(shards_in(shards, "--classes-of names their folder"));
  if (!names.empty()) return {std::ssize(names), names};
  if (shards.empty())
    throw DataError(plan.folder + ": no class folders in it", "leave --classes out");
  throw DataError(shards + ": its first index names no classes", "pack it again with --classes");
}

/// The ending of the member that an image file becomes.
std::string_view member_ending(const std::string& path) {
  return image_ending(path) == "png" ? "png" : "jpg";
}

}  // namespace

ShardWriter::ShardWriter(FileSystem& files, std::string folder, int64_t shard_bytes,
                         std::vector<std::string> class_names)
    : files_(files),
      folder_(std::move(folder)),
      shard_bytes_(shard_bytes),
      class_names_(std::move(class_names)) {}

void ShardWriter::add(std::span<const std::byte> image, std::string_view ending,
                      std::optional<int64_t> label, const std::string& file) {
  const std::string name = fmt::format("{:09}", packed_.num_samples);
  const std::string label_text = label ? std::to_string(*label) : "";
  const int64_t bytes = member_bytes(image.size()) + (label ? member_bytes(label_text.size()) : 0);
  const auto end_bytes = std::ssize(tar_end());
  if (file_ && file_bytes_ + bytes + end_bytes > shard_bytes_) close_shard();
  if (!file_) {
    file_ = std::make_unique<OutputFile>(files_, shard_path(packed_.num_shards) + kTemporary,
                                         FileSystem::Mode::kCreate);
  }
  append(fmt::format("{}.{}", name, ending), as_text(image));
  if (label) append(name + ".cls", label_text);
  packed_files_.push_back(file);
  ++packed_.num_samples;
}

void ShardWriter::append(const std::string& name, std::string_view bytes) {
  const auto size = std::ssize(bytes);
  buffer_ += tar_header(name, size);
  buffer_ += bytes;
  buffer_ += tar_padding(size);
  file_bytes_ += member_bytes(bytes.size());
  if (buffer_.size() >= kBufferBytes) flush();
}

void ShardWriter::flush() {
  file_->write(buffer_);
  buffer_.clear();
}

void ShardWriter::close_shard() {
  buffer_ += tar_end();
  flush();
  file_->sync();
  file_->close();
  const std::string path = file_->path();
  file_.reset();
  const MappedFile shard(path, "");
  OutputFile index(files_, shard_index_path(shard_path(packed_.num_shards)) + kTemporary,
                   FileSystem::Mode::kCreate);
  ShardList list{samples_of_tar(shard.bytes(), path, Labels::kOptional), class_names_};
  for (size_t i = 0; i < list.samples.size(); ++i) list.samples[i].file = packed_files_.at(i);
  index.write(emit_shard_index(list, shard.bytes()));
  index.sync();
  index.close();
  ++packed_.num_shards;
  packed_.bytes += std::ssize(shard.bytes());
  file_bytes_ = 0;
  packed_files_.clear();
}

PackedShards ShardWriter::finish() {
  if (file_) close_shard();
  for (int64_t shard = 0; shard < packed_.num_shards; ++shard) {
    const std::string path = shard_path(shard);
    for (const std::string& name : {shard_index_path(path), path}) {
      rename_path(files_, name + kTemporary, name);
    }
  }
  sync_directory(files_, folder_);
  return packed_;
}

std::string ShardWriter::shard_path(int64_t shard) const {
  return fmt::format("{}/shard-{:06}{}", folder_, shard, kShardEnding);
}

PackedShards pack_images(const PackPlan& plan, FileSystem& files) {
  if (!std::filesystem::is_directory(plan.folder)) {
    throw DataError(plan.folder + ": is not a folder", "name a folder of JPEG and PNG files");
  }
  const ClassOptions classes = classes_to_pack(plan);
  ShardWriter writer(files, plan.out, plan.shard_bytes, classes.class_names);
  for (const ImageEntry& image : images_of_folder(plan.folder, classes)) {
    const MappedFile file((std::filesystem::path(plan.folder) / image.path).string(),
                          "was it removed meanwhile?");
    if (has_control_character(image.path)) {
      throw DataError(file.path() + ": its name has control characters", "rename it");
    }
    writer.add(file.bytes(), member_ending(image.path),
               classes.classes > 0 ? std::optional(image.label) : std::nullopt, image.path);
  }
  return writer.finish();
}

}  // namespace shoal
