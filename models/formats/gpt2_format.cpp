#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/backbones/gpt2.h"
#include "models/formats/weight_format.h"
#include "models/text_generation.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/sequences/text.h"
#include "runtime/text/gpt2_tokenizer.h"

// V vocabulary  C width  T positions
namespace shoal {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kEndOfText = 50256;
/// Default of GPT2Config for missing dropout rates.
constexpr double kDropout = 0.1;

// Hugging Face's names, and OpenAI's.
constexpr std::array kVocabularyFiles{"vocab.json", "encoder.json"};
constexpr std::array kMergesFiles{"merges.txt", "vocab.bpe"};

/// Values of activation_function, with the GELU of each.
constexpr std::array kActivations{
    std::pair{"gelu_new", Gelu::kTanh}, std::pair{"gelu_pytorch_tanh", Gelu::kTanh},
    std::pair{"gelu_fast", Gelu::kTanh}, std::pair{"gelu", Gelu::kErf}};

/// Format of Hugging Face's GPT2LMHeadModel. The head is the token embedding, unless
/// tie_word_embeddings is false; matrices are Conv1D's, [in, out]. GPT2Model omits `transformer.`.
class Gpt2Format : public WeightFormat {
 public:
  explicit Gpt2Format(const Options&) {}
  std::string_view program() const override { return "hf"; }
  std::string_view backbone() const override { return "gpt2"; }
  std::string_view task() const override { return "lm"; }
  std::string_view prefix() const override { return "transformer."; }
  /// Causal masks, which older versions saved.
  std::vector<std::string> ignored() const override {
    return {"h.*.attn.bias", "h.*.attn.masked_bias"};
  }

  ModelRecipe recipe(const ForeignWeights& weights) const override {
    ModelRecipe recipe;
    Gpt2::Options gpt2;
    const std::vector<int64_t>& tokens_VC = weights.shape_of("wte.weight", 2);
    gpt2.width = tokens_VC[1];
    gpt2.depth = weights.count_blocks("h.");
    gpt2.context = weights.shape_of("wpe.weight", 2)[0];
    if (gpt2.depth > 0) gpt2.hidden = weights.shape_of("h.0.mlp.c_fc.weight", 2)[1];
    read_config(weights, gpt2, tokens_VC[0], recipe);
    recipe.backbone = Choice<Backbone>("gpt2", gpt2);
    recipe.task = language_model(weights.config().boolean("tie_word_embeddings").value_or(true));
    TextSource::Options text;
    text.sequence = *gpt2.context;
    text.train.files = {"train.txt"};
    text.valid.files = {"valid.txt"};
    set_tokenizer(weights, tokens_VC[0], text, recipe);
    recipe.data = Choice<DataSource>("text", text);
    return recipe;
  }

  void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const override {
    const auto& gpt2 = backbone.options<Gpt2>();
    const auto refuse = [&](bool is_other, const char* what) {
      if (is_other) mistakes.add(fmt::format("{}: GPT-2 has no layout for it", what));
    };
    refuse(gpt2.feed_forward.moe.has_value(), "model.moe");
    refuse(gpt2.feed_forward.nexus.has_value(), "model.nexus");
    refuse(gpt2.position != PositionKind::kLearned, "model.position other than learned");
    refuse(gpt2.norm != NormKind::kLayer, "model.norm other than layer");
    refuse(gpt2.mlp != MlpKind::kGelu, "model.mlp other than gelu");
    refuse(!gpt2.bias, "model.bias: false");
    refuse(gpt2.kv_heads.value_or(gpt2.heads) != gpt2.heads, "model.kv_heads other than heads");
  }

