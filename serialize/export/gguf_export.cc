#include "serialize/export/gguf_export.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "graph/base/text.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/foreign_tensors.h"
#include "serialize/export/gguf_encoder_keys.h"
#include "serialize/export/gguf_keys.h"
#include "serialize/export/gguf_metadata_keys.h"
#include "serialize/export/gguf_vocabulary.h"
#include "serialize/export/gguf_writer.h"
#include "serialize/quantization.h"

namespace tessera {
namespace {

constexpr int64_t kQuantizationVersion = 2;

// Our metadata with `general.` keys in GGUF, as the importer reads them.
constexpr std::string_view kGeneral[] = {
    "name",         "basename",   "finetune", "author",       "organization",   "version",
    "quantized_by", "size_label", "license",  "license.name", "license.link",   "url",
    "doi",          "uuid",       "repo_url", "source.url",   "source.repo_url"};

// general.file_type: the type of most weights, a hint shown by readers.
struct FileType {
  std::string_view name;  // a mix, or an element type
  int64_t number;
};
constexpr FileType kFileTypes[] = {
    {"f32", 0},     {"f16", 1},      {"q4_0", 2},    {"q4_1", 3},    {"q8_0", 7},     {"q5_0", 8},
    {"q5_1", 9},    {"q2_k", 10},    {"q3_k_s", 11}, {"q3_k_m", 12}, {"q3_k", 12},    {"q3_k_l", 13},
    {"q4_k_s", 14}, {"q4_k_m", 15},  {"q4_k", 15},   {"q5_k_s", 16}, {"q5_k_m", 17},  {"q5_k", 17},
    {"q6_k", 18},   {"iq2_xxs", 19}, {"iq2_xs", 20}, {"q2_k_s", 21}, {"iq3_xxs", 23}, {"iq1_s", 24},
    {"iq4_nl", 25}, {"iq3_s", 26},   {"iq2_s", 28},  {"iq4_xs", 30}, {"iq1_m", 31},   {"bf16", 32},
    {"tq1_0", 36},  {"tq2_0", 37},   {"mxfp4", 38}};

// Matrices that llama.cpp reads only as f32.
// A causal convolution's weight: "block.3.conv", "block.3.conv_q".
bool has_taps(std::string_view parameter) {
  const std::string_view leaf = parameter.substr(parameter.rfind('.') + 1);
  return leaf == "conv" || leaf == "conv_q" || leaf == "conv_k" || leaf == "conv_v";
}

bool is_kept_wide(std::string_view parameter) {
  return parameter == "position_embedding" || parameter == "token_type_embedding" ||
         parameter.ends_with(".router") || parameter.ends_with(".bias") || has_taps(parameter);
}

std::string most_common_type(const std::vector<TensorSource>& tensors) {
  std::map<DType, int64_t> elements;
  for (const TensorSource& tensor : tensors)
    if (tensor.type.shape.rank() > 1) elements[tensor.type.dtype] += tensor.type.shape.elements();
  const auto most = std::ranges::max_element(elements, {}, [](const auto& each) { return each.second; });
  return to_text(most == elements.end() ? DType::kF32 : most->first);
}

void write_general(const Model& model, const WrittenKeys& keys, const std::string& mix,
                   const std::vector<TensorSource>& tensors, GgufWriter& out) {
  out.text("general.architecture", keys.architecture);
  out.text("general.type", "model");
  for (const std::string_view key : kGeneral) {
    const auto found = model.metadata.find(std::string(key));
    if (found != model.metadata.end()) out.text(format("general.{}", key), found->second);
  }
  const auto has_blocks = [](const TensorSource& tensor) { return is_block_type(tensor.type.dtype); };
  if (std::ranges::any_of(tensors, has_blocks)) out.u32("general.quantization_version", kQuantizationVersion);
  const std::string name = mix.empty() ? most_common_type(tensors) : mix;
  const auto type = std::ranges::find(kFileTypes, std::string_view(name), &FileType::name);
  if (type != std::end(kFileTypes)) out.u32("general.file_type", type->number);
  out.u32("general.alignment", static_cast<int64_t>(kGgufAlignment));
}

}  // namespace

Result<ExportContents> gguf_contents(OpenedModel& opened, const GgufExportSettings& settings) {
  const Model& model = opened.model;
  TSR_ASSIGN_OR_RETURN(const ExportedConfig exported, exported_config(model));
  TSR_ASSIGN_OR_RETURN(const std::optional<RopeFactors> factors, exported_rope_factors(opened));
  GgufWriter sizes;
  const bool is_encoder = exported.encoder && exported.config.family != "encoder";
  TSR_ASSIGN_OR_RETURN(WrittenKeys keys, is_encoder ? write_gguf_encoder_keys(exported, sizes)
                                                 : write_gguf_keys(exported, factors, sizes));

  const ForeignNames names = with_draft_layer(exported.family->gguf, exported.config);
  ForeignLayout layout{.names = names, .format = "GGUF", .left_out = {"rope_factors", std::string(kZeroBias)}};
  if (is_encoder) {
    TSR_RETURN_IF_ERROR(cut_positions(opened, exported.encoder->position_offset));
    leave_out_heads(*exported.encoder, layout.left_out);
  }
  if (exported.decoder)
    layout.heads = HeadRows{.D = exported.decoder->D,
                            .R = exported.decoder->R,
                            .half = exported.decoder->rope_half,
                            .wanted_half = keys.rope_half};
  if (exported.decoder) layout.states = state_heads(exported.decoder->recurrent, keys.turned);
  for (TensorSource& parameter : opened.parameters)
    if (is_kept_wide(parameter.name) && parameter.type.dtype != DType::kF32)
      parameter = encode_source(std::move(parameter), DType::kF32);
  TSR_ASSIGN_OR_RETURN(std::vector<TensorSource> tensors,
                       foreign_tensors(model.graph, std::move(opened.parameters), layout));
  for (TensorSource& factor : keys.factors) tensors.push_back(std::move(factor));

  GgufWriter out;
  write_general(model, keys, settings.mix, tensors, out);
  out.append(sizes);
  const Graph& graph = model.graph;
  const int64_t tokens = graph.type(*graph.find_tensor("token_embedding")).shape[0];
  TSR_RETURN_IF_ERROR(write_gguf_vocabulary(
      settings.tokenizer ? model.tokenizer : std::optional<TokenizerData>(), tokens, out));
  write_gguf_metadata(model, keys.architecture, exported.encoder && exported.encoder->N > 0, out);
  ExportContents contents;
  TSR_ASSIGN_OR_RETURN(TensorFile file, out.finish(std::move(tensors)));
  contents.files.push_back(std::move(file));
  contents.notes = std::move(keys.notes);
  if (!model.tokenizer)
    contents.notes.push_back("the model has no tokenizer");
  else if (!settings.tokenizer)
    contents.notes.push_back("the tokenizer was left out, as asked");
  return contents;
}

}  // namespace tessera
