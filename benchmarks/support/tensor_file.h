#pragma once

#include <fmt/format.h>
#include <torch/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>

namespace shoal::bench {

/// Tensors for a peer, in a file that lives as long as this.
class TensorFile {
 public:
  TensorFile() : file_(path_, std::ios::binary) {}
  TensorFile(const TensorFile&) = delete;
  ~TensorFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  void add(const std::string& name, const torch::Tensor& tensor) {
    const torch::Tensor flat = tensor.detach().to(torch::kCPU).contiguous();
    file_.write(static_cast<const char*>(flat.const_data_ptr()),
                static_cast<std::streamsize>(flat.nbytes()));
    tensors_.push_back({name, tensor.sizes().vec(), c10::toString(flat.scalar_type())});
  }

  /// Path, names, sizes and types.
  nlohmann::json finish() {
    if (!file_.flush()) throw std::runtime_error("cannot write " + path_.string());
    return {{"path", path_.string()}, {"tensors", tensors_}};
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("shoal_tensors_{}", getpid());
  std::ofstream file_;
  nlohmann::json tensors_ = nlohmann::json::array();
};

}  // namespace shoal::bench
