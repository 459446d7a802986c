#include "serialize/import/huggingface_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "serialize/class_head.h"
#include "serialize/generation_config.h"
#include "serialize/import/dense_modules.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/import/huggingface_encoder_config.h"
#include "serialize/import/huggingface_encoder_tensors.h"
#include "serialize/import/huggingface_tensor_names.h"
#include "serialize/import/huggingface_weights.h"
#include "serialize/import/mxfp4_weights.h"
#include "serialize/import/sentence_modules.h"
#include "serialize/import/tokenizer_folder.h"
#include "serialize/plain_file.h"
#include "text/python_json.h"
#include "text/tokenizer/hugging_face.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json", kModeloptConfig = "hf_quant_config.json";
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

bool exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<std::string> read_text(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostConfigBytes)
    return corrupt(format("{} has {} bytes, wanted at most {}", path, file->size(), kMostConfigBytes));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Chat templates as metadata: "chat_template", and "chat_template.NAME" for further ones.
Status read_chat_templates(const std::string& folder, Model& model) {
  const std::string key = "chat_template", file = path_in_folder(folder, "chat_template.jinja");
  const std::string config_path = path_in_folder(folder, "tokenizer_config.json");
  if (exists(config_path)) {
    TSR_ASSIGN_OR_RETURN(const std::string text, read_text(config_path));
    TSR_ASSIGN_OR_RETURN(const Json config, parse_python_json(text, config_path));
    const auto given = config.is_object() ? config.find(key) : config.end();
    if (given != config.end() && given->is_string()) model.metadata[key] = given->get<std::string>();
    if (given != config.end() && given->is_array())
      for (const Json& item : *given) {
        if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
            !item.contains("template") || !item["template"].is_string())
          return corrupt(
              format("{}: {} has {}, wanted a name and a template", config_path, key, quote_json(item)));
        const auto name = item["name"].get<std::string>();
        model.metadata[name == "default" ? key : key + "." + name] = item["template"].get<std::string>();
      }
  }
  if (exists(file)) {
    TSR_ASSIGN_OR_RETURN(model.metadata[key], read_text(file));
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_in_folder(folder, "additional_chat_templates"), error))
    if (entry.path().extension() == ".jinja") {
      TSR_ASSIGN_OR_RETURN(model.metadata[key + "." + entry.path().stem().string()],
                           read_text(entry.path().string()));
    }
  return {};
}

// Stores the folder's generation config unchanged.
Status read_generation_config(const std::string& folder, Model& model) {
  const std::string file = path_in_folder(folder, "generation_config.json");
  if (!exists(file)) return {};
  TSR_ASSIGN_OR_RETURN(model.metadata[std::string(kGenerationConfigKey)], read_text(file));
  return {};
}

// Reads hf_quant_config.json, if the folder has one.
Status read_modelopt_file(const std::string& folder, HuggingfaceConfig& config) {
  const std::string path = path_in_folder(folder, kModeloptConfig);
  if (!exists(path)) return {};
  TSR_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  TSR_ASSIGN_OR_RETURN(const Json json, parse_python_json(text, kModeloptConfig));
  return tessera::read_modelopt_file(json, config.quantization);
}

