#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/convert/import.h"
#include "tests/support/foreign_models.h"
#include "tests/support/small_bpe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::hf_gpt2;
using testing::kGptConfig;
using testing::kVitConfig;
using testing::Tensors;
using testing::timm_mixer;
using testing::timm_vit;
using testing::write_file;

class ImportWeights : public testing::ForeignModels {};

TEST_F(ImportWeights, RecipeSaysWhatTheWeightsTell) {
  save(timm_vit(), kVitConfig);
  import("timm_vit");
  EXPECT_THAT(recipe(), AllOf(HasSubstr("backbone: vit"), HasSubstr("patch: 8"),
                              HasSubstr("width: 6"), HasSubstr("depth: 1"), HasSubstr("heads: 2"),
                              HasSubstr("hidden: 10"), HasSubstr("pool: cls")));
  EXPECT_THAT(recipe(), AllOf(HasSubstr("source: image_folder"), HasSubstr("image_size: 16"),
                              HasSubstr("classes: 5"), HasSubstr("0.25")));
  save(hf_gpt2(), kGptConfig);
  import("gpt2", {"model.pad_vocabulary=64", "data.train.files=[a.txt]"});
  EXPECT_THAT(recipe(),
              AllOf(HasSubstr("backbone: gpt2"), HasSubstr("heads: 2"), HasSubstr("context: 8"),
                    HasSubstr("dropout: 0.1"), HasSubstr("gelu: tanh"), HasSubstr("a.txt")));
}

TEST_F(ImportWeights, MatricesOfConv1dAreTransposed) {
  save(hf_gpt2(), kGptConfig);
  import("gpt2");
  EXPECT_TRUE(at::equal(ours("backbone.blocks.0.attention.qkv.weight"),
                        hf_gpt2().at("transformer.h.0.attn.c_attn.weight").t()));
  EXPECT_TRUE(at::equal(ours("backbone.tokens"), hf_gpt2().at("transformer.wte.weight")));
}

TEST_F(ImportWeights, NumbersThatAreNotFiniteAreRefused) {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    Tensors tensors = timm_vit();
    tensors.at("blocks.0.norm1.bias")[3] = bad;
    save(tensors, kVitConfig);
    EXPECT_THAT(refusal("timm_vit", ExitCode::kCheckpoint),
                HasSubstr("the tensor 'blocks.0.norm1.bias' has values that are not finite"));
  }
}

