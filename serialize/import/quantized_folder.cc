#include "serialize/import/quantized_folder.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/bitsandbytes_weights.h"
#include "serialize/import/compressed_tensors.h"
#include "serialize/import/decoded_source.h"
#include "serialize/import/fp8_weights.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/module_weights.h"
#include "serialize/import/mxfp4_weights.h"
#include "serialize/import/packed_weights.h"

namespace tessera {
namespace {

using Method = FolderQuantization::Method;

// Scales and zero points of activations, keys and values: the end of a name, behind '.' or '_'.
constexpr std::string_view kActivationParts[] = {
    "activation_scale",    "input_global_scale", "input_scale",       "input_zero_point",  "k_scale", "k_zero_point",
    "output_global_scale", "output_scale",       "output_zero_point", "prob_output_scale", "q_scale", "v_scale",
    "v_zero_point",
};

// Takes them from the file. Returns how many there were of each.
std::map<std::string_view, int64_t> drop_activation_parts(ForeignTensors& tensors) {
  std::map<std::string_view, int64_t> dropped;
  std::erase_if(tensors, [&](const auto& named) {
    const std::string& name = named.first;
    const auto part = std::ranges::find_if(kActivationParts, [&](std::string_view each) {
      return name.size() > each.size() && name.ends_with(each) &&
             std::string_view("._").find(name[name.size() - each.size() - 1]) != std::string_view::npos;
    });
    if (part == std::end(kActivationParts)) return false;
    ++dropped[*part];
    return true;
  });
  return dropped;
}

void read_fp8(JsonFields& fields, FolderQuantization& found) {
  found.method = Method::kFp8;
  found.bits = 8;
  const std::string scheme = fields.text("activation_scheme", "dynamic");
  if (scheme != "dynamic" && scheme != "static")
    fields.fail(StatusCode::kUnsupported, format("activation_scheme is '{}'; known: dynamic, static", quote(scheme, 80)));
  if (scheme == "static") found.modules.left_out.emplace_back("activation_scheme static");
  fields.wants("fmt", "e4m3", "codes of 4 and 3 bits");
  const std::vector<double> block = fields.reals("weight_block_size", 2);
  if (block.empty()) return;
  const auto is_size = [](double each) { return each >= 1 && each <= 65536 && each == static_cast<int64_t>(each); };
  if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
    fields.fail(StatusCode::kCorrupt, "weight_block_size: wanted two whole numbers");
    return;
  }
  found.block_rows = static_cast<int64_t>(block[0]);
  found.block_columns = static_cast<int64_t>(block[1]);
}

// The integers of both methods.
void read_packed(JsonFields& fields, bool is_gptq, FolderQuantization& found) {
  found.method = is_gptq ? Method::kGptq : Method::kAwq;
  if (is_gptq) {
    found.bits = fields.integer("bits", {}, 2, 8);
    const std::string form = fields.text("checkpoint_format", "gptq");
    if (form != "gptq" && form != "gptq_v2")
      fields.fail(StatusCode::kUnsupported, format("checkpoint_format is '{}'; known: gptq, gptq_v2", form));
    found.zeros_less_one = form == "gptq";
  } else {
    found.bits = fields.integer("bits", fields.integer("w_bit", 4, 4, 4), 4, 4);
    std::string version = fields.text("version", "gemm");
    std::ranges::transform(version, version.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (version != "gemm") fields.fail(StatusCode::kUnsupported, format("version is '{}'; only 'gemm' can be read", version));
    fields.wants("zero_point", true, "weights with zero points");
  }
  if (found.bits != 2 && found.bits != 4 && found.bits != 8)
    fields.fail(StatusCode::kUnsupported, format("bits is {}; known: 2, 4, 8", found.bits));
}

// modelopt, of either source.
Status read_modelopt_schemes(const Json& json, std::string_view where, FolderQuantization& found) {
  found.method = Method::kModules;
  TSR_ASSIGN_OR_RETURN(found.modelopt, read_modelopt(json, where));
  Result<ModuleSchemes> schemes = modelopt_schemes(*found.modelopt);
  if (!schemes.ok()) return schemes.status().with_context(where);
  found.modules = std::move(*schemes);
  return {};
}

Result<std::vector<DecodedWeight>> weights_of(const FolderQuantization& quantization, ForeignFile& file) {
  switch (quantization.method) {
    case Method::kFp8: return fp8_weights(quantization, file);
    case Method::kGptq:
    case Method::kAwq: return packed_weights(quantization, file);
    case Method::kMxfp4: return mxfp4_weights(file);
    case Method::kBitsandbytes: return bitsandbytes_weights(file);
    case Method::kModules: return module_weights(quantization.modules, file);
  }
  return std::vector<DecodedWeight>();
}

// Puts the weights in place of the tensors that encode them. Returns their types with numbers of weights.
Result<std::map<std::string, int64_t>> replace_tensors(std::vector<DecodedWeight> weights, ForeignFile& file) {
  std::set<std::string> names;
  for (const DecodedWeight& weight : weights)
    if (!names.insert(weight.name).second)
      return Status(StatusCode::kCorrupt, format("tensor '{}' is there quantised twice", quote(weight.name)));
  std::vector<DecodedTensor> decoded;
  std::map<std::string, int64_t> types;
  int64_t offset = file.source->size();
  const auto add = [&](DType dtype, const Shape& shape, DecodedTensor& from) {
    ForeignTensor tensor;
    tensor.type = to_text(dtype);
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.offset = offset;
    tensor.bytes = from.bytes;
    offset += from.bytes;
    decoded.push_back(std::move(from));
    return tensor;
  };
  for (DecodedWeight& weight : weights) {
    for (const std::string& name : weight.replaced) file.tensors.erase(name);
    ForeignTensor tensor = add(weight.type.dtype, weight.type.shape, weight.decoded);
    std::string type = tensor.type;
    if (weight.product_scale != 1) {
      tensor.product_scale = weight.product_scale;
      tensor.scaled = std::make_shared<ForeignTensor>(add(weight.scaled_type, weight.type.shape, weight.scaled));
      type += format(" ({} where products are not scaled)", tensor.scaled->type);
    }
    ++types[type];
    if (!file.tensors.emplace(weight.name, std::move(tensor)).second)
      return Status(StatusCode::kCorrupt, format("tensor '{}' is there quantised and as it is", quote(weight.name)));
  }
  if (decoded.empty()) return types;
  TSR_ASSIGN_OR_RETURN(file.source, join_sources({file.source, decoded_source(std::move(decoded))}));
  return types;
}

}  // namespace

Result<FolderQuantization> read_folder_quantization(const Json& json) {
  FolderQuantization found;
  if (!json.is_object())
    return Status(StatusCode::kCorrupt, format("config.json: quantization_config is {}, wanted an object", quote_json(json, 60)));
  JsonFields fields(json, "config.json: quantization_config");
  const std::string method = fields.text("quant_method", "");
  if (method == "fp8") {
    read_fp8(fields, found);
  } else if (method == "gptq" || method == "awq") {
    read_packed(fields, method == "gptq", found);
  } else if (method == "mxfp4") {
    found.method = Method::kMxfp4;
  } else if (method == "bitsandbytes") {
    found.method = Method::kBitsandbytes;
    const std::string type = fields.text("bnb_4bit_quant_type", "fp4");
    if (fields.flag("load_in_4bit", false) && type != "fp4" && type != "nf4")
      fields.fail(StatusCode::kUnsupported, format("bnb_4bit_quant_type is '{}'; known: fp4, nf4", type));
  } else if (method == "compressed-tensors") {
    found.method = Method::kModules;
    TSR_ASSIGN_OR_RETURN(found.modules, read_compressed_tensors(fields));
  } else if (method.starts_with("modelopt")) {
    TSR_RETURN_IF_ERROR(read_modelopt_schemes(json, "config.json: quantization_config", found));
  } else if (fields.status().ok()) {
    fields.fail(StatusCode::kUnsupported,
                format("quant_method is '{}'; known: awq, bitsandbytes, compressed-tensors, fp8, gptq, modelopt, mxfp4", method));
  }
  TSR_RETURN_IF_ERROR(fields.status());
  return found;
}

Status read_modelopt_file(const Json& json, std::optional<FolderQuantization>& quantization) {
  FolderQuantization found;
  TSR_RETURN_IF_ERROR(read_modelopt_schemes(json, "hf_quant_config.json", found));
  if (!quantization) {
    quantization = std::move(found);
    return {};
  }
  if (!quantization->modelopt)
    return Status(
        StatusCode::kUnsupported,
        "quantization_config of config.json has another quant_method than modelopt, to which hf_quant_config.json belongs; "
        "take the wrong one of the two away");
  return check_agrees(*quantization->modelopt, *found.modelopt);
}

Result<std::string> decode_quantized_tensors(const FolderQuantization& quantization, ForeignFile& file) {
  const bool has_parts = quantization.method == Method::kModules || quantization.method == Method::kFp8;
  const std::map<std::string_view, int64_t> dropped =
      has_parts ? drop_activation_parts(file.tensors) : std::map<std::string_view, int64_t>();
  TSR_ASSIGN_OR_RETURN(std::vector<DecodedWeight> weights, weights_of(quantization, file));
  TSR_ASSIGN_OR_RETURN(const auto types, replace_tensors(std::move(weights), file));
  std::vector<std::string> parts, left_out = quantization.modules.left_out;
  for (const auto& [type, count] : types) parts.push_back(format("{} as {}", count, type));
  for (const auto& [part, count] : dropped) left_out.push_back(format("{} of {}", count, part));
  return format("{}{}", parts.empty() ? "no tensor is quantised" : "weights: " + join(parts, ", "),
                left_out.empty()
                    ? std::string()
                    : format("; left out, as activations, keys and values are not rounded: {}", join(left_out, ", ")));
}

}  // namespace tessera
