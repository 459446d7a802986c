// The readers of files from others as libFuzzer calls them: inputs that reach new code are kept and changed further.
// TESSERA_FUZZ_READER chooses one; with TESSERA_FUZZ_SEEDS its valid files are written to that folder instead. Built and
// run by coverage.sh.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/blocks/block_layout.h"
#include "serialize/envelope.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/import/quantized_folder.h"
#include "serialize/import/safetensors.h"
#include "serialize/import/tokenizer_folder.h"
#include "serialize/importance_matrix.h"
#include "serialize/sequence_file.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/safetensors_writer.h"
#include "tests/whole_model.h"
#include "text/chat_template.h"
#include "text/tokenizer/hugging_face.h"

extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=512:allocator_may_return_null=1:detect_leaks=0";
}

namespace tessera::fuzz {
namespace {

using testing::SafetensorsWriter;
using testing::source_of;

// An accepted input is used; a status that is an internal error is a finding.
void check(const Status& status) {
  if (status.code() != StatusCode::kInternal) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::abort();
}

std::vector<std::string> models() {
  std::vector<std::string> files = block_models();
  for (const bool tied : {false, true}) files.push_back(testing::small_llama(tied).finish());
  return files;
}
void read_model(const std::string& input) { check(use_result(import_gguf(source_of(input)))); }

std::vector<std::string> configs() {
  const std::string common =
      R"("hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"intermediate_size":6,"vocab_size":5,"max_position_embeddings":16)";
  std::vector<std::string> files = {
      R"({"model_type":"gpt2","n_embd":4,"n_layer":1,"n_head":2,"vocab_size":5,"n_positions":8})"};
  for (const char* const type :
       {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
        "gemma4_text", "phi3", "smollm3", "olmo3", "granite", "seed_oss", "gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "qwen3_vl_moe_text"})
    files.push_back(
        "{\"model_type\":\"" + std::string(type) + "\"," + common +
        R"(,"num_experts_per_tok":2,"sliding_window":4,"layer_types":["sliding_attention","full_attention"],"rope_scaling":)"
        R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":8}})");
  // Recurrent layers, by type of layer and their sizes.
  const std::string delta =
      R"(,"layer_types":["linear_attention","full_attention"],"linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":4,)"
      R"("linear_value_head_dim":3,"linear_conv_kernel_dim":3,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":6,)"
      R"("shared_expert_intermediate_size":6,"rope_parameters":{"rope_theta":1e4,"partial_rotary_factor":0.5}})";
  for (const char* const type : {"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"})
    files.push_back("{\"model_type\":\"" + std::string(type) + "\"," + common + delta);
  files.push_back("{\"model_type\":\"lfm2\"," + common + R"(,"layer_types":["conv","full_attention"],"conv_L_cache":3,"block_ff_dim":6,)"
                  R"("block_auto_adjust_ff_dim":true,"block_multiple_of":4,"block_ffn_dim_multiplier":1.5})");
  const std::string states =
      R"(,"mamba_n_heads":4,"mamba_d_head":4,"mamba_n_groups":2,"mamba_d_state":3,"mamba_d_conv":3,"mamba_expand":2,)"
      R"("mamba_num_heads":4,"mamba_head_dim":4,"n_groups":2,"ssm_state_size":3,"conv_kernel":3,"time_step_limit":[0,0.5],)"
      R"("shared_intermediate_size":6,"num_local_experts":4,"n_routed_experts":4,"num_experts_per_tok":2,"moe_latent_size":4,)";
  files.push_back("{\"model_type\":\"granitemoehybrid\"," + common + states + R"("layer_types":["mamba","attention"]})");
  files.push_back("{\"model_type\":\"nemotron_h\"," + common + states + R"("hybrid_override_pattern":"ME"})");
  files.push_back("{\"model_type\":\"gemma4_text\"," + common +
                  R"(,"layer_types":["sliding_attention","full_attention"],"sliding_window":4,"head_dim":4,"global_head_dim":8,)"
                  R"("num_kv_shared_layers":0,"hidden_size_per_layer_input":4,"vocab_size_per_layer_input":5,"attention_k_eq_v":true,)"
                  R"("enable_moe_block":true,"num_experts":4,"top_k_experts":2,"moe_intermediate_size":6})");
  files.push_back(R"({"model_type":"llama","quantization_config":{"quant_method":"gptq","bits":4}})");
  files.push_back(
      R"({"model_type":"llama","quantization_config":{"quant_method":"compressed-tensors","format":"mixed-precision","ignore":["re:.*gate$"],)"
      R"("config_groups":{"group_0":{"targets":["Linear","re:.*up"],"format":"float-quantized","weights":{"num_bits":8,"type":"float",)"
      R"("strategy":"block","block_structure":[2,4]}},"group_1":{"targets":["x"],"format":"pack-quantized","weights":{"num_bits":4,)"
      R"("group_size":32,"symmetric":false}}}}})");
  files.push_back(R"({"model_type":"llama","quantization_config":{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION",)"
                  R"("exclude_modules":["lm*"],"quantized_layers":{"a":{"quant_algo":"NVFP4"},"b":{"quant_algo":"FP8"}}}})");
  return files;
}
// A graph is built where it is small.
void read_config(const std::string& input) {
  const auto json = parse_json(input, "config.json");
  if (!json.ok()) return check(json.status());
  const auto config = read_huggingface_config(*json);
  if (!config.ok()) return check(config.status());
  const auto layers = config->config.sizes.find("L");
  if (layers == config->config.sizes.end() || layers->second > 8) return;
  const auto graph = build_model(config->config);
  check(graph.ok() ? use(*graph) : graph.status());
}

std::vector<std::string> tensor_files() {
  const std::vector<float> values(24, 0.5f);
  const std::string state =
      R"({"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[2,64],"nested_blocksize":256,"nested_offset":0.5})";
  SafetensorsWriter quantised;
  quantised.tensor("x.qweight", "I32", "[4,8]", std::string(128, 'a'))
      .tensor("x.qzeros", "I32", "[1,1]", "wwww");
  quantised.tensor("x.scales", "F16", "[1,8]", std::string(16, '4'));
  return {SafetensorsWriter().f32("a", "[4,6]", values).tensor("b", "BF16", "[2]", "abcd").finish(),
          quantised.finish(),
          SafetensorsWriter()
              .tensor("w", "F8_E4M3", "[2,4]", "abcdefgh")
              .f32("w_scale_inv", "[1]", std::span(values).first(1))
              .finish(),
          SafetensorsWriter()
              .tensor("y_blocks", "U8", "[1,2,1,16]", std::string(32, 'q'))
              .tensor("y_scales", "U8", "[1,2,1]", "zz")
              .finish(),
          SafetensorsWriter()
              .tensor("z.weight", "U8", "[64,1]", std::string(64, 'z'))
              .tensor("z.weight.absmax", "U8", "[2]", "aZ")
              .f32("z.weight.nested_absmax", "[1]", std::span(values).first(1))
              .f32("z.weight.nested_quant_map", "[256]", std::vector<float>(256, 0.25f))
              .f32("z.weight.quant_map", "[16]", kNf4Values)
              .tensor("z.weight.quant_state.bitsandbytes__nf4", "U8",
                      "[" + std::to_string(state.size()) + "]", state)
              .tensor("u.weight", "I8", "[2,3]", "abcdef")
              .f32("u.SCB", "[2]", std::span(values).first(2))
              .finish()};
}
// What a quantisation makes of the tensors, read once.
void read_decoded(const FolderQuantization& quantization, ForeignFile file) {
  const auto became = decode_quantized_tensors(quantization, file);
  if (!became.ok()) return check(became.status());
  for (const auto& [name, tensor] : file.tensors)
    for (const ForeignTensor* const each : {&tensor, tensor.scaled.get()}) {
      if (each == nullptr || each->bytes > int64_t{1} << 20) continue;
      std::vector<std::byte> bytes(static_cast<size_t>(each->bytes));
      check(file.source->read_at(each->offset, bytes));
    }
}
// The tensors as they are, and what each method makes of them.
void read_tensors(const std::string& input) {
  const auto source = source_of(input);
  const auto tensors = read_safetensors(*source, 0);
  if (!tensors.ok()) return check(tensors.status());
  for (const auto method :
       {FolderQuantization::Method::kFp8, FolderQuantization::Method::kGptq, FolderQuantization::Method::kAwq,
        FolderQuantization::Method::kMxfp4, FolderQuantization::Method::kBitsandbytes}) {
    FolderQuantization quantization;
    quantization.method = method;
    if (method == FolderQuantization::Method::kFp8) quantization.block_rows = quantization.block_columns = 2;
    read_decoded(quantization, {source, *tensors});
  }
}