  std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>& task,
                                const DataShape& data) const override {
    const auto& gpt2 = backbone.options<Gpt2>();
    // Only Shoal pads the vocabulary.
    const std::vector<int64_t> tokens_VC{data.vocabulary, gpt2.width};
    const bool tied = has_tied_head(task);
    std::vector<WeightName> names{{"backbone.tokens", "wte.weight", tokens_VC},
                                  {.ours = tied ? "backbone.tokens" : "head.weight",
                                   .theirs = "lm_head.weight",
                                   .shape = tokens_VC,
                                   .is_copy = tied,
                                   .has_prefix = false},
                                  {"backbone.positions", "wpe.weight"}};
    const auto add_conv1d = [&names](const std::string& ours, const std::string& theirs) {
      names.push_back({ours + ".weight", theirs + ".weight", {}, /*is_transposed=*/true});
      names.push_back({ours + ".bias", theirs + ".bias"});
    };
    for (int64_t block = 0; block < gpt2.depth; ++block) {
      const std::string ours = fmt::format("backbone.blocks.{}.", block);
      const std::string theirs = fmt::format("h.{}.", block);
      add_layer(names, ours + "attention_norm", theirs + "ln_1");
      add_conv1d(ours + "attention.qkv", theirs + "attn.c_attn");
      add_conv1d(ours + "attention.proj", theirs + "attn.c_proj");
      add_layer(names, ours + "mlp_norm", theirs + "ln_2");
      add_conv1d(ours + "mlp.fc1", theirs + "mlp.c_fc");
      add_conv1d(ours + "mlp.fc2", theirs + "mlp.c_proj");
    }
    add_layer(names, "backbone.norm", "ln_f");
    return names;
  }

  std::string config(const ModelToExport& model) const override {
    const auto& gpt2 = model.backbone.options<Gpt2>();
    const int64_t vocabulary = model.data.vocabulary;
    const nlohmann::ordered_json end_of_text = vocabulary == kGpt2Vocabulary
                                                   ? nlohmann::ordered_json(kEndOfText)
                                                   : nlohmann::ordered_json(nullptr);
    const nlohmann::ordered_json config{
        {"architectures", {"GPT2LMHeadModel"}},
        {"model_type", "gpt2"},
        {"n_embd", gpt2.width},
        {"n_layer", gpt2.depth},
        {"n_head", gpt2.heads},
        {"n_inner", gpt2.hidden_width()},
        {"n_positions", gpt2.context.value_or(model.data.sequence)},
        {"vocab_size", vocabulary},
        {"activation_function", gpt2.gelu == Gelu::kErf ? "gelu" : "gelu_new"},
        {"layer_norm_epsilon", 1e-5},
        {"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", gpt2.scale_attn_by_inverse_layer_idx},
        {"tie_word_embeddings", has_tied_head(model.task)},
        {"embd_pdrop", gpt2.dropout},
        {"attn_pdrop", gpt2.dropout},
        {"resid_pdrop", gpt2.dropout},
        {"bos_token_id", end_of_text},
        {"eos_token_id", end_of_text},
        {"torch_dtype", model.dtype}};
    return config.dump(2) + "\n";
  }

 private:
  static void read_config(const ForeignWeights& weights, Gpt2::Options& gpt2, int64_t vocabulary,
                          ModelRecipe& recipe) {
    const ForeignConfig& config = weights.config();
    Mistakes mistakes;
    for (const auto& [key, value] :
         {std::pair{"model_type", "\"gpt2\""}, std::pair{"scale_attn_weights", "true"},
          std::pair{"add_cross_attention", "false"}}) {
      require_value(config, key, value, mistakes);
    }
    // Sizes that contradict the weights.
    require_value(config, "n_embd", std::to_string(gpt2.width), mistakes);
    require_value(config, "n_layer", std::to_string(gpt2.depth), mistakes);
    require_value(config, "n_positions", std::to_string(*gpt2.context), mistakes);
    require_value(config, "vocab_size", std::to_string(vocabulary), mistakes);
    const double eps = config.number("layer_norm_epsilon").value_or(1e-5);
    if (eps != 1e-5) {
      mistakes.add(
          fmt::format("{} is {}, supported is 1e-05", config.place("layer_norm_epsilon"), eps));
    }
    gpt2.gelu = read_activation(config, recipe, mistakes);
    gpt2.scale_attn_by_inverse_layer_idx =
        config.boolean("scale_attn_by_inverse_layer_idx").value_or(false);
    mistakes.throw_if_any(fmt::format("'{}' is an unsupported GPT-2:", weights.path()));
    const std::string no_config =
        config.is_there() ? "config.json lacks n_head" : "there is no config.json";
    if (const auto heads = config.integer("n_head")) {
      gpt2.heads = *heads;
    } else {
      gpt2.heads = 1;
      recipe.required_keys.push_back({"model.heads", no_config});
    }
    read_dropout(config, gpt2, recipe);
  }