// Buffers of old versions: masks and frequencies derived from the configuration.
bool is_derived(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// Files on hubs stack the experts that transformers saves one by one.
constexpr NameRule kStackedExpertNames[] = {
    {"block.#.experts.gate", "model.layers.#.mlp.experts.gate_up_proj"},
    {"block.#.experts.up", "model.layers.#.mlp.experts.gate_up_proj"},
    {"block.#.experts.down", "model.layers.#.mlp.experts.down_proj"},
};
// Qwen3-VL's are transposed, too: [E, C, 2F] and [E, F, C].
constexpr NameRule kTransposedExpertNames[] = {
    {"block.#.experts.gate", "model.layers.#.mlp.experts.gate_up_proj", ValueChange::kTransposed},
    {"block.#.experts.up", "model.layers.#.mlp.experts.gate_up_proj", ValueChange::kTransposed},
    {"block.#.experts.down", "model.layers.#.mlp.experts.down_proj", ValueChange::kTransposed},
};
// The draft block's may be in the other form.
constexpr NameRule kStackedDraftNames[] = {
    {"draft.experts.gate", "mtp.layers.0.mlp.experts.gate_up_proj"},
    {"draft.experts.up", "mtp.layers.0.mlp.experts.gate_up_proj"},
    {"draft.experts.down", "mtp.layers.0.mlp.experts.down_proj"},
};
constexpr NameRule kSeparateDraftNames[] = {
    {"draft.experts.gate", "mtp.layers.0.mlp.experts.@.gate_proj.weight"},
    {"draft.experts.up", "mtp.layers.0.mlp.experts.@.up_proj.weight"},
    {"draft.experts.down", "mtp.layers.0.mlp.experts.@.down_proj.weight"},
};

// The family's names, with those of stacked experts, if the file has them. `channels`: the rows of a transposed stack.
ForeignNames names_of_experts(const ForeignNames& names, const ForeignTensors& tensors, int64_t channels) {
  const std::optional<ForeignName> gate = names.find("block.0.experts.gate");
  if (!gate || gate->tensor.find('@') == std::string::npos) return names;
  const auto is_stack = [](const auto& each) {
    return each.first.starts_with("model.") && each.first.ends_with(".mlp.experts.gate_up_proj");
  };
  const auto stack = std::ranges::find_if(tensors, is_stack);
  const bool are_stacked = stack != tensors.end(), are_drafts_stacked = tensors.contains(kStackedDraftNames[0].theirs);
  ForeignNames found = names;
  if (are_stacked) {
    const Shape& shape = stack->second.shape;
    const bool is_transposed = shape.rank() == 3 && shape[1] == channels && shape[2] != channels;
    found = is_transposed ? names.preceded_by(kTransposedExpertNames) : names.preceded_by(kStackedExpertNames);
  }
  if (are_stacked == are_drafts_stacked) return found;
  return found.preceded_by(are_drafts_stacked ? std::span(kStackedDraftNames) : std::span(kSeparateDraftNames));
}

// Buffers, and tensors that the class leaves out: parts that read images, blocks that predict further tokens.
void skip_ignored(HuggingfaceConfig& config, const ForeignFile& file, ForeignPlaces& places) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, tensor] : file.tensors) {
    const auto begins = [&name = name](const std::string& beginning) { return name.starts_with(beginning); };
    const auto found = std::ranges::find_if(config.ignored, begins);
    if (found != config.ignored.end()) ++counts[*found];
    if (found != config.ignored.end() || is_derived(name)) places.used.insert(name);
  }
  for (const auto& [beginning, count] : counts)
    config.used.emplace_back(beginning + "*", format("left out: {} {}", count, count == 1 ? "tensor" : "tensors"));
}

ForeignTensors joined(ForeignTensors tensors, const ForeignTensors& further) {
  tensors.insert(further.begin(), further.end());
  return tensors;
}

// Keys and values of layers that read those of earlier ones.
void skip_shared_keys(HuggingfaceConfig& config, const ForeignFile& file, ForeignPlaces& places) {
  const ModelConfig& model = config.config;
  const auto shared = model.sizes.find("shared_kv");
  if (shared == model.sizes.end()) return;
  const int64_t L = model.sizes.at("L");
  for (int64_t i = std::max<int64_t>(0, L - shared->second); i < L; ++i)
    for (const char* const leaf : {"k_proj", "v_proj", "k_norm"})
      for (const char* const what : {"weight", "bias"}) {
        const std::string name = format("model.layers.{}.self_attn.{}.{}", i, leaf, what);
        if (!file.tensors.contains(name)) continue;
        places.used.insert(name);
        config.used.emplace_back(name, "left out: the layer reads keys and values of an earlier one");
      }
}

}  // namespace

