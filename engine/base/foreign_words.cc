// Tables of words, searched in order: the first row whose option the reader knows is the answer.
#include "engine/base/foreign_words.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <span>

#include "graph/base/text.h"
#include "graph/optim/optimizer.h"

namespace tessera {
namespace {

// The readers that a row is for: options by their keys and a command's arguments; arguments alone; those of one dash and
// several letters, as llama.cpp has them; the command's own words.
enum class Of : uint8_t { kOption, kArgument, kOneDash, kCommand };

struct ForeignWord {
  Of of;
  std::string_view foreign;    // words, with a space between
  std::string_view ours;       // an option, and what is given with it; empty: none
  std::string_view note = {};  // what to know of it, or what to do instead; {lr} is an option
};

// Several rows of one word: the first whose option the reader knows counts.
constexpr ForeignWord kWords[] = {
    {Of::kOption, "epochs epoch num_epochs n_epochs max_epochs num_train_epochs", "steps N",
     "a training is counted in optimizer steps (an epoch has as many as rows / {batch})"},
    {Of::kOption, "learning_rate learning_rate_multiplier", "lr"},
    {Of::kOption, "min_lr min_lr_rate", "lr_end"},
    {Of::kOption, "optim opt", "optimizer"},
    {Of::kOption, "lr_scheduler lr_scheduler_type scheduler", "schedule"},
    {Of::kOption, "warmup_steps warmup_ratio num_warmup_steps", "warmup"},
    {Of::kOption, "max_steps num_steps n_steps iters iterations", "steps"},
    {Of::kOption, "batch_size train_batch_size micro_batch_size per_device_train_batch_size b n_batch",
     "batch"},
    {Of::kOption,
     "gradient_accumulation_steps gradient_accumulation grad_accum accumulation_steps "
     "accumulate_grad_batches",
     "accumulate"},
    {Of::kOption, "max_grad_norm grad_clip gradient_clipping clip_grad_norm", "clip_norm"},
    {Of::kOption,
     "max_seq_length max_seq_len seq_len seq_length sequence_len sequence_length block_size cutoff_len "
     "max_length window",
     "seq"},
    {Of::kOption, "max_length max_new_tokens max_completion_tokens n_predict num_predict length",
     "max_tokens"},
    {Of::kOption, "context_length ctx ctx_size num_ctx n_ctx c max_model_len max_seq_len", "context"},
    {Of::kOption, "context_length c", "seq"},
    {Of::kOption, "dataset dataset_path dataset_name data_path train_data train_file train file", "data"},
    {Of::kOption, "val_file val_data validation_file eval_data", "eval_file"},
    {Of::kOption, "test_size val_size val_split val_set_size validation_split", "eval_fraction"},
    {Of::kOption, "eval_steps eval_interval", "eval_every"},
    {Of::kOption, "save_interval", "checkpoint_every"},
    {Of::kOption, "save_total_limit", "keep"},
    {Of::kOption, "early_stopping_patience", "patience"},
    {Of::kOption, "logging_dir", "tensorboard"},
    {Of::kOption, "report_to wandb", "",
     "the files of a run's log are {metrics}, {tensorboard} and {report}"},
    {Of::kOption, "log_file", "metrics"},
    {Of::kOption, "resume_from_checkpoint resume_from", "resume"},
    {Of::kOption, "overwrite_output_dir force", "overwrite"},
    {Of::kOption, "f input input_file text_file", "file"},
    {Of::kOption, "f input", "data"},
    {Of::kOption, "f prompt_file", "prompt - < FILE"},
    {Of::kOption, "file input_file prompts_file", "prompts"},
    {Of::kOption, "input p message text", "prompt"},
    {Of::kOption, "output output_dir output_file outfile save_path save_dir o", "out"},
    {Of::kArgument, "model model_name model_path model_name_or_path base_model m", "",
     "the model is the first word, without an option"},
    {Of::kOption, "tokenizer_path", "tokenizer"},
    {Of::kOption, "p prompt", "message"},
    {Of::kOption, "p", "text"},
    {Of::kOption, "text", "file"},
    {Of::kOption, "text", "message"},
    {Of::kOption, "sys system_prompt", "system"},
    {Of::kArgument, "i interactive cnv conversation instruct", "", "`tessera chat MODEL`"},
    {Of::kArgument,
     "repeat_penalty repetition_penalty frequency_penalty presence_penalty min_p typical typical_p top_a "
     "mirostat xtc_probability dry_multiplier logit_bias samplers",
     "",
     "of the sampling there are --temp, --top-k and --top-p; more settings, such as min_p and "
     "repetition_penalty, are options of the lines of `tessera generate --prompts` and of the library's "
     "engine"},
    {Of::kArgument, "num_beams", "",
     "texts are sampled; of several the best: n and best_of of the lines of `tessera generate --prompts`"},
    {Of::kOption, "do_sample greedy", "temperature 0",
     "always the likeliest token; above 0 they are sampled"},
    {Of::kOption, "stop_sequence stop_sequences stop_words reverse_prompt r stop_strings", "stop"},
    {Of::kOption, "r lora_r lora_rank rank use_peft use_lora", "lora"},
    {Of::kOption, "s random_seed", "seed"},
    {Of::kOption, "t num_threads n_threads", "threads"},
    {Of::kOption, "lora lora_scaled lora_path lora_modules adapter_path adapter_name_or_path peft peft_model",
     "adapter"},
    {Of::kOption, "alpha", "lora_alpha"},
    {Of::kOption, "target_modules lora_target lora_target_modules", "lora_on"},
    {Of::kOption, "exclude_modules", "lora_exclude"},
    {Of::kOption, "modules_to_save", "lora_also"},
    {Of::kOption, "layers_to_transform", "lora_layers"},
    {Of::kOption, "use_rslora", "rslora"},
    {Of::kOption, "use_dora", "dora"},
    {Of::kOption, "load_in_4bit qlora", "method qlora:nf4"},
    {Of::kOption, "load_in_4bit", "weights nf4"},
    {Of::kOption, "load_in_8bit", "method qlora:q8_0"},
    {Of::kOption, "load_in_8bit", "weights q8_0"},
    {Of::kOption, "quantization quantize", "weights"},
    {Of::kOption, "quantize qtype quant quant_type outtype ftype", "type"},
    {Of::kOption, "token_embedding_type", "embedding_type"},
    {Of::kOption, "output_tensor_type", "output_type"},
    {Of::kOption, "max_shard_size", "shard_bytes"},
    {Of::kOption, "bf16", "precision bf16"},
    {Of::kOption, "fp16", "precision f16"},
    {Of::kOption, "fp8", "precision fp8"},
    {Of::kOption, "tf32", "precision tf32"},
    {Of::kOption, "dtype torch_dtype mixed_precision", "precision"},
    {Of::kOption, "gpu gpus cuda", "devices cuda"},
    {Of::kOption, "num_gpus n_gpus", "devices cuda:0,1"},
    {Of::kOption, "device device_map", "devices"},
    {Of::kOption, "cpu", "devices cpu"},
    {Of::kOption, "ngl gpu_layers n_gpu_layers num_gpu", "devices cuda",
     "what fits is decided by the planner"},
    {Of::kOption, "split_mode tensor_split strategy", "parallel"},
    {Of::kOption, "tensor_parallel_size tp tp_size", "parallel tp=N"},
    {Of::kOption, "pipeline_parallel_size pp", "parallel pp=N"},
    {Of::kOption, "data_parallel_size dp", "parallel dp=N"},
    {Of::kOption, "fsdp", "parallel zero=3"},
    {Of::kOption, "deepspeed", "parallel zero=1", "or 2, or 3"},
    {Of::kOption, "zero_stage", "parallel zero=N"},
    {Of::kOption, "gpu_memory_utilization max_memory", "memory_limit"},
    {Of::kOption, "gradient_checkpointing use_gradient_checkpointing", "",
     "nothing: what is recomputed is the plan's choice, so that {memory_limit} holds"},
    {Of::kOption, "cpu_offload", "",
     "nothing: what is offloaded is the plan's choice, so that {memory_limit} holds ({host_memory_limit})"},
    {Of::kOption, "flash_attn fa flash_attention", "", "nothing: attention never holds the matrix of scores"},
    {Of::kOption, "no_mmap mlock", "",
     "nothing: .tsr and GGUF files are mapped, and read where a type has to be converted"},
    {Of::kOption, "jinja", "", "nothing: the model's template is always used ({template}, {template_name})"},
    {Of::kOption, "context_shift no_context_shift", "",
     "nothing: no cached token is moved or dropped, a text ends where {context} is full"},
    {Of::kOption, "trust_remote_code", "", "nothing: no code of a model is run"},
    {Of::kOption, "max_num_seqs parallel_requests np", "sequences"},
    {Of::kOption, "packing_strategy", "packing"},
    {Of::kOption, "sample_packing pack", "packing bfd"},
    {Of::kOption, "dataset_text_field", "kind text"},
    {Of::kOption, "dataset_format dataset_type", "kind"},
    {Of::kOption, "chat_template", "template"},
    {Of::kOption, "train_on_inputs train_on_prompt", "mask all"},
    {Of::kOption, "mask_prompt completion_only_loss", "mask completion"},
    {Of::kOption, "assistant_only_loss", "mask assistant"},
    {Of::kOption, "loss_type rl", "loss"},
    {Of::kOption, "dpo", "loss dpo"},
    {Of::kOption, "kto", "loss kto"},
    {Of::kOption, "pref_beta dpo_beta", "beta"},
    {Of::kOption, "ref_model ref", "reference"},
    {Of::kOption, "merge_lora save_merged", "merge"},
    {Of::kOption, "stride_length ppl_stride", "stride"},
    {Of::kOption, "pooling_type", "pooling"},
    {Of::kOption, "normalize_embeddings", "normalize"},
    {Of::kOption, "verbose v timings", "stats"},
    {Of::kOption, "silent s", "quiet"},
    {Of::kArgument, "format", "json"},
    {Of::kOption, "output_format json_output", "json"},
    {Of::kOption, "json_schema_file guided_json response_format format", "json_schema"},
    {Of::kOption, "grammar_file guided_grammar", "grammar"},
    {Of::kOption, "draft md speculative_model", "draft_model"},
    {Of::kArgument, "port host", "", "`tessera serve MODEL` serves over HTTP, at --host and --port"},
    {Of::kOption, "kv_cache_dtype cache_dtype", "cache_type"},
    {Of::kOption, "r lora_r lora_rank", "rank"},
    {Of::kOption, "lora_alpha", "alpha"},
    {Of::kOption, "lora_dropout", "dropout"},
    {Of::kOption, "target_modules lora_target_modules lora_target", "on"},
    {Of::kOption, "exclude_modules", "exclude"},
    {Of::kOption, "layers_to_transform", "layers"},
    {Of::kOption, "modules_to_save", "also"},
    {Of::kOption, "rank_pattern", "ranks"},
    {Of::kOption, "alpha_pattern", "alphas"},
    {Of::kOption, "init_lora_weights", "init"},
    {Of::kOption, "eval_steps", "eval_batches"},
    {Of::kOption, "dataset datasets", "files"},
    {Of::kOption, "min_new_tokens", "min_tokens"},
    {Of::kOption, "temp", "temperature"},
    {Of::kOption, "repeat_penalty", "repetition_penalty"},
    {Of::kOption, "typical", "typical_p"},
    {Of::kOption, "repeat_last_n", "penalty_last"},
    {Of::kOption, "stop_token_ids eos_token_id", "stop_ids"},
    {Of::kOption, "num_return_sequences", "n"},
    {Of::kOption, "top_logprobs", "logprobs"},
    {Of::kOption, "enable_prefix_caching", "prefix_cache"},
    {Of::kOption, "max_num_batched_tokens", "step_tokens"},
    {Of::kOption, "num_speculative_tokens", "draft_tokens"},
    {Of::kOption, "tools_json", "tools"},
    {Of::kOneDash, "bs", "", "nothing: words are drawn one by one on the host"},
    {Of::kOneDash, "bf", "prompt - < FILE"},
    {Of::kOneDash, "cb nocb", "", "nothing: requests always join the batch that runs"},
    {Of::kOneDash, "cmoe kvo ncmoe nkvo ot otd", "",
     "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {Of::kOneDash, "cnv", "", "`tessera chat MODEL`"},
    {Of::kOneDash, "co", "", "nothing: output has no colours"},
    {Of::kOneDash, "cram", "cache_tokens"},
    {Of::kOneDash, "ctk ctv ctkd ctvd", "cache_type", "of keys and values"},
    {Of::kOneDash, "dev devd mg", "devices"},
    {Of::kOneDash, "dio", "", "nothing: .tsr and GGUF files are mapped"},
    {Of::kOneDash, "dt", "", "nothing: pages of the cache do not fragment"},
    {Of::kOneDash, "fa", "", "nothing: attention never holds the matrix of scores"},
    {Of::kOneDash, "fit", "", "nothing: the plan always fits --memory-limit"},
    {Of::kOneDash, "fitc", "context"},
    {Of::kOneDash, "fitt", "memory_limit"},
    {Of::kOneDash, "hf hfd hff hfr hft hfv mu", "",
     "nothing is downloaded: give the path of a file or folder"},
    {Of::kOneDash, "jf", "json_schema FILE"},
    {Of::kOneDash, "kvu", "", "nothing: sequences share one pool of pages"},
    {Of::kOneDash, "lcd lcs", "speculation"},
    {Of::kOneDash, "lv", "quiet", "or --stats"},
    {Of::kOneDash, "md", "draft_model"},
    {Of::kOneDash, "mli", "", "`tessera chat MODEL` reads lines; --prompt - reads a text of several"},
    {Of::kOneDash, "mm mmu", "", "models of pictures and sound are not read"},
    {Of::kOneDash, "ngld", "",
     "llama.cpp's -ngld: devices are given by --devices cuda, what fits is decided by the planner"},
    {Of::kOneDash, "no_cnv", "", "`tessera generate MODEL --prompt TEXT`"},
    {Of::kOneDash, "nopo", "", "nothing: ops are placed by the plan"},
    {Of::kOneDash, "np ns", "sequences"},
    {Of::kOneDash, "nr", "", "nothing: weights are laid out as the kernels read them"},
    {Of::kOneDash, "ps", "", "nothing: speculation weighs its drafts itself"},
    {Of::kOneDash, "ptc", "", "nothing: nothing is printed in between"},
    {Of::kOneDash, "sm ts", "parallel"},
    {Of::kOneDash, "sp", "special"},
    {Of::kOneDash, "st", "", "`tessera chat MODEL --message TEXT`"},
    {Of::kOneDash, "sys", "system"},
    {Of::kOneDash, "sysf", "system \"$(cat FILE)\""},
    {Of::kOneDash, "tb tbd td", "threads"},
    {Of::kOneDash, "to", "", "nothing: no command serves over a network"},
    {Of::kOneDash, "ub", "", "nothing: how many tokens a step takes is the plan's choice"},
    {Of::kCommand, "server api start launch deploy llama_server", "", "`tessera serve MODEL`"},
    {Of::kCommand, "run", "", "`tessera chat MODEL`, or `tessera generate MODEL --prompt TEXT`"},
    {Of::kCommand, "cli llama_cli interactive repl talk", "", "`tessera chat MODEL`"},
    {Of::kCommand, "ask", "", "`tessera chat MODEL --message TEXT`"},
    {Of::kCommand, "infer inference predict complete completion sample", "",
     "`tessera generate MODEL --prompt TEXT`"},
    {Of::kCommand, "batch run_batch", "", "`tessera generate MODEL --prompts FILE`"},
    {Of::kCommand, "finetune fine_tune tune ft sft fit pretrain lora", "",
     "`tessera train MODEL --data FILE --out OUT`, with adapters --lora RANK"},
    {Of::kCommand, "qlora", "", "`tessera train MODEL --data FILE --method qlora:nf4 --lora RANK --out OUT`"},
    {Of::kCommand, "dpo", "", "`tessera train MODEL --data PAIRS --loss dpo --out OUT`"},
    {Of::kCommand, "kto", "", "`tessera train MODEL --data FILE --loss kto --out OUT`"},
    {Of::kCommand, "orpo", "", "`tessera train MODEL --data PAIRS --loss orpo --out OUT`"},
    {Of::kCommand, "convert", "",
     "`tessera import FILE -o MODEL.tsr`, or `tessera export MODEL -o FOLDER` (or NAME.gguf)"},
    {Of::kCommand, "convert_hf_to_gguf", "", "`tessera export FOLDER -o NAME.gguf`"},
    {Of::kCommand, "save", "", "`tessera export MODEL -o FOLDER` (or NAME.gguf)"},
    {Of::kCommand, "load", "", "`tessera import FILE -o MODEL.tsr`; other commands open files directly"},
    {Of::kCommand, "quant quantise llama_quantize compress", "",
     "`tessera quantize MODEL OUT --type q4_k_m`"},
    {Of::kCommand, "perplexity ppl llama_perplexity", "", "`tessera score MODEL --file TEXT`"},
    {Of::kCommand, "evaluate", "",
     "`tessera eval MODEL --data FILE`, or `tessera score MODEL --file TEXT` for perplexity"},
    {Of::kCommand, "test validate", "", "`tessera eval MODEL --data FILE`"},
    {Of::kCommand, "benchmark llama_bench", "", "`tessera bench`"},
    {Of::kCommand, "embedding embeddings", "", "`tessera embed MODEL --text TEXT`"},
    {Of::kCommand, "encode", "",
     "`tessera embed MODEL --text TEXT` for vectors, `tessera tokenize MODEL TEXT` for token ids"},
    {Of::kCommand, "rerank", "", "`tessera classify MODEL --file PAIRS --pairs`"},
    {Of::kCommand, "tokens", "", "`tessera tokenize MODEL TEXT`"},
    {Of::kCommand, "detokenize decode", "", "`tessera tokenize MODEL --decode IDS`"},
    {Of::kCommand, "show info describe dump", "", "`tessera inspect MODEL`"},
    {Of::kCommand, "fuse merge_lora", "", "`tessera merge MODEL --adapter FOLDER -o OUT`"},
    {Of::kCommand, "export_lora", "", "`tessera export MODEL --format gguf --adapters -o NAME.gguf`"},
    {Of::kCommand, "preprocess dataset", "", "`tessera data FILE --model MODEL`"},
    {Of::kCommand, "gpus list_devices", "", "`tessera devices`"},
    {Of::kCommand, "init", "", "`tessera new DESCRIPTION -o MODEL.tsr`"},
    {Of::kCommand, "pull download push list ls ps rm cp", "",
     "models are files that you name by their path; nothing is downloaded or listed"},
    {Of::kCommand, "create", "",
     "`tessera new DESCRIPTION -o MODEL.tsr` makes one with random weights; `tessera import FILE -o "
     "MODEL.tsr` converts one"},
    {Of::kCommand, "version", "", "`tessera --version`"},
    {Of::kCommand, "help", "", "`tessera --help`, and `tessera COMMAND --help`"},
};

struct ForeignValue {
  std::string_view foreign, ours;
};

constexpr ForeignValue kValues[] = {
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

bool has_word(std::string_view words, std::string_view word) {
  return std::ranges::any_of(words | std::views::split(' '), [&](const auto& each) {
    return std::string_view(each.begin(), each.end()) == word;
  });
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// Normalizes dashes to underscores.
std::string with_underscores(std::string_view word) {
  std::string text(without_dashes(word));
  std::ranges::replace(text, '-', '_');
  return text;
}

bool is_argument(std::string_view word) { return word.starts_with('-'); }

// As a reader writes the option `key`.
std::string spelled(std::string_view key, bool as_arguments) {
  if (!as_arguments) return std::string(key);
  std::string text = "--" + std::string(key);
  std::ranges::replace(text, '_', '-');
  return text;
}

// The option of `known` with this key, as it is written there; null: none.
const std::string* find_known(std::string_view key, const std::vector<std::string>& known) {
  const auto found =
      std::ranges::find_if(known, [&](const std::string& it) { return with_underscores(it) == key; });
  return found == known.end() ? nullptr : &*found;
}

// A note with its options as a reader writes them.
std::string note_text(std::string_view note, bool as_arguments) {
  std::string text;
  for (size_t at = 0; at < note.size();) {
    const size_t begin = std::min(note.find('{', at), note.size()), end = note.find('}', begin);
    text += note.substr(at, begin - at);
    if (begin == note.size()) break;
    const std::string_view key = note.substr(begin + 1, end - begin - 1);
    text += as_arguments ? spelled(key, true) : format("'{}'", key);
    at = end + 1;
  }
  return text;
}

// Meaning: an option of the reader's, with what is given with it (" cuda"), or what there is in place of one.
struct Meaning {
  std::string known, value, note;
  std::string absent;  // an option that the reader has not
};

bool is_for(const ForeignWord& row, std::string_view word, bool as_arguments) {
  switch (row.of) {
    case Of::kOption: return true;
    case Of::kArgument: return as_arguments;
    case Of::kOneDash: return as_arguments && word.starts_with('-') && !word.starts_with("--");
    case Of::kCommand: return false;
  }
  return false;
}

std::optional<Meaning> find_meaning(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > 64) return std::nullopt;
  const std::string name = with_underscores(word);
  const bool as_arguments = std::ranges::any_of(known, is_argument);
  if (const std::string* same = find_known(name, known); same != nullptr && *same != word && name.size() > 1)
    return Meaning{*same, {}, {}, {}};
  for (const ForeignWord& row : kWords) {
    if (!is_for(row, word, as_arguments) || !has_word(row.foreign, name)) continue;
    const std::string note = note_text(row.note, as_arguments);
    const size_t end = std::min(row.ours.find(' '), row.ours.size());
    const std::string_view key = row.ours.substr(0, end), value = row.ours.substr(end);
    if (key.empty()) return Meaning{{}, {}, note, {}};
    if (const std::string* ours = find_known(key, known)) return Meaning{*ours, std::string(value), note, {}};
    if (row.of == Of::kOneDash)
      return Meaning{{}, {}, {}, spelled(key, true) + std::string(value) + (note.empty() ? "" : ", " + note)};
  }
  return std::nullopt;
}

// A letter more or less makes other options of those with one dash.
std::string misspelt_hint(std::string_view word, const std::vector<std::string>& known) {
  if (is_argument(word) && !word.starts_with("--")) return {};
  std::vector<std::string> names;
  for (const std::string& it : known) names.emplace_back(without_dashes(it));
  const std::vector<std::string> near = nearest_names(without_dashes(word), names);
  if (near.empty()) return {};
  const std::string& found =
      known[static_cast<size_t>(std::ranges::find(names, near.front()) - names.begin())];
  return is_argument(found) ? format("did you mean {}?", found) : format("did you mean '{}'?", found);
}

}  // namespace

std::string unknown_option_hint(std::string_view key, const std::vector<std::string>& known) {
  const std::optional<Meaning> meaning = find_meaning(key, known);
  if (!meaning) return {};
  if (meaning->known.empty()) return "instead: " + meaning->note;
  const std::string given = meaning->value.empty() ? "" : ", with" + meaning->value;
  return format("it is '{}' here{}{}", meaning->known, given,
                meaning->note.empty() ? "" : ": " + meaning->note);
}

std::string option_hint(std::string_view word, const std::vector<std::string>& known) {
  const std::optional<Meaning> meaning = find_meaning(word, known);
  if (!meaning) return misspelt_hint(word, known);
  if (!meaning->absent.empty())
    return format("this command has nothing like it (other commands have {})", meaning->absent);
  if (meaning->known.empty()) return "instead: " + meaning->note;
  const std::string ours = meaning->known + meaning->value;
  return format("did you mean {}?{}", is_argument(ours) ? ours : format("'{}'", ours),
                meaning->note.empty() ? "" : format(" ({})", meaning->note));
}

namespace {

std::string command_hint(std::string_view word, const std::vector<std::string>& known) {
  const std::string name = with_underscores(word);
  for (const ForeignWord& row : kWords)
    if (row.of == Of::kCommand && has_word(row.foreign, name)) return format("instead: {}", row.note);
  const std::vector<std::string> near = nearest_names(word, known);
  return near.empty() ? "" : format("did you mean {}?", near.front());
}

}  // namespace

Result<std::string> word_hint(std::string_view kind, std::string_view word, std::string_view known) {
  std::vector<std::string> words = split(known, ' ');
  std::erase(words, "");
  if (kind == "option") return option_hint(word, words);
  if (kind == "command") return command_hint(word, words);
  return Status(StatusCode::kInvalidArgument, format("kind is '{}', wanted option or command", kind));
}

std::string value_of(std::string_view value, const std::vector<std::string>& known) {
  for (const OptimizerDef* optimizer : all_optimizers())
    if (std::ranges::find(optimizer->foreign_names, value) != optimizer->foreign_names.end() &&
        std::ranges::find(known, optimizer->name) != known.end())
      return std::string(optimizer->name);
  for (const ForeignValue& each : kValues)
    if (each.foreign == value && std::ranges::find(known, each.ours) != known.end())
      return std::string(each.ours);
  return {};
}

}  // namespace tessera