  /// Default: GPT2Config's, if config.json is one.
  static Gelu read_activation(const ForeignConfig& config, ModelRecipe& recipe,
                              Mistakes& mistakes) {
    if (!config.text("activation_function").has_value() && !config.text("model_type").has_value()) {
      recipe.required_keys.push_back(
          {"model.gelu", "there is no config.json with activation_function or model_type"});
    }
    const std::string name = config.text("activation_function").value_or("gelu_new");
    std::vector<std::string> known;
    for (const auto& [word, gelu] : kActivations) {
      if (name == word) return gelu;
      known.emplace_back(word);
    }
    mistakes.add(fmt::format("{} is \"{}\", supported are {}", config.place("activation_function"),
                             name, join_words(known)));
    return Gelu::kTanh;
  }

  static void read_dropout(const ForeignConfig& config, Gpt2::Options& gpt2, ModelRecipe& recipe) {
    if (!config.is_there()) return;
    const auto rate_of = [&](const char* key) { return config.number(key).value_or(kDropout); };
    gpt2.dropout = rate_of("resid_pdrop");
    if (rate_of("embd_pdrop") == gpt2.dropout && rate_of("attn_pdrop") == gpt2.dropout) return;
    recipe.required_keys.push_back(
        {"model.dropout", "embd_pdrop, attn_pdrop and resid_pdrop of config.json differ"});
  }

  /// Sets a byte tokenizer, or GPT-2's if its files lie beside the weights.
  static void set_tokenizer(const ForeignWeights& weights, int64_t vocabulary,
                            TextSource::Options& text, ModelRecipe& recipe) {
    const auto find_beside = [&weights](const std::array<const char*, 2>& names) {
      for (const char* name : names) {
        const std::string path = (std::filesystem::path(weights.folder()) / name).string();
        if (name_exists(path)) return path;
      }
      return std::string();
    };
    if (vocabulary == kBytes && find_beside(kVocabularyFiles).empty()) {
      text.tokenizer = Choice<Tokenizer>("bytes");
      return;
    }
    Gpt2Tokenizer::Options tokenizer;
    tokenizer.vocabulary = vocabulary;
    const auto find = [&](const std::string& key, const std::array<const char*, 2>& names) {
      const std::string path = find_beside(names);
      if (!path.empty() && kind_of(path) != PathKind::kNothing) return path;
      recipe.required_keys.push_back(
          {"data.tokenizer." + key, path.empty()
                                        ? fmt::format("there is no {} beside the weights", names[0])
                                        : fmt::format("'{}' is a link to a missing file", path)});
      return std::string(names[0]);
    };
    tokenizer.vocab = find("vocab", kVocabularyFiles);
    tokenizer.merges = find("merges", kMergesFiles);
    text.tokenizer = Choice<Tokenizer>("gpt2", tokenizer);
  }
};

const Registration<WeightFormat, Gpt2Format> registered_gpt2_format{
    "gpt2", "Hugging Face's GPT2LMHeadModel, into the backbone gpt2"};

}  // namespace
}  // namespace shoal
