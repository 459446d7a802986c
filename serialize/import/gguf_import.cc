// Converts a GGUF model: hyperparameters give the graph through its family,
// tensors become parameters by name. Weights are [N, K] in both, so nothing
// is transposed; they keep the file's types and stay in the file.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "graph/base/text.h"
#include "graph/models/encoder.h"
#include "graph/models/model_family.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/gguf_architectures.h"
#include "serialize/import/gguf_encoder_hyperparameters.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/gguf_hyperparameters.h"
#include "serialize/import/gguf_latent.h"
#include "serialize/import/gguf_metadata.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"

namespace tessera {
namespace {

constexpr NameRule kJoinedExpertNames[] = {
    {"block.#.experts.gate", "blk.#.ffn_gate_up_exps.weight"},
    {"block.#.experts.up", "blk.#.ffn_gate_up_exps.weight"},
};

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

ForeignFile foreign_file(const GgufFile& file) {
  ForeignFile foreign{file.source(), {}};
  for (const auto& [name, tensor] : file.tensors()) {
    const DType dtype = *gguf_tensor_type(tensor.type);
    const std::vector<int64_t> extents(tensor.dims.rbegin(), tensor.dims.rend());
    foreign.tensors.emplace(
        name, ForeignTensor{to_text(dtype), dtype, Shape(std::span(extents)), tensor.offset, tensor.bytes});
  }
  return foreign;
}

// Reads a one-dimensional tensor as f32.
Result<std::vector<float>> read_numbers(const ForeignFile& file, const std::string& name) {
  const ForeignTensor& tensor = file.tensors.find(name)->second;
  constexpr int64_t kMost = int64_t{1} << 20;
  if (tensor.dtype != DType::kF32 || tensor.shape.rank() != 1 || tensor.shape[0] > kMost)
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}' is {} [{}], wanted a list of f32", name, tensor.type, tensor.shape));
  std::vector<float> numbers(static_cast<size_t>(tensor.shape[0]));
  TSR_RETURN_IF_ERROR(file.source->read_at(tensor.offset, std::as_writable_bytes(std::span(numbers))));
  for (const float number : numbers)
    if (!std::isfinite(number))
      return Status(StatusCode::kCorrupt, format("tensor '{}' has {}, wanted finite numbers", name, number));
  return numbers;
}

// The tensor "X.scale" of a weight "X.weight" in
// NVFP4 files: a factor of the weight's products.
Status find_product_scales(const ForeignFile& file, const Graph& graph, ForeignPlaces& places) {
  std::set<std::string> weights;  // that are parameters of the model
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (const auto theirs = places.names.find(graph.tensor(id).name)) weights.insert(theirs->tensor);
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const std::string& parameter = graph.tensor(id).name;
    const std::optional<ForeignName> theirs = places.names.find(parameter);
    constexpr std::string_view kWeight = ".weight";
    if (!theirs || !theirs->tensor.ends_with(kWeight)) continue;
    const std::string scale = theirs->tensor.substr(0, theirs->tensor.size() - kWeight.size()) + ".scale";
    const auto found = file.tensors.find(scale);
    if (found == file.tensors.end() || weights.contains(scale)) continue;
    if (found->second.dtype != DType::kF32 || found->second.bytes != int64_t{sizeof(float)})
      return unsupported(format("tensor '{}' is {} of {} bytes; a weight's scale is one number of f32", scale,
                                found->second.type, found->second.bytes));
    float value = 0;
    TSR_RETURN_IF_ERROR(
        file.source->read_at(found->second.offset, std::as_writable_bytes(std::span<float, 1>(&value, 1))));
    if (!std::isfinite(value))
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' is {}; a weight's scale is finite", scale, value));
    places.used.insert(scale);
    if (value != 1) places.product_scales.emplace(parameter, value);
  }
  return {};
}

ModelOrigin origin_of(const GgufFile& file, const ForeignTensors& tensors) {
  ModelOrigin origin;
  origin.format = "gguf";
  origin.files = std::max<int64_t>(1, static_cast<int64_t>(file.source()->paths().size()));
  origin.stored = stored_tensors(tensors);
  for (const auto& [key, value] : file.metadata())
    (file.was_read(key) ? origin.used : origin.unused).emplace_back(key, value_text(value));
  return origin;
}

