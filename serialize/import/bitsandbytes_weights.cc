// Finds codes by the names of their quantization state or row scales, checks all sizes, and returns weights that are decoded
// in chunks of rows when read.
#include "serialize/import/bitsandbytes_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/blocks/block_layout.h"
#include "graph/base/cancellation.h"
#include "graph/base/half.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/stored_numbers.h"

namespace tessera {
namespace {

constexpr std::string_view kState = ".quant_state.bitsandbytes__", kRowScales = ".SCB", kWeight = ".weight";
constexpr int64_t kMostStateBytes = int64_t{64} << 10, kChunkBytes = int64_t{1} << 20;

Status wrong_bitsandbytes(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// CodesOf4Bits: a matrix of 4-bit codes. Element i of the flattened matrix uses the scale of block i / block_elements.
struct CodesOf4Bits {
  std::shared_ptr<const ByteSource> source;
  int64_t N = 0, K = 0;
  DType dtype = DType::kNF4;  // type of the decoded matrix
  int64_t block_elements = 64, chunk_rows = 1;
  int64_t codes = 0, scales = 0, nested_scales = 0;  // offsets in the source
  // 8-bit scales: nested_values[code] * nested scale of the block + nested_offset.
  bool is_nested = false;
  int64_t nested_block = 256;
  float nested_offset = 0;
  std::vector<float> values, nested_values;

  template <class T>
  Result<std::vector<T>> read(int64_t offset, int64_t first, int64_t end) const {
    std::vector<T> found(static_cast<size_t>(end - first));
    TSR_RETURN_IF_ERROR(source->read_at(offset + first * static_cast<int64_t>(sizeof(T)),
                                        std::as_writable_bytes(std::span(found))));
    return found;
  }

  // Scales of blocks [first, end).
  Result<std::vector<float>> read_scales(int64_t first, int64_t end) const {
    if (!is_nested) return read<float>(scales, first, end);
    TSR_ASSIGN_OR_RETURN(const std::vector<uint8_t> scale_codes, read<uint8_t>(scales, first, end));
    const int64_t group = first / nested_block;
    TSR_ASSIGN_OR_RETURN(const std::vector<float> factors,
                         read<float>(nested_scales, group, (end - 1) / nested_block + 1));
    std::vector<float> found;
    for (int64_t block = first; block < end; ++block) {
      // As in bitsandbytes the product is rounded to f32 before the sum; in f64 it is exact.
      const double product =
          static_cast<double>(nested_values[scale_codes[static_cast<size_t>(block - first)]]) *
          static_cast<double>(factors[static_cast<size_t>(block / nested_block - group)]);
      found.push_back(static_cast<float>(product) + nested_offset);
    }
    return found;
  }

  // Decodes rows from chunk * chunk_rows, as many as `out` holds.
  Status decode(int64_t chunk, std::span<std::byte> out) const {
    const int64_t first = chunk * chunk_rows * K, rows = std::ssize(out) / dtype_bytes(dtype, K),
                  end = first + rows * K;
    const int64_t first_block = first / block_elements;
    TSR_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read<uint8_t>(codes, first / 2, (end + 1) / 2));
    TSR_ASSIGN_OR_RETURN(const std::vector<float> found,
                         read_scales(first_block, (end - 1) / block_elements + 1));
    const auto scale_of = [&](int64_t i) {
      return found[static_cast<size_t>(i / block_elements - first_block)];
    };
    cancellation_point();
    std::byte* to = out.data();
    if (dtype == DType::kNF4) {
      for (int64_t i = first; i < end; i += BlockNf4::kElements, to += sizeof(BlockNf4)) {
        BlockNf4 block;
        const float scale = scale_of(i);
        std::memcpy(block.scale, &scale, sizeof scale);
        std::memcpy(block.codes, bytes.data() + (i - first) / 2, sizeof block.codes);
        std::memcpy(to, &block, sizeof block);
      }
      return {};
    }
    for (int64_t i = first; i < end; ++i) {
      const uint8_t pair = bytes[static_cast<size_t>(i / 2 - first / 2)];
      const float value = values[i % 2 == 0 ? pair >> 4 : pair & 15] * scale_of(i);
      const uint16_t half = dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
      const size_t size = dtype == DType::kF32 ? sizeof value : sizeof half;
      std::memcpy(to, dtype == DType::kF32 ? static_cast<const void*>(&value) : &half, size);
      to += size;
    }
    return {};
  }
};

// CodesOf8Bits: a matrix of 8-bit codes with the largest magnitude of each row.
struct CodesOf8Bits {
  std::shared_ptr<const ByteSource> source;
  int64_t N = 0, K = 0, codes = 0, chunk_rows = 1;
  std::vector<float> scales;

