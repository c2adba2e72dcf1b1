#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/commands/commands.h"
#include "models/formats/foreign_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/foreign_model.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::hf_gpt2;
using ::testing::Not;
using testing::save_tensors;
using testing::ScratchFolder;
using testing::Tensors;
using testing::timm_mixer;
using testing::timm_vit;
using testing::write_file;

constexpr const char* kVitConfig =
    R"({"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": 2},
        "pretrained_cfg": {"mean": [0.5, 0.5, 0.25], "std": [0.5, 0.5, 0.5]}})";
constexpr const char* kMixerConfig = R"({"architecture": "MlpMixer"})";
constexpr const char* kGptConfig = R"({"model_type": "gpt2", "n_head": 2, "resid_pdrop": 0.1,
                                       "embd_pdrop": 0.1, "attn_pdrop": 0.1})";

class WeightsBothWays : public ::testing::Test {
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
    const ExportArguments arguments{folder_.file("ours"), program, folder_.file("back"), dtype};
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
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("ours")));
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
  std::string recipe() { return testing::read_file(folder_.file("ours/resolved.yaml")); }
  static void expect_equal(const Tensors& a, const Tensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      EXPECT_EQ(tensor.scalar_type(), b.at(name).scalar_type()) << name;
      EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
    }
  }
};