Result<OpenedModel> open_huggingface(const std::shared_ptr<const ByteSource>& source) {
  if (source->paths().size() != 1)
    return Status(
        StatusCode::kUnsupported,
        "a safetensors file in memory is no model: config.json is missing; open its folder by path");
  const fs::path opened_path(source->paths()[0]);
  const std::string folder = opened_path.parent_path().string();
  const std::string config_path = path_in_folder(folder, kConfig);
  TSR_RETURN_IF_ERROR(check_side_files(folder.empty() ? "." : folder));
  if (!exists(config_path))
    return Status(StatusCode::kNotFound,
                  format("{} is missing: safetensors hold weights alone, and the model is described there",
                         config_path));
  TSR_ASSIGN_OR_RETURN(const std::string text, read_text(config_path));
  TSR_ASSIGN_OR_RETURN(const Json json, parse_python_json(text, kConfig));
  TSR_ASSIGN_OR_RETURN(HuggingfaceConfig config, read_huggingface_config(json));
  TSR_RETURN_IF_ERROR(read_modelopt_file(folder, config));

  const std::string opened_name = opened_path.filename().string();
  if (const auto wanted = json.find("transformers_weights");
      wanted != json.end() && !wanted->is_null() && *wanted != opened_name)
    return Status(StatusCode::kUnsupported,
                  format("config.json: transformers_weights is {}, and '{}' was opened; give the path of the file that "
                         "it names",
                         quote_json(*wanted, 80), opened_name));
  TSR_ASSIGN_OR_RETURN(const WeightFiles files, find_weight_files(folder, opened_name));
  TSR_ASSIGN_OR_RETURN(ForeignFile file, read_weight_files(folder, files));
  OpenedModel opened;
  Model& model = opened.model;
  const int64_t channels = config.config.sizes["C"];
  TSR_ASSIGN_OR_RETURN(const std::vector<DenseModule> dense,
                       read_sentence_modules(folder.empty() ? std::string(".") : folder, channels, model.metadata));
  TSR_RETURN_IF_ERROR(add_dense_sizes(dense, config.config));
  TSR_ASSIGN_OR_RETURN(const ForeignTensors dense_tensors, join_dense_files(dense, channels, file));
  const std::vector<StoredTensors> stored = stored_tensors(joined(file.tensors, dense_tensors));
  if (config.quantization) {  // its patterns are of the file's own names
    if (config.quantization->method == FolderQuantization::Method::kBitsandbytes &&
        config.config.family == "gpt2")
      return Status(
          StatusCode::kUnsupported,
          "quantization_config: bitsandbytes stores gpt2's matrices turned; save the model dequantised");
    TSR_ASSIGN_OR_RETURN(std::string became, decode_quantized_tensors(*config.quantization, file));
    config.used.emplace_back("quantization_config", std::move(became));
  }
  if (is_huggingface_encoder(config.model_type))
    rename_encoder_tensors(file.tensors, config.model_type);
  else
    rename_decoder_tensors(file.tensors, config);

  const ModelFamily* const family = find_model_family(config.config.family);
  TSR_CHECK(family != nullptr, "a configuration is of a family");
  const bool is_mxfp4 =
      config.quantization && config.quantization->method == FolderQuantization::Method::kMxfp4;
  ForeignNames own_names = with_draft_layer(family->huggingface, config.config);
  if (!dense.empty()) own_names = own_names.preceded_by(kDenseModuleNames);
  const ForeignNames names = is_mxfp4 ? own_names.preceded_by(kMxfp4ExpertNames) : names_of_experts(own_names, file.tensors, channels);
  ForeignPlaces places{
      .names = names, .format = "Hugging Face", .computed = {}, .used = {}, .product_scales = {}};
  skip_shared_keys(config, file, places);
  if (family->encoder != nullptr) {
    TSR_RETURN_IF_ERROR(place_encoder_tensors(file, config, places));
  } else {
    TSR_RETURN_IF_ERROR(choose_head(file, names, config, places));
    read_draft_block(file, names, config);
  }
  skip_ignored(config, file, places);
  file.tensors = joined(std::move(file.tensors), dense_tensors);
  add_absent_biases(dense, places);
  if (const auto heads = config.config.sizes.find("GS"); heads != config.config.sizes.end()) places.key_heads = heads->second;
  if (config.scaling) {
    places.computed.emplace("rope_factors", source_in_memory("rope_factors", config.scaling->values()));
    if (!config.scaling->words.empty()) model.metadata["rope_scaling"] = config.scaling->words;
  }

  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config.config));
  model.metadata["architecture"] = config.config.family;
  model.metadata["context_length"] = to_text(config.config.sizes["T"]);
  model.metadata["description"] = to_text(config.config);
  model.metadata["source_format"] = "huggingface";
  model.metadata["name"] = fs::path(folder.empty() ? "." : folder).lexically_normal().filename().string();
  if (!config.labels.empty()) model.metadata[std::string(kLabelsKey)] = dump(Json(config.labels));
  if (!config.problem_type.empty()) model.metadata[std::string(kProblemTypeKey)] = config.problem_type;
  if (config.padding) model.metadata[kPaddingKey] = to_text(*config.padding);
  if (!config.class_activation.empty())
    model.metadata[std::string(kClassActivationKey)] = config.class_activation;
  TSR_RETURN_IF_ERROR(read_chat_templates(folder, model));
  TSR_RETURN_IF_ERROR(read_generation_config(folder, model));
  TSR_ASSIGN_OR_RETURN(model.tokenizer, hf_folder_tokenizer(folder.empty() ? std::string(".") : folder));
  TSR_RETURN_IF_ERROR(place_parameters(file, places, opened));
  model.origin.format = "huggingface";
  model.origin.files = static_cast<int64_t>(files.paths.size() + dense.size());
  model.origin.unread = files.unread;
  model.origin.stored = stored;
  model.origin.used = std::move(config.used);
  model.origin.unused = std::move(config.unused);
  model.source = file.source;
  return opened;
}

Result<std::shared_ptr<const ByteSource>> open_model_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return open_file(path);
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  TSR_RETURN_IF_ERROR(check_side_files(folder));
  TSR_ASSIGN_OR_RETURN(const WeightFiles files, find_weight_files(folder, {}));
  return open_file(files.paths[0]);
}

}  // namespace tessera