TEST_F(ImportWeights, EveryTensorThatDoesNotFitIsNamed) {
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

TEST_F(ImportWeights, MasksAndARepeatedHeadAreNoSurplus) {
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

TEST_F(ImportWeights, ConfigsOfOtherModelsAreRefusedByName) {
  save(hf_gpt2(), R"({"n_head": 2, "activation_function": "relu", "layer_norm_epsilon": 1e-6,
                      "n_layer": 2, "add_cross_attention": true})");
  EXPECT_THAT(
      refusal("gpt2"),
      AllOf(HasSubstr("activation_function is \"relu\""), HasSubstr("layer_norm_epsilon is 1e-06"),
            HasSubstr("n_layer is 2"), HasSubstr("add_cross_attention is true")));
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

TEST_F(ImportWeights, WhatWeightsDoNotTellIsAskedFor) {
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

TEST_F(ImportWeights, AnotherDataSourceTakesThePlaceOfTheFormats) {
  save(timm_vit(), kVitConfig);
  EXPECT_THAT(refusal("timm_vit", ExitCode::kRecipe, {"data.source=cifar"}),
              HasSubstr("data.classes: must be 10"));  // the weights' 5 are kept
  EXPECT_THAT(refusal("timm_vit", ExitCode::kMismatch,
                      {"data.source=cifar", "data.classes=10", "data.image_size=32"}),
              AllOf(HasSubstr("'head.weight' is F32 [5, 6], expected numbers [10, 6]"),
                    HasSubstr("'pos_embed'")));
  EXPECT_THAT(refusal("timm_vit", ExitCode::kRecipe, {"data.clases=5"}), HasSubstr("classes"));
  EXPECT_THAT(refusal("timm_vit", ExitCode::kMismatch,
                      {"model.moe={router: {name: top_k}, experts: {count: 2, hidden: 4}}",
                       "model.sparse_blocks={from: 0, to: 0}"}),
              HasSubstr("model.moe: timm has no layout"));
}

TEST_F(ImportWeights, ClassesHaveTheNamesOfTheConfig) {
  const auto names_of = [this](const std::string& entry) {
    save(timm_mixer(), R"({"architecture": "mixer_b16_224", )" + entry + "}");
    ::testing::internal::CaptureStderr();
    import("timm_mixer");
    const std::string names = recipe().substr(recipe().find("class_names: "));
    return names.substr(0, names.find('\n')) + ::testing::internal::GetCapturedStderr();
  };
  const std::string list = R"(class_names: [n01, n02, n03, "a b", e])";
  EXPECT_EQ(names_of(R"("label_names": ["n01", "n02", "n03", "a b", "e"])"), list);
  EXPECT_EQ(names_of(R"("pretrained_cfg": {"label_names": ["n01", "n02", "n03", "a b", "e"]})"),
            list);
  EXPECT_EQ(names_of(R"("id2label": {"1": "n02", "0": "n01", "2": "n03", "4": "e", "3": "a b"})"),
            list);
  EXPECT_EQ(names_of(R"("id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2",
                                     "3": "LABEL_3", "4": "LABEL_4"})"),
            "class_names: []");
  for (const char* other :
       {R"(["a", "b"])", R"(["a", "b", "c", "d", "a"])", R"(["", "b", "c", "d", "e"])"}) {
    EXPECT_THAT(names_of(fmt::format(R"("label_names": {})", other)),
                AllOf(HasSubstr("class_names: []"), HasSubstr("note: data.class_names: none")));
  }
}

TEST_F(ImportWeights, AnotherImageSourceKeepsClassesSizeAndNormalisation) {
  save(timm_vit(), kVitConfig);
  import("timm_vit", {"data.source=shapes"});
  EXPECT_THAT(recipe(), AllOf(HasSubstr("source: shapes"), HasSubstr("classes: 5"),
                              HasSubstr("image_size: 16"), HasSubstr("0.25")));
}

TEST_F(ImportWeights, CifarKeepsTheNormalisation) {
  Tensors tensors = timm_vit();
  tensors["pos_embed"] = torch::ones({1, 17, 6});
  tensors["head.weight"] = torch::ones({10, 6});
  tensors["head.bias"] = torch::ones({10});
  save(tensors, kVitConfig);
  import("timm_vit", {"data.source=cifar"});
  EXPECT_THAT(recipe(), AllOf(HasSubstr("source: cifar"), HasSubstr("0.25")));
}

TEST_F(ImportWeights, VocabularyIsThatOfTheWeights) {
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
  ::testing::internal::CaptureStderr();
  import("gpt2");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("note: the checkpoint does not record its tokenizer"),
                    HasSubstr("vocab.json")));
  EXPECT_THAT(recipe(), AllOf(HasSubstr("vocabulary: 256"), HasSubstr("vocab.json")));
}

TEST_F(ImportWeights, ALinkToATokenizersFileThatIsNotThereIsNamed) {
  save(hf_gpt2(), kGptConfig);
  const std::string vocab = folder_.file("theirs/vocab.json");
  std::filesystem::create_symlink("blobs/none", vocab);
  write_file(folder_.file("theirs/merges.txt"), "");
  EXPECT_THAT(refusal("gpt2"),
              HasSubstr("data.tokenizer.vocab: '" + vocab + "' is a link to a missing file"));
  import("gpt2", {"data.tokenizer.vocab=v.json"});
  EXPECT_THAT(recipe(), HasSubstr("vocab: v.json"));
}

TEST_F(ImportWeights, TheCheckpointNamesTheTokenizerWhoseFilesAreAtHand) {
  const auto tokenizer = [this] {
    const CheckpointReader reader(resolve_checkpoint(folder_.file("ours")));
    const ManifestValue* value = reader.manifest().find_value("data.tokenizer");
    return value == nullptr ? "none" : std::get<std::string>(value->value);
  };
  save(hf_gpt2(), kGptConfig);
  import("gpt2");
  EXPECT_EQ(tokenizer(), "bytes");
  write_file(folder_.file("theirs/vocab.json"), testing::vocab_json({}));
  write_file(folder_.file("theirs/merges.txt"), testing::merges_text({}));
  import("gpt2");
  EXPECT_THAT(tokenizer(), ::testing::StartsWith("gpt2:"));
  import("gpt2", {"data.tokenizer.vocab=v.json"});
  EXPECT_EQ(tokenizer(), "none");
}

TEST_F(ImportWeights, JsonCountsTheTensorsOfTheCheckpoint) {
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
