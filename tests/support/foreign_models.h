#pragma once

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "launch/convert/export.h"
#include "launch/convert/import.h"
#include "models/formats/foreign_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/foreign_model.h"

namespace shoal::testing {

inline constexpr const char* kVitConfig =
    R"({"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": 2},
        "pretrained_cfg": {"mean": [0.5, 0.5, 0.25], "std": [0.5, 0.5, 0.5]}})";
inline constexpr const char* kMixerConfig = R"({"architecture": "MlpMixer"})";
inline constexpr const char* kGptConfig = R"({"model_type": "gpt2", "n_head": 2, "resid_pdrop": 0.1,
                                       "embd_pdrop": 0.1, "attn_pdrop": 0.1})";

/// Weights of other programs, imported and exported in a scratch folder.
class ForeignModels : public ::testing::Test {
 protected:
  ScratchFolder folder_;
  std::ostringstream out_;

  void save(const Tensors& tensors, const std::string& config = "") {
    std::filesystem::create_directory(folder_.file("theirs"));
    save_tensors(folder_.file("theirs/model.safetensors"), tensors);
    std::filesystem::remove(folder_.file("theirs/config.json"));
    if (!config.empty()) write_file(folder_.file("theirs/config.json"), config);
  }
  void import(const std::string& format, const std::vector<std::string>& overrides = {}) {
    std::filesystem::remove_all(folder_.file("ours"));
    const ImportArguments arguments{folder_.file("theirs"), format, folder_.file("ours"),
                                    overrides};
    EXPECT_EQ(import_weights(arguments, {}, out_), ExitCode::kOk);
  }
  void export_back(const std::string& program, const std::string& dtype = "") {
    std::filesystem::remove_all(folder_.file("back"));
    const ExportArguments arguments{{folder_.file("ours")}, program, folder_.file("back"), dtype};
    EXPECT_EQ(export_weights(arguments, out_), ExitCode::kOk);
  }
  /// What refuses to import; nothing may be left behind.
  std::string refusal(const std::string& format, ExitCode code = ExitCode::kMismatch,
                      const std::vector<std::string>& overrides = {}) {
    std::string text = "nothing was refused";
    std::filesystem::remove_all(folder_.file("ours"));
    try {
      import_weights({folder_.file("theirs"), format, folder_.file("ours"), overrides}, {}, out_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      text = std::string(error.what()) + " | " + error.hint();
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), ::testing::Not(::testing::HasSubstr("ours")));
    }
    return text;
  }
  Tensors tensors_at(const std::string& path) {
    const ForeignWeights weights(path);
    Tensors tensors;
    for (const auto& [name, tensor] : weights.tensors()) tensors[name] = weights.read(tensor);
    return tensors;
  }
  torch::Tensor ours(const std::string& name) {
    const CheckpointReader reader(resolve_checkpoint(folder_.file("ours")));
    const ManifestTensor& tensor = *reader.manifest().find_tensor(name);
    const torch::Tensor value = torch::empty(tensor.shape, scalar_type(tensor.dtype));
    reader.read(tensor, static_cast<char*>(value.data_ptr()));
    return value;
  }
  std::string recipe() { return read_file(folder_.file("ours/resolved.yaml")); }
  static void expect_equal(const Tensors& a, const Tensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      EXPECT_EQ(tensor.scalar_type(), b.at(name).scalar_type()) << name;
      EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
    }
  }
};

}  // namespace shoal::testing