TEST_F(WeightsBothWays, RoundTripsAreBitEqual) {
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

TEST_F(WeightsBothWays, ExportsImportAgainWithTheConfigTheyWrote) {
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

TEST_F(WeightsBothWays, RecipeSaysWhatTheWeightsTell) {
  save(timm_vit(), kVitConfig);
  import("timm_vit");
  EXPECT_THAT(recipe(), AllOf(HasSubstr("backbone: vit"), HasSubstr("patch: 8"),
                              HasSubstr("width: 6"), HasSubstr("depth: 1"), HasSubstr("heads: 2"),
                              HasSubstr("hidden: 10"), HasSubstr("pool: cls")));
  EXPECT_THAT(recipe(), AllOf(HasSubstr("source: shapes"), HasSubstr("image_size: 16"),
                              HasSubstr("classes: 5"), HasSubstr("0.25")));
  save(hf_gpt2(), kGptConfig);
  import("gpt2", {"model.pad_vocabulary=64", "data.train.files=[a.txt]"});
  EXPECT_THAT(recipe(),
              AllOf(HasSubstr("backbone: gpt2"), HasSubstr("heads: 2"), HasSubstr("context: 8"),
                    HasSubstr("dropout: 0.1"), HasSubstr("gelu: tanh"), HasSubstr("a.txt")));
}

TEST_F(WeightsBothWays, MatricesOfConv1dAreTransposed) {
  save(hf_gpt2(), kGptConfig);
  import("gpt2");
  EXPECT_TRUE(at::equal(ours("backbone.blocks.0.attention.qkv.weight"),
                        hf_gpt2().at("transformer.h.0.attn.c_attn.weight").t()));
  EXPECT_TRUE(at::equal(ours("backbone.tokens"), hf_gpt2().at("transformer.wte.weight")));
}

TEST_F(WeightsBothWays, PaddingOfTheVocabularyIsOursAlone) {
  save(hf_gpt2(), kGptConfig);
  import("gpt2", {"model.pad_vocabulary=96"});
  EXPECT_EQ(ours("backbone.tokens").size(0), 288);
  EXPECT_EQ(ours("backbone.tokens").narrow(0, 256, 32).abs().max().item<double>(), 0.0);
  export_back("hf");
  expect_equal(hf_gpt2(), tensors_at(folder_.file("back")));
}

TEST_F(WeightsBothWays, NumbersBecomeThoseOfThePrecision) {
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

TEST_F(WeightsBothWays, EveryTensorThatDoesNotFitIsNamed) {
  Tensors tensors = timm_vit();
  tensors.erase("blocks.0.norm1.bias");
  tensors.erase("norm.weight");
  tensors["blocks.0.mlp.fc2.bias"] = torch::zeros({7});
  tensors["blocks.0.attn.extra"] = torch::zeros({2, 2});
  tensors["cls_token"] = torch::zeros({1, 1, 6}, torch::kUInt8);
  save(tensors, kVitConfig);
  EXPECT_THAT(refusal("timm_vit"),
              AllOf(HasSubstr("'blocks.0.norm1.bias' is missing, expected [6]"),
                    HasSubstr("'norm.weight' is missing"),
                    HasSubstr("'blocks.0.mlp.fc2.bias' is F32 [7], expected numbers [6]"),
                    HasSubstr("'blocks.0.attn.extra' F32 [2, 2] is surplus"),
                    HasSubstr("'cls_token' is U8 [1, 1, 6]")));
}

TEST_F(WeightsBothWays, MasksAndARepeatedHeadAreNoSurplus) {
  Tensors tensors;
  for (const auto& [name, tensor] : hf_gpt2()) tensors[name.substr(12)] = tensor;  // as GPT2Model
  tensors["h.0.attn.bias"] = torch::ones({1, 1, 8, 8}, torch::kUInt8);
  tensors["h.0.attn.masked_bias"] = torch::zeros({});
  tensors["lm_head.weight"] = tensors.at("wte.weight");
  save(tensors, kGptConfig);
  import("gpt2");
  tensors["lm_head.weight"] = tensors.at("wte.weight") + 1;
  save(tensors, kGptConfig);
  EXPECT_THAT(refusal("gpt2"), HasSubstr("'lm_head.weight' differs from 'wte.weight'"));
}

TEST_F(WeightsBothWays, ConfigsOfOtherModelsAreRefusedByName) {
  save(hf_gpt2(), R"({"n_head": 2, "activation_function": "relu", "layer_norm_epsilon": 1e-6,
                      "n_layer": 2, "tie_word_embeddings": false})");
  EXPECT_THAT(
      refusal("gpt2"),
      AllOf(HasSubstr("activation_function is \"relu\""), HasSubstr("layer_norm_epsilon is 1e-06"),
            HasSubstr("n_layer is 2"), HasSubstr("tie_word_embeddings is false")));
  save(hf_gpt2(), R"({"n_head": "two"})");
  EXPECT_THAT(refusal("gpt2"), HasSubstr("n_head is \"two\", expected an integer"));

  Tensors vit = timm_vit();
  vit["blocks.0.ls1.gamma"] = vit["blocks.0.ls2.gamma"] = torch::ones({6});
  vit["reg_token"] = torch::zeros({1, 4, 6});
  save(vit, R"({"architecture": "vit_tiny_patch16_224", "global_pool": "avg",
                "model_args": {"qk_norm": true, "act_layer": "silu"}})");
  EXPECT_THAT(refusal("timm_vit"),
              AllOf(HasSubstr("layer scale"), HasSubstr("register tokens"),
                    HasSubstr("model_args.qk_norm (true)"), HasSubstr("act_layer is \"silu\""),
                    HasSubstr("global_pool is \"avg\"")));
  save(timm_mixer(), R"({"architecture": "gmixer_24_224"})");
  EXPECT_THAT(refusal("timm_mixer"), HasSubstr("architecture is \"gmixer_24_224\""));
}

TEST_F(WeightsBothWays, WhatWeightsDoNotTellIsAskedFor) {
  save(timm_vit());
  EXPECT_THAT(refusal("timm_vit"), AllOf(HasSubstr("model.heads: there is no config.json"),
                                         HasSubstr("append model.heads=")));
  import("timm_vit", {"model.heads=3", "model.gelu=erf"});
  EXPECT_THAT(recipe(), HasSubstr("heads: 3"));
  save(timm_vit(), R"({"architecture": "vit_huge_patch14_clip_quickgelu_224"})");
  EXPECT_THAT(refusal("timm_vit"), AllOf(HasSubstr("model.heads"), HasSubstr("model.gelu")));
  save(timm_vit(), R"({"architecture": "vit_tiny_patch16_gap_224"})");
  EXPECT_THAT(refusal("timm_vit"), AllOf(HasSubstr("model.heads"), HasSubstr("model.gelu")));
  save(timm_mixer());
  EXPECT_THAT(refusal("timm_mixer"), HasSubstr("model.gelu: there is no config.json"));
  save(hf_gpt2());
  EXPECT_THAT(refusal("gpt2"), AllOf(HasSubstr("model.heads"), HasSubstr("model.gelu")));
}

TEST_F(WeightsBothWays, AnotherDataSourceTakesThePlaceOfTheFormats) {
  save(timm_vit(), kVitConfig);
  EXPECT_THAT(refusal("timm_vit", ExitCode::kMismatch, {"data.source=cifar"}),
              AllOf(HasSubstr("'head.weight' is F32 [5, 6], expected numbers [10, 6]"),
                    HasSubstr("'pos_embed'")));
  EXPECT_THAT(refusal("timm_vit", ExitCode::kRecipe, {"data.clases=5"}), HasSubstr("classes"));
  EXPECT_THAT(refusal("timm_vit", ExitCode::kMismatch,
                      {"model.moe={router: {name: top_k}, experts: {count: 2, hidden: 4}}",
                       "model.sparse_blocks={from: 0, to: 0}"}),
              HasSubstr("model.moe: timm has no layout"));
}

TEST_F(WeightsBothWays, NamesAndFoldersAreChecked) {
  save(timm_vit(), kVitConfig);
  EXPECT_THAT(refusal("timm_vti", ExitCode::kUsage), HasSubstr("did you mean 'timm_vit'?"));
  import("timm_vit");
  EXPECT_THROW(import_weights({folder_.file("theirs"), "timm_vit", folder_.file("ours")}, {}, out_),
               StorageError);
  EXPECT_THROW(export_weights({folder_.file("ours"), "timm", folder_.file("theirs")}, out_),
               StorageError);
  const auto code_of = [&](const ExportArguments& arguments) {
    try {
      export_weights(arguments, out_);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code_of({folder_.file("ours"), "keras", folder_.file("x")}), ExitCode::kUsage);
  EXPECT_EQ(code_of({folder_.file("ours"), "hf", folder_.file("x")}), ExitCode::kMismatch);
  EXPECT_EQ(code_of({folder_.file("ours"), "timm", folder_.file("x"), "int8"}), ExitCode::kUsage);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("x")));
}

