#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/convert/export.h"
#include "launch/convert/import.h"
#include "tests/support/foreign_models.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::hf_gpt2;
using testing::kGptConfig;
using testing::kMixerConfig;
using testing::kVitConfig;
using ::testing::Not;
using testing::Tensors;
using testing::timm_mixer;
using testing::timm_vit;

class ExportWeights : public testing::ForeignModels {};

TEST_F(ExportWeights, RoundTripsAreBitEqual) {
  save(timm_vit(), kVitConfig);
  import("timm_vit");
  export_back("timm");
  expect_equal(timm_vit(), tensors_at(folder_.file("back")));
  save(timm_mixer(), kMixerConfig);
  import("timm_mixer");
  export_back("timm");
  expect_equal(timm_mixer(), tensors_at(folder_.file("back")));
  save(hf_gpt2(), kGptConfig);
  import("gpt2");
  export_back("hf");
  expect_equal(hf_gpt2(), tensors_at(folder_.file("back")));
}

TEST_F(ExportWeights, ExportsImportAgainWithTheConfigTheyWrote) {
  save(timm_vit(), kVitConfig);
  import("timm_vit", {"model.gelu=tanh"});
  export_back("timm");
  const std::string first = recipe();
  std::filesystem::remove_all(folder_.file("theirs"));
  std::filesystem::rename(folder_.file("back"), folder_.file("theirs"));
  import("timm_vit");
  EXPECT_EQ(recipe(), first);
  EXPECT_THAT(first, AllOf(HasSubstr("heads: 2"), HasSubstr("gelu: tanh")));
}

TEST_F(ExportWeights, NamesOfClassesGoBackToTimm) {
  save(timm_vit(), kVitConfig);
  import("timm_vit", {"data.class_names=[cat, dog, cow, hen, fly]"});
  export_back("timm");
  const auto config = nlohmann::json::parse(testing::read_file(folder_.file("back/config.json")));
  EXPECT_EQ(config.at("label_names").dump(), R"(["cat","dog","cow","hen","fly"])");
  import("timm_vit");
  export_back("timm");
  EXPECT_THAT(testing::read_file(folder_.file("back/config.json")), Not(HasSubstr("label_names")));
}

TEST_F(ExportWeights, PaddingOfTheVocabularyIsOursAlone) {
  save(hf_gpt2(), kGptConfig);
  import("gpt2", {"model.pad_vocabulary=96"});
  EXPECT_EQ(ours("backbone.tokens").size(0), 288);
  EXPECT_EQ(ours("backbone.tokens").narrow(0, 256, 32).abs().max().item<double>(), 0.0);
  export_back("hf");
  expect_equal(hf_gpt2(), tensors_at(folder_.file("back")));
}

TEST_F(ExportWeights, AHeadOfItsOwnIsWrittenWithoutThePrefixAndNotTied) {
  Tensors tensors = hf_gpt2();
  tensors["lm_head.weight"] = tensors.at("transformer.wte.weight") + 1;
  save(tensors, R"({"model_type": "gpt2", "n_head": 2, "tie_word_embeddings": false})");
  import("gpt2", {"model.pad_vocabulary=96"});
  EXPECT_THAT(recipe(), HasSubstr("tied: false"));
  EXPECT_EQ(ours("head.weight").size(0), 288);
  export_back("hf");
  expect_equal(tensors, tensors_at(folder_.file("back")));
  EXPECT_THAT(testing::read_file(folder_.file("back/config.json")),
              HasSubstr("\"tie_word_embeddings\": false"));
  tensors.erase("lm_head.weight");
  save(tensors, R"({"model_type": "gpt2", "n_head": 2, "tie_word_embeddings": false})");
  EXPECT_THAT(refusal("gpt2"), HasSubstr("'lm_head.weight' is missing, expected [256, 6]"));
}

TEST_F(ExportWeights, NumbersBecomeThoseOfThePrecision) {
  for (const torch::Dtype dtype : {torch::kBFloat16, torch::kFloat16, torch::kFloat64}) {
    Tensors tensors = timm_mixer();
    for (auto& [name, tensor] : tensors) tensor = tensor.to(dtype);
    save(tensors, kMixerConfig);
    import("timm_mixer");
    const torch::Tensor bias = ours("head.bias");
    EXPECT_EQ(bias.scalar_type(), dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
    EXPECT_TRUE(at::equal(bias, tensors.at("head.bias").to(bias.scalar_type())));
    export_back("timm", dtype == torch::kBFloat16  ? "bfloat16"
                        : dtype == torch::kFloat16 ? "float16"
                                                   : "");
    expect_equal(tensors, tensors_at(folder_.file("back")));
  }
  save(timm_mixer(), kMixerConfig);
  import("timm_mixer", {"train.precision=float64"});
  EXPECT_EQ(ours("head.bias").scalar_type(), torch::kFloat64);
}

TEST_F(ExportWeights, NamesAndFoldersAreChecked) {
  save(timm_vit(), kVitConfig);
  EXPECT_THAT(refusal("timm_vti", ExitCode::kUsage), HasSubstr("did you mean 'timm_vit'?"));
  import("timm_vit");
  EXPECT_THROW(import_weights({folder_.file("theirs"), "timm_vit", folder_.file("ours")}, {}, out_),
               StorageError);
  EXPECT_THROW(export_weights({{folder_.file("ours")}, "timm", folder_.file("theirs")}, out_),
               StorageError);
  const auto code_of = [&](const ExportArguments& arguments) {
    try {
      export_weights(arguments, out_);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code_of({{folder_.file("ours")}, "keras", folder_.file("x")}), ExitCode::kUsage);
  EXPECT_EQ(code_of({{folder_.file("ours")}, "hf", folder_.file("x")}), ExitCode::kMismatch);
  EXPECT_EQ(code_of({{folder_.file("ours")}, "timm", folder_.file("x"), "int8"}), ExitCode::kUsage);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("x")));
}