// Tensors of modules, and how they are quantised: the first line names it.
std::vector<std::string> module_files() {
  const std::vector<float> values(8, 0.5f);
  const std::string shape("\2\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0", 16), scale(1, '8');
  const std::string group = R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["re:x.*"],"format":)";
  SafetensorsWriter packed, nvfp4, mxfp8, modelopt;
  packed.tensor("x.weight_packed", "I32", "[2,1]", "abcdefgh").tensor("x.weight_shape", "I64", "[2]", shape);
  packed.tensor("x.weight_scale", "F16", "[2,1]", "4444").tensor("x.weight_zero_point", "I32", "[1,1]", "wwww");
  packed.tensor("x.weight_g_idx", "I32", "[8]", std::string(32, '\0')).tensor("x.input_scale", "F16", "[1]", "44");
  nvfp4.tensor("x.weight_packed", "U8", "[1,32]", std::string(32, 'n')).tensor("x.weight_scale", "F8_E4M3", "[1,4]", "8888");
  nvfp4.f32("x.weight_global_scale", "[1]", std::span(values).first(1));
  mxfp8.tensor("x.weight", "F8_E4M3", "[1,2]", "ab").tensor("x.weight_scale", "U8", "[1,1]", "z");
  modelopt.tensor("a.weight", "F8_E4M3", "[1,2]", "ab").f32("a.weight_scale", "[]", std::span(values).first(1));
  return {group + R"("pack-quantized","weights":{"num_bits":4,"symmetric":false,"group_size":32}}}})" + "\n" + packed.finish(),
          group + R"("nvfp4-pack-quantized","weights":{"num_bits":4,"type":"float","group_size":16}}}})" + "\n" + nvfp4.finish(),
          group + R"("mxfp8-quantized","weights":{"num_bits":8,"type":"float","group_size":32}}}})" + "\n" + mxfp8.finish(),
          R"({"quant_method":"modelopt","quant_algo":"FP8","exclude_modules":["b*"]})" "\n" + modelopt.finish()};
}
void read_modules(const std::string& input) {
  const size_t line = std::min(input.find('\n'), input.size());
  const auto json = parse_json(std::string_view(input).substr(0, line), "quantization_config");
  if (!json.ok()) return check(json.status());
  const auto quantization = read_folder_quantization(*json);
  if (!quantization.ok()) return check(quantization.status());
  const auto source = source_of(input.substr(std::min(line + 1, input.size())));
  const auto tensors = read_safetensors(*source, 0);
  if (!tensors.ok()) return check(tensors.status());
  read_decoded(*quantization, {source, *tensors});
}

