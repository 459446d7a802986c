#include "serialize/import/quantized_folder.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/bitsandbytes_weights.h"
#include "serialize/import/decoded_source.h"
#include "serialize/import/fp8_weights.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/mxfp4_weights.h"
#include "serialize/import/packed_weights.h"

namespace tessera {

Result<FolderQuantization> read_folder_quantization(const Json& json) {
  FolderQuantization found;
  if (!json.is_object())
    return Status(StatusCode::kCorrupt,
                  format("config.json: quantization_config is {}, wanted an object", quote_json(json, 60)));
  JsonFields fields(json, "config.json: quantization_config");
  const std::string method = fields.text("quant_method", "");
  using Method = FolderQuantization::Method;
  if (method == "fp8") {
    found.method = Method::kFp8;
    found.bits = 8;
    fields.wants("activation_scheme", "dynamic", "activations without scales of the file");
    fields.wants("fmt", "e4m3", "codes of 4 and 3 bits");
    const std::vector<double> block = fields.reals("weight_block_size", 2);
    if (!block.empty()) {
      const auto is_size = [](double each) {
        return each >= 1 && each <= 65536 && each == static_cast<int64_t>(each);
      };
      if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1]))
        fields.fail(StatusCode::kCorrupt, "weight_block_size: wanted two whole numbers");
      else
        std::tie(found.block_rows, found.block_columns) =
            std::pair(static_cast<int64_t>(block[0]), static_cast<int64_t>(block[1]));
    }
  } else if (method == "gptq") {
    found.method = Method::kGptq;
    found.bits = fields.integer("bits", {}, 2, 8);
    const std::string form = fields.text("checkpoint_format", "gptq");
    if (form != "gptq" && form != "gptq_v2")
      fields.fail(StatusCode::kUnsupported, format("checkpoint_format is '{}'; known: gptq, gptq_v2", form));
    found.zeros_less_one = form == "gptq";
  } else if (method == "awq") {
    found.method = Method::kAwq;
    found.bits = fields.integer("bits", fields.integer("w_bit", 4, 4, 4), 4, 4);
    std::string version = fields.text("version", "gemm");
    std::ranges::transform(version, version.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (version != "gemm")
      fields.fail(StatusCode::kUnsupported, format("version is '{}'; only 'gemm' can be read", version));
    fields.wants("zero_point", true, "weights with zero points");
  } else if (method == "mxfp4") {
    found.method = Method::kMxfp4;
  } else if (method == "bitsandbytes") {
    found.method = Method::kBitsandbytes;
    const std::string type = fields.text("bnb_4bit_quant_type", "fp4");
    if (fields.flag("load_in_4bit", false) && type != "fp4" && type != "nf4")
      fields.fail(StatusCode::kUnsupported, format("bnb_4bit_quant_type is '{}'; known: fp4, nf4", type));
  } else if (fields.status().ok()) {
    fields.fail(StatusCode::kUnsupported,
                format("quant_method is '{}'; known: awq, bitsandbytes, fp8, gptq, mxfp4", method));
  }
  if (found.bits != 2 && found.bits != 4 && found.bits != 8)
    fields.fail(StatusCode::kUnsupported, format("bits is {}; known: 2, 4, 8", found.bits));
  TSR_RETURN_IF_ERROR(fields.status());
  return found;
}

Result<std::string> decode_quantized_tensors(const FolderQuantization& quantization, ForeignFile& file) {
  using Method = FolderQuantization::Method;
  std::vector<DecodedWeight> weights;
  switch (quantization.method) {
    case Method::kFp8: {
      TSR_ASSIGN_OR_RETURN(weights, fp8_weights(quantization, file));
      break;
    }
    case Method::kGptq:
    case Method::kAwq: {
      TSR_ASSIGN_OR_RETURN(weights, packed_weights(quantization, file));
      break;
    }
    case Method::kMxfp4: {
      TSR_ASSIGN_OR_RETURN(weights, mxfp4_weights(file));
      break;
    }
    case Method::kBitsandbytes: {
      TSR_ASSIGN_OR_RETURN(weights, bitsandbytes_weights(file));
      break;
    }
  }
  std::set<std::string> names;
  for (const DecodedWeight& weight : weights)
    if (!names.insert(weight.name).second)
      return Status(StatusCode::kCorrupt, format("tensor '{}' is there quantised twice", quote(weight.name)));
  std::vector<DecodedTensor> decoded;
  std::map<std::string, int64_t> types;
  int64_t offset = file.source->size();
  for (DecodedWeight& weight : weights) {
    for (const std::string& name : weight.replaced) file.tensors.erase(name);
    ForeignTensor tensor{to_text(weight.type.dtype), weight.type.dtype, weight.type.shape, offset,
                         weight.decoded.bytes};
    offset += tensor.bytes;
    ++types[tensor.type];
    if (!file.tensors.emplace(weight.name, std::move(tensor)).second)
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' is there quantised and as it is", quote(weight.name)));
    decoded.push_back(std::move(weight.decoded));
  }
  if (decoded.empty()) return std::string("no tensor is quantised");
  TSR_ASSIGN_OR_RETURN(file.source, join_sources({file.source, decoded_source(std::move(decoded))}));
  std::vector<std::string> parts;
  for (const auto& [type, count] : types) parts.push_back(format("{} as {}", count, type));
  return format("weights: {}", join(parts, ", "));
}

}  // namespace tessera