  Status decode(int64_t chunk, std::span<std::byte> out) const {
    constexpr float kPart = 7.874015718698502e-3f;  // 1 / 127, with bitsandbytes' digits
    const int64_t first = chunk * chunk_rows, rows = std::ssize(out) / (K * int64_t{sizeof(float)});
    std::vector<int8_t> found(static_cast<size_t>(rows * K));
    TSR_RETURN_IF_ERROR(source->read_at(codes + first * K, std::as_writable_bytes(std::span(found))));
    cancellation_point();
    for (int64_t i = 0; i < rows * K; ++i) {
      const float scaled =
          static_cast<float>(found[static_cast<size_t>(i)]) * scales[static_cast<size_t>(first + i / K)];
      const float value = scaled * kPart;
      std::memcpy(out.data() + i * int64_t{sizeof value}, &value, sizeof value);
    }
    return {};
  }
};

class BitsandbytesReader {
 public:
  explicit BitsandbytesReader(const ForeignFile& file) : file_(file) {}

  // `state`: the tensor of the name X.weight.quant_state.bitsandbytes__TYPE.
  Result<DecodedWeight> read_4_bits(const std::string& state_name, const ForeignTensor& state) const {
    const size_t at = state_name.rfind(kState);
    const std::string name = state_name.substr(0, at), type = state_name.substr(at + kState.size());
    std::vector<std::string> replaced = {state_name, name};
    TSR_ASSIGN_OR_RETURN(const Json json, read_state(state_name, state));
    JsonFields fields(json, format("tensor '{}'", quote(state_name)));
    CodesOf4Bits weight;
    weight.source = file_.source;
    TSR_RETURN_IF_ERROR(read_extents(fields, name, type, weight));

    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const codes, part(name, "", "", -1));
    if (const int64_t wanted = (weight.N * weight.K + 1) / 2; codes->bytes != wanted)
      return wrong_bitsandbytes(format("tensor '{}' has {} bytes, wanted {} of {} [{}, {}]", quote(name),
                                       codes->bytes, wanted, type, weight.N, weight.K));
    weight.codes = codes->offset;
    const auto take = [&](const char* suffix, std::string_view dtype,
                          int64_t count) -> Result<const ForeignTensor*> {
      replaced.push_back(name + suffix);
      return part(name, suffix, dtype, count);
    };
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const map, take(".quant_map", "f32", 16));
    TSR_ASSIGN_OR_RETURN(weight.values, read_stored_numbers(*file_.source, *map, name + ".quant_map"));
    if (type == "nf4" && !std::ranges::equal(weight.values, kNf4Values))
      return Status(
          StatusCode::kUnsupported,
          format("tensor '{}.quant_map' has other values than nf4; wanted those of bitsandbytes' nf4",
                 quote(name)));
    const int64_t blocks = (weight.N * weight.K + weight.block_elements - 1) / weight.block_elements;
    weight.is_nested = file_.tensors.contains(name + ".nested_absmax");
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const scales,
                         take(".absmax", weight.is_nested ? "u8" : "f32", blocks));
    weight.scales = scales->offset;
    if (weight.is_nested) {
      weight.nested_block = fields.size("nested_blocksize");
      weight.nested_offset = static_cast<float>(fields.real("nested_offset"));
      fields.wants("nested_dtype", "float32", "scales that are f32");
      TSR_RETURN_IF_ERROR(fields.status());
      TSR_ASSIGN_OR_RETURN(
          const ForeignTensor* const factors,
          take(".nested_absmax", "f32", (blocks + weight.nested_block - 1) / weight.nested_block));
      weight.nested_scales = factors->offset;
      TSR_ASSIGN_OR_RETURN(const ForeignTensor* const table, take(".nested_quant_map", "f32", 256));
      TSR_ASSIGN_OR_RETURN(weight.nested_values,
                           read_stored_numbers(*file_.source, *table, name + ".nested_quant_map"));
    }

