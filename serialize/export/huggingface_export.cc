#include "serialize/export/huggingface_export.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include "graph/base/text.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/foreign_tensors.h"
#include "serialize/export/huggingface_config_writer.h"
#include "serialize/export/huggingface_encoder_writer.h"
#include "serialize/export/huggingface_tokenizer.h"
#include "serialize/export/safetensors_writer.h"
#include "serialize/export/sentence_files.h"
#include "serialize/generation_config.h"
#include "serialize/import/sentence_modules.h"
#include "serialize/quantization.h"
#include "text/python_json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json", kExportedBy = "exported_by", kUs = "tessera";

// Default type of written matrices.
DType written_type(DType stored) { return is_block_type(stored) ? DType::kF16 : stored; }

// Encodes matrices; returns the type with most bytes.
DType encode_matrices(std::vector<TensorSource>& parameters, const HuggingfaceExportSettings& settings) {
  std::map<DType, int64_t> elements;
  for (TensorSource& parameter : parameters) {
    if (parameter.type.shape.rank() < 2) continue;
    const DType type = settings.type.value_or(written_type(parameter.type.dtype));
    elements[type] += parameter.type.shape.elements();
    if (type != parameter.type.dtype)
      parameter = encode_source(std::move(parameter), type, {.threads = settings.threads});
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& each) { return each.second; });
  return most == elements.end() ? DType::kF32 : most->first;
}

// The dtype for transformers to load: one that holds all tensors.
std::string_view common_type(const std::vector<TensorSource>& tensors) {
  const auto is = [&](DType type) {
    return std::ranges::all_of(tensors, [&](const TensorSource& each) { return each.type.dtype == type; });
  };
  return is(DType::kBF16) ? "bfloat16" : is(DType::kF16) ? "float16" : "float32";
}

// Classes with a head prefix the decoder's tensors; ...Model does not.
void rename_tensors(std::vector<TensorSource>& tensors, const ModelConfig& config) {
  const auto head = config.flags.find("head");
  const bool is_base = head != config.flags.end() && !head->second && !config.sizes.contains("classes");
  constexpr std::string_view kPrefix = "model.";
  for (TensorSource& tensor : tensors) {
    if (is_base && tensor.name.starts_with(kPrefix)) tensor.name.erase(0, kPrefix.size());
    if (!is_base && config.family == "gpt2" && tensor.name != "lm_head.weight" && tensor.name != "score.weight")
      tensor.name = "transformer." + tensor.name;
  }
}

DenseModules dense_modules(const ExportedConfig& exported) {
  return exported.decoder ? exported.decoder->dense : exported.encoder ? exported.encoder->dense : DenseModules();
}

// Ids are the tokenizer's; without recommended settings the class defaults apply.
Json generation_config(const Model& model, const Json& ids) {
  const auto recommended = model.metadata.find(std::string(kGenerationConfigKey));
  Json config = huggingface_generation_config(recommended == model.metadata.end() ? std::string_view()
                                                                                  : recommended->second);
  if (config.empty()) config["_from_model_config"] = true;
  config.update(ids);
  return config;
}

// Files of sentence-transformers. Dense modules exist there behind the pooling of texts alone.
Status add_sentence_files(const ExportedConfig& exported, const Model& model, ExportContents& contents) {
  const auto channels = exported.config.sizes.find("C");
  if (channels == exported.config.sizes.end()) return {};
  const DenseModules dense = dense_modules(exported);
  const bool is_causal = exported.decoder && exported.decoder->causal;
  const std::string_view pooling = dense.widths.empty() ? "" : is_causal ? "last" : "mean";  // as embedders pool
  auto files = sentence_files(model, channels->second, dense, pooling);
  if (files.empty() && !dense.widths.empty())
    return Status(StatusCode::kUnsupported, format("the model has Dense modules (dense), and its file says pooling '{}': folders of "
                                                   "sentence-transformers have them behind mean, cls or last alone",
                                                   model.metadata.at(kPoolingKey)));
  for (auto& file : files) contents.texts.push_back(std::move(file));
  return {};
}

