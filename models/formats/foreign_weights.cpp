#include "models/formats/foreign_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "parallel/checkpoint/state_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// Bound of sizes, such that the product of two fits into 64 bits.
constexpr int64_t kSizesEnd = int64_t{1} << 31;
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;
constexpr uint64_t kLargestIndex = uint64_t{16} << 20;

/// Resolves symbolic links, then opens the file.
UntrustedFile open_followed(const std::string& path) {
  std::error_code failure;
  const fs::path target = fs::canonical(path, failure);
  if (failure) {
    throw CheckpointError(
        fmt::format("'{}': {}{}", path, link_target(path) ? "a link: " : "", failure.message()));
  }
  return UntrustedFolder(target.parent_path().string()).open(target.filename().string());
}

ForeignConfig read_json(const std::string& path, uint64_t most_bytes) {
  const UntrustedFile file = open_followed(path);
  if (file.size() > most_bytes) {
    throw CheckpointError(
        fmt::format("'{}': has {} bytes; at most {} are read", path, file.size(), most_bytes));
  }
  return {file.read(0, file.size()), path};
}

/// The number at the start of `text`, if a dot follows it.
std::optional<int64_t> leading_number(std::string_view text) {
  const size_t dot = text.find('.');
  return dot == text.npos ? std::nullopt : parse_digits(text.substr(0, dot));
}

/// Reads from an index which shard holds each tensor.
std::map<std::string, std::string> read_weight_map(const std::string& path) try {
  const ForeignConfig map = read_json(path, kLargestIndex).section("weight_map");
  if (!map.is_there()) throw CheckpointError(fmt::format("'{}': has no weight_map", path));
  std::map<std::string, std::string> shard_of;
  for (const std::string& name : map.keys()) {
    const std::string shard = map.text(name).value();
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != shard.npos ||
        shard.find('\0') != shard.npos) {
      throw CheckpointError(
          fmt::format("{} is {}, expected the name of a file", map.place(name), map.written(name)));
    }
    shard_of.emplace(name, shard);
  }
  return shard_of;
} catch (const CheckpointError&) {
  throw;
} catch (const Error& error) {  // a value of another type: the index is broken, no other model's
  throw CheckpointError(error.what());
}

}  // namespace

ForeignWeights::ForeignWeights(const std::string& path) : path_(path) {
  const PathKind kind = kind_of(path);
  if (kind == PathKind::kNothing) {
    const std::optional<std::string> target = link_target(path);
    throw CheckpointError(
        target ? fmt::format("'{}' is a link to '{}', which does not exist", path, *target)
               : fmt::format("'{}' does not exist", path));
  }
  folder_ = kind == PathKind::kFolder ? path : parent_path(path);
  if (name_exists(folder_ + "/config.json")) {
    config_ = read_json(folder_ + "/config.json", kLargestConfig);
  }
  const std::string single = path + "/model.safetensors", index = single + ".index.json";
  if (kind == PathKind::kOther && path.ends_with(".index.json")) {
    add_shards(path);
  } else if (kind == PathKind::kOther) {
    add_file(path);
  } else if (name_exists(single)) {
    add_file(single);
  } else if (name_exists(index)) {
    add_shards(index);
  } else {
    throw CheckpointError(
        fmt::format("'{}': holds neither model.safetensors nor model.safetensors.index.json", path),
        "launch/pickle_to_safetensors IN OUT turns a PyTorch pickle into safetensors");
  }
}

void ForeignWeights::add_file(const std::string& path) {
  UntrustedFile file = open_followed(path);
  SafetensorsHeader header = read_safetensors_header(file);
  metadata_.merge(header.metadata);
  for (SafetensorsEntry& entry : header.entries) {
    const auto [found, is_new] =
        tensors_.emplace(entry.name, Tensor{entry.dtype, std::move(entry.shape), files_.size(),
                                            header.data_begin + entry.begin,
                                            header.data_begin + entry.end, entry.name});
    if (is_new) continue;
    throw CheckpointError(fmt::format("'{}': the tensor '{}' is in '{}' too", path, entry.name,
                                      files_[found->second.file].path()));
  }
  files_.push_back(std::move(file));
}

void ForeignWeights::add_shards(const std::string& index_path) {
  const std::map<std::string, std::string> shard_of = read_weight_map(index_path);
  std::map<std::string, size_t> files;  // where each shard is in files_
  for (const auto& [name, shard] : shard_of) files.emplace(shard, 0);
  for (auto& [shard, file] : files) {
    file = files_.size();
    add_file(folder_ + "/" + shard);
  }
  for (const auto& [name, shard] : shard_of) {
    const Tensor* tensor = find(name);
    if (tensor != nullptr && tensor->file == files.at(shard)) continue;
    throw CheckpointError(fmt::format("'{}': lists the tensor '{}' in {}, which does not hold it",
                                      index_path, name, shard));
  }
  for (const auto& [name, tensor] : tensors_) {
    if (shard_of.contains(name)) continue;
    throw CheckpointError(fmt::format("'{}': does not list the tensor '{}' of '{}'", index_path,
                                      name, files_[tensor.file].path()));
  }
}

const ForeignWeights::Tensor* ForeignWeights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const std::vector<int64_t>& ForeignWeights::shape_of(std::string_view name, size_t num_dims) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) {
    throw Error(ExitCode::kMismatch, fmt::format("'{}': the tensor '{}' is missing", path_, name));
  }
  if (tensor->shape.size() != num_dims) {
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': the tensor '{}' has the shape [{}], expected {} dimensions",
                            path_, name, fmt::join(tensor->shape, ", "), num_dims));
  }
  for (const int64_t size : tensor->shape) {
    if (size >= 1 && size < kSizesEnd) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': the tensor '{}' has the shape [{}], expected sizes from 1 to {}",
                            path_, name, fmt::join(tensor->shape, ", "), kSizesEnd - 1));
  }
  return tensor->shape;
}

int64_t ForeignWeights::count_blocks(std::string_view prefix) const {
  std::set<int64_t> numbers;
  for (auto item = tensors_.lower_bound(prefix);
       item != tensors_.end() && item->first.starts_with(prefix); ++item) {
    const auto number = leading_number(std::string_view(item->first).substr(prefix.size()));
    if (number) numbers.insert(*number);
  }
  // A gap ends the count; blocks after it are reported as surplus.
  int64_t count = 0;
  while (numbers.contains(count)) ++count;
  return count;
}

void ForeignWeights::strip(std::string_view prefix) {
  std::map<std::string, Tensor, std::less<>> renamed;
  for (auto& [name, tensor] : tensors_) {
    const std::string known = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    const std::string stored = tensor.stored_name;
    const auto [found, is_new] = renamed.emplace(known, std::move(tensor));
    if (is_new) continue;
    throw CheckpointError(fmt::format("'{}': '{}' and '{}' are two tensors of one name", path_,
                                      found->second.stored_name, stored));
  }
  tensors_ = std::move(renamed);
}

torch::Tensor ForeignWeights::read(const Tensor& tensor) const {
  const torch::Tensor value = torch::empty(tensor.shape, scalar_type(tensor.dtype));
  files_[tensor.file].read(tensor.begin, static_cast<char*>(value.data_ptr()),
                           tensor.end - tensor.begin);
  return value;
}

}  // namespace shoal