std::vector<std::string> tokenizers() {
  const std::string bpe =
      R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"b":1,"ab":2,"<0x00>":3,"▁":4},"merges":["a b"]})";
  return {
      "{\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{\"type\":"
      "\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
      "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"b\"}]},\"pre_tokenizer\":{\"type\":"
      "\"Split\",\"pattern\":{\"Regex\":"
      "\"\\\\p{L}+|\\\\s\"},\"behavior\":\"Isolated\"},\"decoder\":{\"type\":\"ByteFallback\"}," +
          bpe + "}",
      R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁a",-1.5],["b",-2]]}})",
      R"({"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"ab":1,"##s":2}}})",
      R"({"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1}}})"};
}
void read_tokenizer(const std::string& input) {
  const auto data = hf_folder_tokenizer([&](const std::string& name) -> Result<std::optional<std::string>> {
    return name == "tokenizer.json" ? std::optional(input) : std::nullopt;
  });
  check(data.ok() ? (data->has_value() ? use(**data) : Status()) : data.status());
}

std::vector<std::string> templates() {
  return {
      "{% for m in messages %}{% if m.role == 'user' and loop.first %}<|u|>{{ m['content'] | trim }}{% else "
      "%}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}",
      "{% set ns = namespace(n=0) %}{% macro f(x, y=2) %}{{ x ~ y }}{% endmacro %}{{ f(1) }}{{ "
      "messages[::-1] | tojson(indent=2) }}"
      "{{ 'a,b'.split(',') | join('-') }}{{ raise_exception('no') if ns.n else '' }}{{ range(3) | list }}"};
}
void read_template(const std::string& input) {
  ChatRequest request;
  request.messages = Json::parse(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}])");
  request.add_generation_prompt = true;
  request.now_s = 0;
  const auto made = ChatTemplate::create(input, {{"bos_token", "<s>"}});
  check(made.ok() ? made.value()->render(request).status() : made.status());
}