// Determines the vocabulary size, whether the head is tied, and the tensor with its copy.
Status read_head(const ForeignFile& foreign, const GgufFile& file, const std::string& architecture,
                 const Model& model, ModelConfig& config, ForeignPlaces& places) {
  const auto embedding = foreign.tensors.find("token_embd.weight");
  if (embedding == foreign.tensors.end() || embedding->second.shape.rank() != 2) {
    const auto tokens = model.tokenizer ? static_cast<int64_t>(model.tokenizer->tokens.size()) : 0;
    TSR_ASSIGN_OR_RETURN(config.sizes["V"], file.integer(architecture + ".vocab_size", tokens));
    return {};
  }
  config.sizes["V"] = embedding->second.shape[0];
  const auto output = foreign.tensors.find("output.weight");
  if (const auto head = config.flags.find("head"); head != config.flags.end() && !head->second) {
    places.used.insert("output.weight");
    return {};
  }
  config.flags["tied"] = output == foreign.tensors.end();
  if (output == foreign.tensors.end()) return {};
  TSR_ASSIGN_OR_RETURN(config.flags["tied"], same_contents(foreign, embedding->second, output->second));
  if (config.flags["tied"]) places.used.insert("output.weight");
  return {};
}

// Reads the block after the model's layers that predicts further tokens; several are skipped, and layers without its tensors.
void read_draft_block(const ForeignFile& foreign, GgufHyperparameters& model, ForeignPlaces& places) {
  ModelConfig& config = model.config;
  const int64_t L = config.sizes["L"];
  const std::string beginning = format("blk.{}.nextn.", L);
  const auto first = foreign.tensors.lower_bound(beginning);
  const bool has_block = first != foreign.tensors.end() && first->first.starts_with(beginning);
  if (model.draft_blocks == 1 && has_block) {
    config.sizes["MTP"] = 1;
    for (const char* const table : {"draft.token_embedding", "draft.output"})
      if (foreign.tensors.contains(places.names.find(table)->tensor)) config.flags["draft_tables"] = true;
    return;
  }
  for (int64_t layer = L; layer < L + model.draft_blocks; ++layer) {
    const std::string skipped = format("blk.{}.", layer);
    for (auto at = foreign.tensors.lower_bound(skipped); at != foreign.tensors.end() && at->first.starts_with(skipped); ++at)
      places.used.insert(at->first);
  }
}

// Keys and values in the file of layers that read those of others.
std::vector<std::string> shared_key_tensors(const ForeignFile& foreign, const ModelConfig& config) {
  std::vector<std::string> names;
  const auto shared = config.sizes.find("shared_kv");
  if (shared == config.sizes.end()) return names;
  const int64_t L = config.sizes.at("L");
  for (int64_t i = std::max<int64_t>(0, L - shared->second); i < L; ++i)
    for (const char* const leaf : {"attn_k", "attn_v", "attn_k_norm"})
      if (std::string name = format("blk.{}.{}.weight", i, leaf); foreign.tensors.contains(name)) names.push_back(std::move(name));
  return names;
}

// Skips keys and values of layers that read those of others, and finds layers that take values from the keys' projection.
void read_keys_and_values(const ForeignFile& foreign, ModelConfig& config, ForeignPlaces& places) {
  const int64_t L = config.sizes["L"], shared = config.sizes.contains("shared_kv") ? config.sizes["shared_kv"] : 0;
  for (std::string& name : shared_key_tensors(foreign, config)) places.used.insert(std::move(name));
  std::vector<int64_t> key_values(static_cast<size_t>(L), 0);
  for (int64_t i = 0; i < L - shared; ++i)
    key_values[static_cast<size_t>(i)] = !foreign.tensors.contains(format("blk.{}.attn_v.weight", i));
  if (std::ranges::count(key_values, 0) != L) config.lists["key_values"] = std::move(key_values);
}