TEST_F(WeightsBothWays, AnotherImageSourceKeepsTheNormalisation) {
  Tensors tensors = timm_vit();
  tensors["pos_embed"] = torch::ones({1, 17, 6});
  tensors["head.weight"] = torch::ones({10, 6});
  tensors["head.bias"] = torch::ones({10});
  save(tensors, kVitConfig);
  import("timm_vit", {"data.source=cifar"});
  EXPECT_THAT(recipe(), AllOf(HasSubstr("source: cifar"), HasSubstr("0.25")));
}

TEST_F(WeightsBothWays, VocabularyIsThatOfTheWeights) {
  Tensors tensors = hf_gpt2();
  tensors["transformer.wte.weight"] = torch::ones({300, 6});
  save(tensors, kGptConfig);
  EXPECT_THAT(refusal("gpt2"),
              AllOf(HasSubstr("data.tokenizer.vocab"), HasSubstr("data.tokenizer.merges")));
  import("gpt2", {"data.tokenizer.vocab=v.json", "data.tokenizer.merges=m.txt"});
  EXPECT_THAT(recipe(), HasSubstr("vocabulary: 300"));
  EXPECT_EQ(ours("backbone.tokens").size(0), 300);
  save(hf_gpt2(), kGptConfig);
  write_file(folder_.file("theirs/vocab.json"), "{}");
  write_file(folder_.file("theirs/merges.txt"), "");
  import("gpt2");
  EXPECT_THAT(recipe(), AllOf(HasSubstr("vocabulary: 256"), HasSubstr("vocab.json")));
}

TEST_F(WeightsBothWays, SizesAndRatesOfTheConfigAreNotDropped) {
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

TEST_F(WeightsBothWays, MixersOfTheTanhGeluAreNotExported) {
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

TEST_F(WeightsBothWays, NumbersThatTheDtypeCannotHoldAreRefusedByName) {
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

TEST_F(WeightsBothWays, JsonCountsTheTensorsOfTheCheckpoint) {
  save(hf_gpt2(), kGptConfig);
  ImportArguments arguments{folder_.file("theirs"), "gpt2", folder_.file("ours")};
  arguments.json = true;
  import_weights(arguments, {}, out_);
  const auto printed = nlohmann::json::parse(out_.str());
  EXPECT_EQ(printed.at("tensors"), hf_gpt2().size());
  EXPECT_EQ(printed.at("format"), "gpt2");
  EXPECT_EQ(printed.at("backbone"), "gpt2");
}

}  // namespace
}  // namespace shoal
