#include "runtime/options/key_synonyms.h"

#include <algorithm>
#include <array>

#include "runtime/base/text.h"

namespace shoal::config {
namespace {

/// Words and keys between blanks.
struct Synonyms {
  std::string_view words, keys;
};

/// Keys whose values are other than those of the words.
struct KnownDifference {
  std::string_view words, keys, text;
};
constexpr std::array kDifferences{
    KnownDifference{"min_lr final_lr lr_min eta_min", "end", "a factor of the peak rate"},
    KnownDifference{"mlp_ratio", "hidden channel_hidden", "a width, not a ratio"}};

// Words are those of PyTorch, timm, Hugging Face, Megatron, DeepSpeed and nanoGPT.
constexpr std::array kKeyWords{
    Synonyms{"dim hidden_size embed_dim embedding_dim emb_dim d_model n_embd model_dim hidden_dim "
             "embedding_size channels",
             "width widths"},
    Synonyms{"mlp_dim ffn_dim d_ff dim_feedforward intermediate_size ffn_hidden_size n_inner "
             "mlp_hidden hidden_features mlp_ratio",
             "hidden channel_hidden expansion"},
    Synonyms{"patch_size patchsize", "patch stem_patch"},
    Synonyms{
        "num_layers n_layer n_layers layers num_hidden_layers num_blocks n_blocks blocks depth "
        "depths",
        "depth depths dense_blocks"},
    Synonyms{"n_head n_heads num_heads num_attention_heads attention_heads nhead nheads", "heads"},
    Synonyms{"n_kv_heads num_kv_heads num_key_value_heads", "kv_heads"},
    Synonyms{"num_experts n_experts n_expert expert_count num_local_experts n_routed_experts "
             "moe_num_experts",
             "experts.count"},
    Synonyms{"num_shared_experts n_shared_experts shared_experts", "shared.count"},
    Synonyms{"top_k topk num_experts_per_tok num_experts_per_token experts_per_token moe_top_k "
             "moe_router_topk",
             "k router.k"},
    Synonyms{"expert_dim expert_hidden expert_hidden_size moe_intermediate_size", "experts.hidden"},
    Synonyms{"capacity_factor expert_capacity moe_capacity_factor", "capacity.factor"},
    Synonyms{"aux_loss aux_losses balance_loss load_balancing_loss router_aux_loss_coef "
             "moe_aux_loss_coeff",
             "losses"},
    Synonyms{"dropout drop drop_rate hidden_dropout resid_pdrop", "dropout drop_path"},
    Synonyms{"drop_path_rate stochastic_depth droppath", "drop_path"},
    Synonyms{"act hidden_act act_layer activation_function", "activation gelu mlp"},
    Synonyms{"max_position_embeddings n_positions n_ctx ctx_len context_size", "context"},
    Synonyms{"pooling global_pool", "pool"},
    Synonyms{"label_smooth smoothing", "label_smoothing"},
    Synonyms{"pretrained init load_from init_checkpoint finetune finetune_from", "init_from"},
    Synonyms{"arch architecture model_type", "backbone"},
    Synonyms{"batch_size batchsize bs global_batch_size train_batch_size total_batch_size",
             "batch"},
    Synonyms{"grad_accum accum gradient_accumulation gradient_accumulation_steps "
             "accumulate_grad_batches accumulation_steps micro_batches",
             "accumulate"},
    Synonyms{"epochs num_epochs n_epochs max_epochs epoch steps num_steps max_steps total_steps "
             "train_steps iterations max_iters num_train_epochs",
             "duration"},
    Synonyms{"learning_rate lr base_lr max_lr peak_lr", "lr"},
    Synonyms{"min_lr final_lr lr_min eta_min", "end"},
    Synonyms{"wd decay l2", "weight_decay"},
    Synonyms{"beta beta1 beta2 adam_beta1 adam_beta2", "betas"},
    Synonyms{"epsilon adam_eps adam_epsilon", "eps"},
    Synonyms{"warmup_steps warmup_epochs warmup_ratio num_warmup_steps warmup_iters", "warmup"},
    Synonyms{"clip grad_clip clip_grad gradient_clip gradient_clipping gradient_clip_val "
             "max_grad_norm max_norm",
             "clip_norm"},
    Synonyms{"dtype amp fp16 bf16 mixed_precision", "precision"},
    Synonyms{"ema ema_decay model_ema", "average"},
    Synonyms{"gradient_checkpointing activation_checkpointing checkpoint_activations", "recompute"},
    Synonyms{"random_seed manual_seed", "seed"},
    Synonyms{"output output_dir out_dir out save_dir log_dir logdir", "root"},
    Synonyms{"run_name exp_name experiment experiment_name", "run.name"},
    Synonyms{"resume auto_resume", "on_existing"},
    Synonyms{"gpu gpus cuda accelerator", "device"},
    Synonyms{"num_threads n_threads cpus", "threads"},
    Synonyms{"save_every save_interval save_steps checkpoint_interval", "checkpoint.every"},
    Synonyms{"eval_every eval_interval eval_steps val_interval", "evaluate.every"},
    Synonyms{"log_interval print_every logging_steps log_freq", "log_every"},
    Synonyms{"ep ep_size expert_parallel expert_parallel_size expert_model_parallel_size",
             "expert_ranks"},
    Synonyms{"zero zero1 zero_stage distributed_optimizer", "shard_optimizer"},
    Synonyms{"dataset data_set dataset_name", "source"},
    Synonyms{"data_dir data_root data_path dataset_path dir folder root", "path"},
    Synonyms{"num_workers n_workers", "workers"},
    Synonyms{"img_size image_resolution resolution input_size", "image_size"},
    Synonyms{"num_classes n_classes nb_classes", "classes"},
    Synonyms{"seq_len seq_length sequence_length block_size max_seq_len max_length context_length "
             "length",
             "sequence max_length context"},
    Synonyms{"transforms augmentation augmentations", "augment"},
    Synonyms{"normalize normalization normalisation", "normalise"},
    Synonyms{"val validation test", "valid"}};

constexpr std::array kValueWords{Synonyms{"gpu nvidia", "cuda"}, Synonyms{"processor host", "cpu"},
                                 Synonyms{"fp32 float f32 single", "float32"},
                                 Synonyms{"fp64 double f64", "float64"},
                                 Synonyms{"bf16", "bfloat16"}};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    words.push_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return words;
}

/// Writes a word as a key is written: in lower case, with _ for -.
std::string as_key(std::string_view word) {
  std::string key = lower_case(word);
  std::ranges::replace(key, '-', '_');
  return key;
}

bool has_word(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = words_of(words);
  return std::ranges::find(all, word) != all.end();
}

}  // namespace

std::string_view difference_of(std::string_view word, std::string_view key) {
  const std::string lower = as_key(word);
  for (const KnownDifference& line : kDifferences) {
    if (has_word(line.words, lower) && has_word(line.keys, key)) return line.text;
  }
  return "";
}

std::vector<std::string_view> keys_for_word(std::string_view word, std::string_view section) {
  const std::string lower = as_key(word);
  const bool is_in_model = section.substr(0, section.find('.')) == "model";
  if (lower == "channels" && !is_in_model) return {};  // of images, elsewhere
  std::vector<std::string_view> keys;
  for (const Synonyms& line : kKeyWords) {
    if (!has_word(line.words, lower)) continue;
    for (const std::string_view key : words_of(line.keys)) keys.push_back(key);
  }
  return keys;
}

std::string value_for_word(std::string_view word, const std::vector<std::string>& values) {
  const std::string lower = as_key(word);
  for (const Synonyms& line : kValueWords) {
    const bool is_value = std::ranges::find(values, line.keys) != values.end();
    if (is_value && has_word(line.words, lower)) return std::string(line.keys);
  }
  return "";
}

}  // namespace shoal::config