    if (const auto unused = fields.unused(); !unused.empty())
      return Status(StatusCode::kUnsupported, format("tensor '{}': the state's '{}' is not known",
                                                     quote(name), quote(unused[0].first)));
    const TensorType made_type{weight.dtype, {weight.N, weight.K}};
    const int64_t row_bytes = dtype_bytes(weight.dtype, weight.K);
    weight.chunk_rows = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, weight.N);
    DecodedWeight made{name, made_type, {}, std::move(replaced)};
    made.decoded.bytes = bytes(made_type);
    made.decoded.chunk_bytes = weight.chunk_rows * row_bytes;
    made.decoded.decode = [weight = std::move(weight)](int64_t chunk, std::span<std::byte> out) {
      return weight.decode(chunk, out);
    };
    return made;
  }

  // `scales`: the tensor of the name X.SCB.
  Result<DecodedWeight> read_8_bits(const std::string& scale_name, const ForeignTensor& scales) const {
    const std::string stem = scale_name.substr(0, scale_name.size() - kRowScales.size());
    const std::string name = stem + std::string(kWeight), form = stem + ".weight_format";
    std::vector<std::string> replaced = {scale_name, name};
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const codes, part(name, "", "i8", -1));
    if (codes->shape.rank() != 2 || codes->shape.elements() == 0)
      return wrong_bitsandbytes(format("tensor '{}' is i8 [{}], wanted a matrix", quote(name), codes->shape));
    CodesOf8Bits weight{file_.source, codes->shape[0], codes->shape[1], codes->offset, 1, {}};
    if (scales.shape.elements() != weight.N)
      return wrong_bitsandbytes(
          format("tensor '{}' is [{}], wanted [{}]", quote(scale_name), scales.shape, weight.N));
    TSR_ASSIGN_OR_RETURN(weight.scales, read_stored_numbers(*file_.source, scales, scale_name));
    if (const auto found = file_.tensors.find(form); found != file_.tensors.end()) {
      uint8_t code = 0;
      TSR_ASSIGN_OR_RETURN(const ForeignTensor* const order, part(form, "", "u8", 1));
      TSR_RETURN_IF_ERROR(file_.source->read_at(order->offset, std::as_writable_bytes(std::span(&code, 1))));
      if (code != 0)
        return Status(StatusCode::kUnsupported,
                      format("tensor '{}' is {}; wanted 0: codes row by row", quote(form), int{code}));
      replaced.push_back(form);
    }
    const TensorType made_type{DType::kF32, codes->shape};
    weight.chunk_rows = std::clamp<int64_t>(kChunkBytes / (weight.K * int64_t{sizeof(float)}), 1, weight.N);
    DecodedWeight made{name, made_type, {}, std::move(replaced)};
    made.decoded.bytes = bytes(made_type);
    made.decoded.chunk_bytes = weight.chunk_rows * weight.K * int64_t{sizeof(float)};
    made.decoded.decode = [weight = std::move(weight)](int64_t chunk, std::span<std::byte> out) {
      return weight.decode(chunk, out);
    };
    return made;
  }

 private:
  // The tensor name + suffix; `type` and count are checked if given.
  Result<const ForeignTensor*> part(const std::string& name, std::string_view suffix, std::string_view type,
                                    int64_t count) const {
    const std::string whole = name + std::string(suffix);
    const auto found = file_.tensors.find(whole);
    if (found == file_.tensors.end())
      return wrong_bitsandbytes(format("tensor '{}' is missing", quote(whole)));
    const ForeignTensor& tensor = found->second;
    if ((!type.empty() && tensor.type != type) || (count >= 0 && tensor.shape.elements() != count))
      return wrong_bitsandbytes(format("tensor '{}' is {} [{}], wanted {} [{}]", quote(whole), tensor.type,
                                       tensor.shape, type, count >= 0 ? to_text(count) : "N, K"));
    return &tensor;
  }

  Result<Json> read_state(const std::string& name, const ForeignTensor& state) const {
    if (state.type != "u8" || state.bytes > kMostStateBytes)
      return wrong_bitsandbytes(format("tensor '{}' is {} of {} bytes, wanted u8 of {} at most", quote(name),
                                       state.type, state.bytes, kMostStateBytes));
    std::string text(static_cast<size_t>(state.bytes), '\0');
    TSR_RETURN_IF_ERROR(file_.source->read_at(state.offset, std::as_writable_bytes(std::span(text))));
    TSR_ASSIGN_OR_RETURN(Json json, parse_json(text, format("tensor '{}'", quote(name))));
    if (!json.is_object())
      return wrong_bitsandbytes(
          format("tensor '{}' is {}, wanted an object", quote(name), quote_json(json, 60)));
    return json;
  }

  // Reads the extents, the block size, and the decoded type.
  static Status read_extents(JsonFields& fields, const std::string& name, const std::string& type,
                             CodesOf4Bits& weight) {
    fields.wants("quant_type", type, "the type that its name says");
    const std::vector<double> shape = fields.reals("shape", 2);
    weight.block_elements = fields.integer("blocksize", {}, 1, int64_t{1} << 20);
    const std::string computed = fields.text("dtype");
    TSR_RETURN_IF_ERROR(fields.status());
    const auto is_extent = [](double each) {
      return each >= 1 && each <= 0x1p31 - 1 && each == static_cast<double>(static_cast<int64_t>(each));
    };
    if (shape.size() != 2 || !std::ranges::all_of(shape, is_extent))
      return Status(StatusCode::kUnsupported,
                    format("tensor '{}': the state's shape has {} extents; wanted two, of a matrix",
                           quote(name), shape.size()));
    weight.N = static_cast<int64_t>(shape[0]), weight.K = static_cast<int64_t>(shape[1]);
    if (type == "nf4") {
      if (weight.block_elements % BlockNf4::kElements != 0)
        return Status(
            StatusCode::kUnsupported,
            format("tensor '{}' is nf4 in blocks of {}; wanted a multiple of {}: quantise it again with "
                   "another blocksize",
                   quote(name), weight.block_elements, BlockNf4::kElements));
      if (weight.K % BlockNf4::kElements != 0)
        return Status(
            StatusCode::kUnsupported,
            format("tensor '{}' is nf4 [{}, {}]: its rows are no whole blocks of {}; leave it out of the "
                   "quantisation (llm_int8_skip_modules), or save the model dequantised",
                   quote(name), weight.N, weight.K, BlockNf4::kElements));
      weight.dtype = DType::kNF4;
      return {};
    }
    if (type != "fp4")
      return Status(StatusCode::kUnsupported,
                    format("tensor '{}' is quantised as '{}'; known: fp4, nf4", quote(name), quote(type)));
    const std::optional<DType> dtype = computed == "float32"    ? std::optional(DType::kF32)
                                       : computed == "float16"  ? std::optional(DType::kF16)
                                       : computed == "bfloat16" ? std::optional(DType::kBF16)
                                                                : std::nullopt;
    if (!dtype)
      return Status(StatusCode::kUnsupported,
                    format("tensor '{}': dtype is '{}'; known: bfloat16, float16, float32", quote(name),
                           quote(computed)));
    weight.dtype = *dtype;
    return {};
  }

  const ForeignFile& file_;
};

}  // namespace

Result<std::vector<DecodedWeight>> bitsandbytes_weights(const ForeignFile& file) {
  std::vector<DecodedWeight> weights;
  const BitsandbytesReader reader(file);
  for (const auto& [name, tensor] : file.tensors) {
    if (name.find(kState) != std::string::npos) {
      TSR_ASSIGN_OR_RETURN(DecodedWeight weight, reader.read_4_bits(name, tensor));
      weights.push_back(std::move(weight));
    } else if (name.ends_with(kRowScales)) {
      TSR_ASSIGN_OR_RETURN(DecodedWeight weight, reader.read_8_bits(name, tensor));
      weights.push_back(std::move(weight));
    }
  }
  return weights;
}

}  // namespace tessera