// Files of each version: without windows and states, with a window, and with states.
std::vector<std::string> sequences() {
  const ScratchFolder folder;
  std::vector<std::string> files;
  for (const int kind : {1, 2, 3}) {
    SequenceHeader header{.model = 9, .root = 7, .states = {{"k_pages", DType::kF32, 2, 4}, {"v_pages", DType::kQ8_0, 2, 32, kind > 1}}};
    if (kind > 2) header.rows = {{"conv_rows", {DType::kF32, {3, 5}}}, {"scan_rows", {DType::kF64, {2, 2, 3}}}};
    header.tokens = {5, 6, 7};
    header.cached = 2;
    header.window_from = kind > 1 ? 1 : 0;
    auto file = SequenceFileWriter::create(folder / "a", header);
    check_ok(file.status());
    check_ok(file->append(std::vector<std::byte>(static_cast<size_t>(header.all_row_bytes() + header.state_bytes()))));
    check_ok(file->commit());
    files.push_back(read_file(folder / "a"));
  }
  return files;
}
// The size and the checksum are made right, so that what is behind them is reached.
void read_sequence(const std::string& input) {
  std::string bytes = input;
  if (const uint64_t size = bytes.size(); size >= 32) {
    std::memcpy(bytes.data() + 16, &size, sizeof size);
    const uint64_t hash = xxh3(std::as_bytes(std::span(bytes)).first(bytes.size() - sizeof(uint64_t)));
    std::memcpy(bytes.data() + bytes.size() - sizeof hash, &hash, sizeof hash);
  }
  auto file = SequenceFileReader::open(source_of(bytes));
  if (!file.ok()) return check(file.status());
  const SequenceHeader& header = file->header();
  std::vector<std::byte> rows(static_cast<size_t>(header.all_row_bytes() + header.state_bytes()));
  if (const Status read = file->read_rows(rows); !read.ok()) return check(read);
  check(file->check());
}

struct Reader {
  std::string_view name;
  std::vector<std::string> (*seeds)();
  void (*read)(const std::string& input);
};
constexpr Reader kReaders[] = {
    {"gguf", models, read_model},
    {"config", configs, read_config},
    {"safetensors", tensor_files, read_tensors},
    {"modules", module_files, read_modules},
    {"sequence", sequences, read_sequence},
    {"tokenizer", tokenizers, read_tokenizer},
    {"template", templates, read_template},
};

const Reader* chosen = nullptr;

int initialize() {
  const char* const name = std::getenv("TESSERA_FUZZ_READER");
  for (const Reader& reader : kReaders)
    if (name != nullptr && reader.name == name) chosen = &reader;
  if (chosen == nullptr) {
    std::fprintf(stderr, "TESSERA_FUZZ_READER is '%s'; known:", name == nullptr ? "" : name);
    for (const Reader& reader : kReaders) std::fprintf(stderr, " %s", std::string(reader.name).c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  const char* const folder = std::getenv("TESSERA_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  size_t count = 0;
  for (const std::string& seed : chosen->seeds())
    write_file(std::string(folder) + "/seed" + std::to_string(count++), seed);
  std::exit(0);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerInitialize(int*, char***) { return tessera::fuzz::initialize(); }
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::chosen->read(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