bool is_sentence_folder(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool is_dense = name.ends_with("_Dense");
  std::error_code error;
  return (name == "1_Pooling" || is_dense) && entry.is_directory(error) && !entry.is_symlink(error) &&
         std::ranges::all_of(fs::directory_iterator(entry.path(), error), [&](const auto& each) {
           return each.path().filename() == kConfig || (is_dense && each.path().filename() == "model.safetensors");
         });
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<ExportContents> huggingface_contents(OpenedModel& opened, const HuggingfaceExportSettings& settings) {
  const Model& model = opened.model;
  TSR_ASSIGN_OR_RETURN(const ExportedConfig exported, exported_config(model));
  TSR_ASSIGN_OR_RETURN(const std::optional<RopeFactors> factors, exported_rope_factors(opened));
  TSR_ASSIGN_OR_RETURN(Json config, write_huggingface_config(exported, factors));

  const ForeignNames names = with_draft_layer(exported.family->huggingface, exported.config);
  ForeignLayout layout{.names = names,
                       .format = "Hugging Face",
                       .left_out = {"rope_factors", std::string(kZeroBias)}};
  if (exported.decoder)
    layout.heads = HeadRows{.D = exported.decoder->D,
                            .R = exported.decoder->R,
                            .half = exported.decoder->rope_half,
                            .wanted_half = exported.decoder->latent.KA == 0 || exported.decoder->rope_half};
  if (exported.decoder) layout.states = state_heads(exported.decoder->recurrent, false);
  layout.vector_type = encode_matrices(opened.parameters, settings);
  layout.only_exact = !settings.type;
  TSR_ASSIGN_OR_RETURN(std::vector<TensorFile> dense_files, dense_module_files(dense_modules(exported), opened.parameters));
  for (const TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter))
    if (model.graph.tensor(id).name.starts_with("dense.")) layout.left_out.insert(model.graph.tensor(id).name);
  TSR_ASSIGN_OR_RETURN(std::vector<TensorSource> tensors,
                       foreign_tensors(model.graph, std::move(opened.parameters), layout));
  rename_tensors(tensors, exported.config);
  if (exported.encoder) name_encoder_tensors(tensors, exported);

  ExportContents contents{.is_folder = true, .files = {}, .texts = {}, .notes = {}};
  const TokenizerFiles tokenizer = huggingface_tokenizer(model, settings.tokenizer);
  const Json padding = config.value("pad_token_id", Json());
  config.update(tokenizer.ids);
  // Some classes count positions from the padding token, or require one.
  const bool counts = exported.config.sizes.contains("classes") ||
                      (exported.encoder && exported.encoder->position_offset > 0);
  if (counts || config["pad_token_id"].is_null()) config["pad_token_id"] = padding;
  config["torch_dtype"] = common_type(tensors);
  config[std::string(kExportedBy)] = kUs;
  TSR_ASSIGN_OR_RETURN(SafetensorsFiles files, safetensors_files(std::move(tensors), settings.shard_bytes));
  contents.files = std::move(files.files);
  std::ranges::move(dense_files, std::back_inserter(contents.files));
  contents.texts.emplace_back(kConfig, text_of(config));
  TSR_RETURN_IF_ERROR(add_sentence_files(exported, model, contents));
  if (!exported.encoder)
    contents.texts.emplace_back("generation_config.json", text_of(generation_config(model, tokenizer.ids)));
  if (!files.index.empty()) contents.texts.emplace_back("model.safetensors.index.json", files.index + "\n");
  for (const auto& [name, text] : tokenizer.files) contents.texts.emplace_back(name, text);
  contents.notes = tokenizer.notes;
  return contents;
}

Status may_replace_huggingface(const std::string& folder) {
  const auto refuse = [&](std::string_view why) {
    return Status(StatusCode::kInvalidArgument,
                  format("{}: {}; wanted a new or empty folder, or an earlier export", folder, why));
  };
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = is_sentence_folder(entry) || (entry.is_regular_file(error) && !entry.is_symlink(error) &&
                                        (name.ends_with(".json") || name == "chat_template.jinja" ||
                                         (name.starts_with("model") && name.ends_with(".safetensors"))));
    if (!is_ours) return refuse(format("has '{}', which no export writes", name));
  }
  const std::string path = folder + "/" + std::string(kConfig);
  if (!fs::exists(path, error)) return refuse("has files");
  constexpr int64_t kMostConfigBytes = int64_t{16} << 20;
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostConfigBytes) return refuse("has a config.json that no export wrote");
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  const Result<Json> config = parse_python_json(text, kConfig);
  const bool is_export =
      config.ok() && config->is_object() && config->value(std::string(kExportedBy), Json()) == kUs;
  return is_export ? Status() : refuse("is a model that no export wrote");
}

}  // namespace tessera