TEST_F(ExportWeights, SizesAndRatesOfTheConfigAreNotDropped) {
  save(timm_vit(), R"({"architecture": "vit_tiny_patch16_224", "model_args": {
      "num_heads": 2, "depth": 2, "embed_dim": 7, "patch_size": 16, "img_size": [16, 16]}})");
  EXPECT_THAT(refusal("timm_vit"),
              AllOf(HasSubstr("depth is 2"), HasSubstr("embed_dim is 7"),
                    HasSubstr("patch_size is 16"), Not(HasSubstr("img_size"))));
  save(timm_vit(), R"({"architecture": "vit_tiny_patch16_224", "model_args": {
      "drop_rate": 0.1, "attn_drop_rate": 0.2, "proj_drop_rate": 0.0}})");
  EXPECT_THAT(refusal("timm_vit"),
              AllOf(HasSubstr("model_args.drop_rate is 0.1"), HasSubstr("attn_drop_rate is 0.2"),
                    Not(HasSubstr("proj_drop_rate"))));
  save(timm_vit(), R"({"architecture": "vit_tiny_patch16_224",
                       "model_args": {"num_heads": 2, "drop_path_rate": 0.25}})");
  import("timm_vit");
  EXPECT_THAT(recipe(), HasSubstr("drop_path: 0.25"));
  export_back("timm");
  EXPECT_THAT(testing::read_file(folder_.file("back/config.json")),
              HasSubstr("\"drop_path_rate\": 0.25"));
  save(hf_gpt2(), R"({"model_type": "gpt2", "n_head": 2, "vocab_size": 255})");
  EXPECT_THAT(refusal("gpt2"), HasSubstr("vocab_size is 255"));
  save(hf_gpt2(), R"({"model_type": "gpt2", "n_head": 2})");
  import("gpt2");
  EXPECT_THAT(recipe(), HasSubstr("dropout: 0.1"));
}

TEST_F(ExportWeights, MixersOfTheTanhGeluAreNotExported) {
  save(timm_mixer(), R"({"architecture": "MlpMixer", "model_args": {"act_layer": "gelu_tanh"}})");
  EXPECT_THAT(refusal("timm_mixer"), HasSubstr("act_layer is \"gelu_tanh\""));
  save(timm_mixer(), kMixerConfig);
  import("timm_mixer", {"model.gelu=tanh"});
  try {
    export_back("timm");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("takes no activation by name"));
  }
}

TEST_F(ExportWeights, NumbersThatTheDtypeCannotHoldAreRefusedByName) {
  Tensors tensors = timm_mixer();
  for (auto& [name, tensor] : tensors) tensor = tensor.to(torch::kFloat64);
  tensors["head.bias"] = tensors["head.bias"] + 1e39;
  save(tensors, kMixerConfig);
  import("timm_mixer");  // into float64
  try {
    export_back("timm", "float16");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'head.bias' holds numbers that are too large for Half"));
  }
  EXPECT_THAT(refusal("timm_mixer", ExitCode::kMismatch, {"train.precision=float32"}),
              HasSubstr("'head.bias' holds numbers that are too large for Float"));
}

TEST_F(ExportWeights, ConfigsAreWhatTheOtherProgramReads) {
  const auto written = [this] {
    return nlohmann::json::parse(testing::read_file(folder_.file("back/config.json")));
  };
  save(timm_vit(), kVitConfig);
  import("timm_vit");
  export_back("timm");
  auto config = written();
  EXPECT_NEAR(config["model_args"].at("mlp_ratio").get<double>(), 10.0 / 6.0, 1e-12);
  config["model_args"].erase("mlp_ratio");
  EXPECT_EQ(config, nlohmann::json::parse(R"({
      "architecture": "vit_base_patch16_224", "num_classes": 5, "num_features": 6,
      "global_pool": "token",
      "model_args": {"img_size": 16, "patch_size": 8, "embed_dim": 6, "depth": 1, "num_heads": 2,
                     "class_token": true, "global_pool": "token", "fc_norm": false},
      "pretrained_cfg": {"input_size": [3, 16, 16], "num_classes": 5, "fixed_input_size": true,
                         "first_conv": "patch_embed.proj", "classifier": "head",
                         "mean": [0.5, 0.5, 0.25], "std": [0.5, 0.5, 0.5]}})"));
  save(hf_gpt2(), kGptConfig);
  import("gpt2");
  export_back("hf");
  EXPECT_EQ(written(), nlohmann::json::parse(R"({
      "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 6, "n_layer": 1,
      "n_head": 2, "n_inner": 10, "n_positions": 8, "vocab_size": 256,
      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": true,
      "scale_attn_by_inverse_layer_idx": false, "tie_word_embeddings": true, "embd_pdrop": 0.1,
      "attn_pdrop": 0.1, "resid_pdrop": 0.1, "bos_token_id": null, "eos_token_id": null,
      "torch_dtype": "float32"})"));
}

}  // namespace
}  // namespace shoal