// The one tensor of rotation factors, if its factors have an effect.
Status read_factors(const ForeignFile& foreign, ModelConfig& config, ForeignPlaces& places) {
  const std::string name = "rope_freqs.weight";
  if (!foreign.tensors.contains(name)) return {};
  RopeScaling scaling;
  TSR_ASSIGN_OR_RETURN(scaling.factors, read_numbers(foreign, name));
  const auto full = config.lists.find("head_sizes");
  const int64_t head = full == config.lists.end() ? config.sizes["D"] : std::ranges::max(full->second);
  const int64_t rotated = config.sizes.contains("R") ? config.sizes["R"] : head;
  if (scaling.is_neutral() && 2 * std::ssize(scaling.factors) == rotated)
    places.used.insert(name);
  else
    scaling.describe(config);
  return {};
}

// Determines variants by tensors: biases, and rotation factors.
Status read_variant(const ForeignFile& foreign, GgufHyperparameters& model, ForeignPlaces& places) {
  ModelConfig& config = model.config;
  if (model.may_have_biases) {
    for (const char* const name : {"blk.0.attn_q.bias", "blk.0.attn_kv_a_mqa.bias"})
      if (foreign.tensors.contains(name)) config.flags["qkv_bias"] = true;
    if (foreign.tensors.contains("blk.0.attn_output.bias")) config.flags["o_bias"] = true;
    if (foreign.tensors.contains("blk.0.ffn_gate.bias")) config.flags["mlp_bias"] = true;
  }
  if (model.scaling && foreign.tensors.contains("rope_freqs.weight"))
    return unsupported(
        "rotary positions are scaled by keys and by tensor 'rope_freqs.weight'; wanted one of them");
  if (config.family == "deepseek2") {
    // Only V3 has such biases, and older files state no more about its router.
    const bool biased = foreign.tensors.contains(format("blk.{}.exp_probs_b.bias", config.sizes["L"] - 1));
    config.flags["selection_bias"] = biased;
    config.flags.emplace("expert_sigmoid", biased);
  }
  if (model.may_lack_values) {
    read_keys_and_values(foreign, config, places);
    config.flags["layer_scale"] = foreign.tensors.contains("blk.0.layer_output_scale.weight");
  }
  TSR_RETURN_IF_ERROR(read_factors(foreign, config, places));
  if (foreign.tensors.contains("rope_factors_short.weight") ||
      foreign.tensors.contains("rope_factors_long.weight")) {
    for (const char* const name : {"rope_factors_short.weight", "rope_factors_long.weight"})
      if (!foreign.tensors.contains(name))
        return Status(StatusCode::kCorrupt, format("tensor '{}' is missing", name));
    TSR_ASSIGN_OR_RETURN(std::vector<float> shorter, read_numbers(foreign, "rope_factors_short.weight"));
    TSR_ASSIGN_OR_RETURN(std::vector<float> longer, read_numbers(foreign, "rope_factors_long.weight"));
    if (shorter.size() != longer.size() || shorter.empty())
      return Status(StatusCode::kCorrupt,
                    format("rotations have {} short and {} long factors", shorter.size(), longer.size()));
    const int64_t T = config.sizes["T"], original = model.original_context;
    RopeScaling scaling =
        longrope_scaling(std::move(shorter), std::move(longer), original, 0, model.attention_factor);
    if (original >= T) {
      scaling.longer.clear();
      scaling.switch_at = 0;
    }
    places.used.insert({"rope_factors_short.weight", "rope_factors_long.weight"});
    model.scaling = std::move(scaling);
    model.scaling->describe(config);
  }
  if (model.scaling)
    places.computed.emplace("rope_factors", source_in_memory("rope_factors", model.scaling->values()));
  if (config.sizes.contains("KA")) TSR_RETURN_IF_ERROR(read_latent_products(foreign, config, places));
  return {};
}

