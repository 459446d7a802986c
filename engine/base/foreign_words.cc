#include "engine/base/foreign_words.h"

#include <algorithm>
#include <span>

namespace tessera {
namespace {

struct ForeignWord {
  std::string_view foreign, ours;
};

// Several rows of one word: the first that the reader knows counts.
constexpr ForeignWord kOptions[] = {
    {"learning_rate", "lr"},
    {"min_lr", "lr_end"},
    {"min_lr_rate", "lr_end"},
    {"lr_scheduler", "schedule"},
    {"lr_scheduler_type", "schedule"},
    {"scheduler", "schedule"},
    {"warmup_steps", "warmup"},
    {"num_warmup_steps", "warmup"},
    {"max_steps", "steps"},
    {"num_steps", "steps"},
    {"iters", "steps"},
    {"iterations", "steps"},
    {"batch_size", "batch"},
    {"train_batch_size", "batch"},
    {"micro_batch_size", "batch"},
    {"per_device_train_batch_size", "batch"},
    {"n_batch", "batch"},
    {"gradient_accumulation_steps", "accumulate"},
    {"grad_accum", "accumulate"},
    {"accumulation_steps", "accumulate"},
    {"accumulate_grad_batches", "accumulate"},
    {"optim", "optimizer"},
    {"max_grad_norm", "clip_norm"},
    {"grad_clip", "clip_norm"},
    {"gradient_clipping", "clip_norm"},
    {"clip_grad_norm", "clip_norm"},
    {"max_seq_length", "seq"},
    {"max_seq_len", "seq"},
    {"seq_len", "seq"},
    {"seq_length", "seq"},
    {"sequence_len", "seq"},
    {"sequence_length", "seq"},
    {"block_size", "seq"},
    {"cutoff_len", "seq"},
    {"max_seq_len", "context"},
    {"max_model_len", "context"},
    {"num_ctx", "context"},
    {"n_ctx", "context"},
    {"ctx_size", "context"},
    {"context_length", "context"},
    {"context_length", "seq"},
    {"max_length", "seq"},
    {"max_length", "max_tokens"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"dtype", "precision"},
    {"torch_dtype", "precision"},
    {"mixed_precision", "precision"},
    {"quantization", "weights"},
    {"load_in_4bit", "weights"},
    {"load_in_8bit", "weights"},
    {"kv_cache_dtype", "cache_type"},
    {"cache_dtype", "cache_type"},
    {"device", "devices"},
    {"device_map", "devices"},
    {"gpus", "devices"},
    {"num_gpus", "devices"},
    {"tensor_parallel_size", "parallel"},
    {"pipeline_parallel_size", "parallel"},
    {"data_parallel_size", "parallel"},
    {"strategy", "parallel"},
    {"num_threads", "threads"},
    {"n_threads", "threads"},
    {"r", "rank"},
    {"lora_r", "rank"},
    {"lora_rank", "rank"},
    {"lora_alpha", "alpha"},
    {"lora_dropout", "dropout"},
    {"target_modules", "on"},
    {"lora_target_modules", "on"},
    {"lora_target", "on"},
    {"exclude_modules", "exclude"},
    {"layers_to_transform", "layers"},
    {"modules_to_save", "also"},
    {"rank_pattern", "ranks"},
    {"alpha_pattern", "alphas"},
    {"use_rslora", "rslora"},
    {"use_dora", "dora"},
    {"init_lora_weights", "init"},
    {"loss_type", "loss"},
    {"val_size", "eval_fraction"},
    {"val_set_size", "eval_fraction"},
    {"validation_split", "eval_fraction"},
    {"test_size", "eval_fraction"},
    {"eval_steps", "eval_batches"},
    {"validation_file", "eval_file"},
    {"val_file", "eval_file"},
    {"chat_template", "template"},
    {"train_on_inputs", "mask"},
    {"train_on_prompt", "mask"},
    {"assistant_only_loss", "mask"},
    {"completion_only_loss", "mask"},
    {"dataset", "files"},
    {"datasets", "files"},
    {"max_new_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"temp", "temperature"},
    {"repeat_penalty", "repetition_penalty"},
    {"typical", "typical_p"},
    {"repeat_last_n", "penalty_last"},
    {"stop_sequences", "stop"},
    {"stop_strings", "stop"},
    {"stop_words", "stop"},
    {"stop_token_ids", "stop_ids"},
    {"eos_token_id", "stop_ids"},
    {"num_return_sequences", "n"},
    {"random_seed", "seed"},
    {"top_logprobs", "logprobs"},
    {"response_format", "json_schema"},
    {"guided_json", "json_schema"},
    {"format", "json_schema"},
    {"guided_grammar", "grammar"},
    {"enable_prefix_caching", "prefix_cache"},
    {"max_num_seqs", "sequences"},
    {"max_num_batched_tokens", "step_tokens"},
    {"num_speculative_tokens", "draft_tokens"},
    {"quant_type", "type"},
    {"qtype", "type"},
    {"ftype", "type"},
    {"outtype", "type"},
    {"token_embedding_type", "embedding_type"},
    {"output_tensor_type", "output_type"},
    {"max_shard_size", "shard_bytes"},
    {"pooling_type", "pooling"},
    {"normalize_embeddings", "normalize"},
    {"tools_json", "tools"},
};

constexpr ForeignWord kValues[] = {
    {"adam", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_hf", "adamw"},
    {"adam8bit", "adamw8"},
    {"adamw8bit", "adamw8"},
    {"adamw_8bit", "adamw8"},
    {"adamw_bnb_8bit", "adamw8"},
    {"paged_adamw_8bit", "adamw8"},
    {"adamw_torch_8bit", "adamw8"},
    {"lion_8bit", "lion"},
    {"momentum", "sgd"},
    {"float32", "f32"},
    {"fp32", "f32"},
    {"float", "f32"},
    {"bfloat16", "bf16"},
    {"float16", "f16"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"int8", "q8_0"},
    {"int4", "q4_0"},
    {"8bit", "q8_0"},
    {"4bit", "nf4"},
    {"cosine_with_restarts", "cosine"},
    {"constant_with_warmup", "constant"},
    {"linear_with_warmup", "linear"},
    {"warmup_stable_decay", "wsd"},
    {"sharegpt", "messages"},
    {"chat", "messages"},
    {"conversations", "messages"},
    {"alpaca", "prompt_completion"},
    {"instruction", "prompt_completion"},
    {"completion", "text"},
    {"pretrain", "plain"},
    {"sft", "cross_entropy"},
    {"sigmoid", "dpo"},
    {"huggingface", "hf"},
    {"transformers", "hf"},
    {"safetensors", "hf"},
    {"llama.cpp", "gguf"},
    {"llamacpp", "gguf"},
    {"lora", "peft"},
    {"average", "mean"},
    {"first", "cls"},
    {"left", "keep_end"},
    {"right", "keep_start"},
    {"ffd", "bfd"},
    {"true", "on"},
    {"false", "off"},
    {"yes", "on"},
    {"no", "off"},
    {"0", "off"},
    {"1", "on"},
};

bool has(const std::vector<std::string>& known, std::string_view word) {
  return std::ranges::find(known, word) != known.end();
}

std::string found_in(std::span<const ForeignWord> words, std::string_view word,
                     const std::vector<std::string>& known) {
  for (const ForeignWord& each : words)
    if (each.foreign == word && has(known, each.ours)) return std::string(each.ours);
  return {};
}

// Words that differ in dashes, as commands write them.
std::string with_underscores(std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  std::string text(word);
  std::ranges::replace(text, '-', '_');
  return text;
}

}  // namespace

std::string option_of(std::string_view key, const std::vector<std::string>& known) {
  if (key.size() > 64) return {};
  const std::string word = with_underscores(key);
  if (has(known, word)) return word;
  return found_in(kOptions, word, known);
}

std::string value_of(std::string_view value, const std::vector<std::string>& known) {
  return found_in(kValues, value, known);
}

}  // namespace tessera