Result<OpenedModel> open_gguf_encoder(const GgufFile& file, const std::string& name,
                                      const ForeignFile& foreign, OpenedModel opened) {
  Model& model = opened.model;
  const bool vocabulary_alone = foreign.tensors.empty() && model.tokenizer;
  if (vocabulary_alone)
    return Status(StatusCode::kCorrupt,
                  "the file has no tensors: it holds a vocabulary alone, which can be used as a tokenizer");
  TSR_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_encoder(file, name, foreign.tensors, model.metadata));
  model.metadata["architecture"] = config.family;
  model.metadata["context_length"] = to_text(config.sizes["T"]);
  const ModelFamily* const family = find_model_family(config.family);
  TSR_CHECK(family != nullptr, "hyper-parameters are of a family");
  ForeignPlaces places{
      .names = family->gguf, .format = "GGUF", .computed = {}, .used = {}, .product_scales = {}};
  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config));
  if (const auto zeros = model.graph.find_tensor(kZeroBias)) {
    const TensorType& type = model.graph.type(*zeros);
    places.computed.emplace(
        kZeroBias, source_in_memory(std::string(kZeroBias),
                                    HostTensor::copy_of<float>(
                                        type, std::vector<float>(static_cast<size_t>(type.shape[0])))));
  }
  model.metadata["description"] = to_text(config);
  TSR_RETURN_IF_ERROR(place_parameters(foreign, places, opened));
  model.origin = origin_of(file, foreign.tensors);
  model.source = file.source();
  return opened;
}

}  // namespace

Result<OpenedModel> open_gguf(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(GgufFile file, open_gguf_parts(std::move(source)));
  OpenedModel opened;
  Model& model = opened.model;
  TSR_ASSIGN_OR_RETURN(model.tokenizer, gguf_tokenizer(file));
  TSR_ASSIGN_OR_RETURN(const std::string name, file.text("general.architecture"));
  TSR_RETURN_IF_ERROR(read_gguf_metadata(file, name, model.metadata));
  if (!is_known_gguf_architecture(name) && !is_gguf_encoder(name)) {
    const bool vocabulary_alone = file.tensors().empty() && model.tokenizer;
    return unsupported(
        format("general.architecture is '{}'; known: {}, {}{}", name, known_gguf_architectures(),
               join(std::vector<std::string>(std::begin(kGgufEncoders), std::end(kGgufEncoders)), ", "),
               vocabulary_alone ? "; its vocabulary can be used as a tokenizer" : ""));
  }

  const ForeignFile foreign = foreign_file(file);
  if (is_gguf_encoder(name)) return open_gguf_encoder(file, name, foreign, std::move(opened));
  TSR_ASSIGN_OR_RETURN(GgufHyperparameters hyperparameters, read_gguf_hyperparameters(file, name));
  ModelConfig& config = hyperparameters.config;
  model.metadata["architecture"] = config.family;  // ours, by which rules of quantisation find names
  model.metadata["context_length"] = to_text(config.sizes["T"]);
  const ModelFamily* const family = find_model_family(config.family);
  TSR_CHECK(family != nullptr, "hyper-parameters are of a family");
  // Newer files have both products of gates in one tensor.
  const bool is_joined = std::ranges::any_of(
      foreign.tensors, [](const auto& entry) { return entry.first.ends_with(".ffn_gate_up_exps.weight"); });
  const ForeignNames own_names = with_draft_layer(family->gguf, config);
  const ForeignNames names = is_joined ? own_names.preceded_by(kJoinedExpertNames) : own_names;
  ForeignPlaces places{.names = names, .format = "GGUF", .computed = {}, .used = {}, .product_scales = {}};
  if (const auto heads = config.sizes.find("GS"); heads != config.sizes.end()) places.key_heads = heads->second;
  read_draft_block(foreign, hyperparameters, places);
  TSR_RETURN_IF_ERROR(read_head(foreign, file, name, model, config, places));
  TSR_RETURN_IF_ERROR(read_variant(foreign, hyperparameters, places));
  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config));
  model.metadata["description"] = to_text(config);
  if (hyperparameters.scaling && !hyperparameters.scaling->words.empty())
    model.metadata["rope_scaling"] = hyperparameters.scaling->words;
  TSR_RETURN_IF_ERROR(find_product_scales(foreign, model.graph, places));
  TSR_RETURN_IF_ERROR(place_parameters(foreign, places, opened));
  model.origin = origin_of(file, foreign.tensors);
  for (std::string& name : shared_key_tensors(foreign, config))
    model.origin.used.emplace_back(std::move(name), "left out: the layer reads keys and values of an earlier one");
  for (int64_t i = 0; i < hyperparameters.draft_blocks && !config.sizes.contains("MTP"); ++i)
    model.origin.used.emplace_back(format("blk.{}.*", config.sizes["L"] + i), "left out: the layer predicts further tokens");
  model.source = file.source();
  return opened;
}

}  // namespace tessera
