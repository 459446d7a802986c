// GGUF model -> Model: hyper-parameters give the graph through its family, tensors become its parameters by
// name. Weights are [N, K] in both, so nothing is transposed; they keep the file's element types and stay in
// the file.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/scaled_products.h"
#include "graph/transform/weight_storage.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/gguf_hyperparameters.h"
#include "serialize/import/gguf_names.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

struct Architecture {
  std::string_view name;  // ours and the file's
  Result<ModelConfig> (*read)(const GgufFile&);
};
constexpr Architecture kArchitectures[] = {{"llama", read_llama_hyperparameters},
                                           {"gpt2", read_gpt2_hyperparameters}};

GgufName their_name(const Architecture& architecture, std::string_view parameter) {
  std::optional<GgufName> name = gguf_name(architecture.name, parameter);
  TSR_CHECK(name.has_value(), "a parameter of the family has no name in GGUF");
  return *std::move(name);
}

// Whether two tensors hold the same bytes: a file may store a tied output projection twice.
Result<bool> same_contents(const GgufFile& file, const GgufTensor& a, const GgufTensor& b) {
  if (a.type != b.type || a.dims != b.dims) return false;
  std::vector<std::byte> left(size_t{1} << 18), right(left.size());
  for (int64_t done = 0; done < a.bytes;) {
    const auto part =
        static_cast<size_t>(std::min<int64_t>(a.bytes - done, static_cast<int64_t>(left.size())));
    cancellation_point();
    TSR_RETURN_IF_ERROR(file.source()->read_at(a.offset + done, std::span(left).first(part)));
    TSR_RETURN_IF_ERROR(file.source()->read_at(b.offset + done, std::span(right).first(part)));
    if (!std::equal(left.begin(), left.begin() + static_cast<ptrdiff_t>(part), right.begin())) return false;
    done += static_cast<int64_t>(part);
  }
  return true;
}

// A parameter's place in the file.
struct StoredParameter {
  DType dtype = DType::kF32;
  int64_t offset = 0, bytes = 0;
};

Result<StoredParameter> find_stored(const GgufTensor& tensor, int part, const TensorType& type) {
  std::vector<int64_t> extents(tensor.dims.rbegin(), tensor.dims.rend());
  const int64_t parts = part < 0 ? 1 : 3;
  const bool divides = part < 0 || (!extents.empty() && extents[0] % parts == 0);
  if (divides && part >= 0) extents[0] /= parts;
  if (!divides || !std::ranges::equal(extents, type.shape.dims())) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' is [{}]{}, the model wants [{}]", tensor.name,
                                               Shape(extents), part < 0 ? "" : " per third", type.shape));
  }
  const DType stored = *gguf_tensor_type(tensor.type);
  if (type.shape.elements() % info(stored).block_elements != 0) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' cannot be split between blocks", tensor.name));
  }
  const int64_t bytes = dtype_bytes(stored, type.shape.elements());
  return StoredParameter{stored, tensor.offset + (part < 0 ? 0 : part * bytes), bytes};
}

// The largest alignment that a type's bytes need: of its fields.
size_t alignment_of(DType dtype) {
  return is_block_type(dtype) ? 2 : static_cast<size_t>(dtype_bytes(dtype, 1));
}

// The file's own bytes, in place where they are mapped and aligned.
TensorSource source_as_stored(const GgufFile& file, const StoredParameter& stored, std::string name,
                              const TensorType& type) {
  TensorSource tensor{std::move(name), type, {}, 1, {}, {}};
  const std::span<const std::byte> mapped = file.source()->map(stored.offset, stored.bytes);
  const bool aligned = reinterpret_cast<uintptr_t>(mapped.data()) % alignment_of(stored.dtype) == 0;
  if (static_cast<int64_t>(mapped.size()) == stored.bytes && aligned)
    tensor.in_place = HostTensor{type, mapped, file.source()};
  tensor.read = [source = file.source(), at = stored.offset](
                    int64_t begin, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    TSR_RETURN_IF_ERROR(source->read_at(at + begin, buffer));
    return std::span<const std::byte>(buffer);
  };
  return tensor;
}

// Decoded to f32, slice by slice.
TensorSource source_widened(const GgufFile& file, const StoredParameter& stored, std::string name,
                            const TensorType& type) {
  TensorSource tensor{
      std::move(name), type, {}, info(stored.dtype).block_elements * int64_t{sizeof(float)}, {}, {}};
  tensor.read = [source = file.source(), dtype = stored.dtype, at = stored.offset](
                    int64_t begin, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    const auto count = static_cast<int64_t>(buffer.size() / sizeof(float));
    const int64_t from = at + dtype_bytes(dtype, begin / int64_t{sizeof(float)});
    std::vector<std::byte> copy(static_cast<size_t>(dtype_bytes(dtype, count)));
    TSR_RETURN_IF_ERROR(source->read_at(from, copy));
    decode_blocks(dtype, copy.data(), reinterpret_cast<float*>(buffer.data()), count);
    return std::span<const std::byte>(buffer);
  };
  return tensor;
}

// The value as the graph wants it.
Result<TensorSource> parameter_source(const GgufFile& file, const StoredParameter& stored, std::string name,
                                      const TensorType& type) {
  if (stored.dtype == type.dtype) return source_as_stored(file, stored, std::move(name), type);
  if (type.dtype != DType::kF32 || !can_decode(stored.dtype))
    return unsupported(format("tensor '{}' is stored as {}, the model wants {}", name, to_text(stored.dtype),
                              to_text(type.dtype)));
  return source_widened(file, stored, std::move(name), type);
}

// Before any is read: what is missing is told at once, and costs nothing.
Status check_tensors(const GgufFile& file, const Architecture& architecture, const Model& model) {
  std::vector<std::string> missing;
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    GgufName theirs = their_name(architecture, model.graph.tensor(id).name);
    if (!file.tensors().contains(theirs.tensor) && (missing.empty() || missing.back() != theirs.tensor))
      missing.push_back(std::move(theirs.tensor));
  }
  if (missing.empty()) return {};
  constexpr size_t kNamed = 3;
  const std::string more =
      missing.size() > kNamed ? format(" and {} more", missing.size() - kNamed) : std::string();
  const auto named = std::span(missing).first(std::min(missing.size(), kNamed));
  const std::string remedy = file.tensors().empty() && model.tokenizer
                                 ? "; the file holds a vocabulary alone, which can be used as a tokenizer"
                                 : "";
  return Status(StatusCode::kCorrupt,
                format("{} '{}'{} {} missing{}", missing.size() == 1 ? "tensor" : "tensors",
                       join(named, "', '"), more, missing.size() == 1 ? "is" : "are", remedy));
}

// The tensor "X.scale" of a weight "X.weight", with which NVFP4 files come: one number, which the weight's
// products are multiplied by. Null for none.
const GgufTensor* find_product_scale(const GgufFile& file, std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return nullptr;
  const auto found =
      file.tensors().find(std::string(weight.substr(0, weight.size() - kWeight.size())) + ".scale");
  return found == file.tensors().end() ? nullptr : &found->second;
}

Result<float> read_product_scale(const GgufFile& file, const GgufTensor& tensor) {
  if (gguf_tensor_type(tensor.type) != DType::kF32 || tensor.bytes != int64_t{sizeof(float)})
    return unsupported(format("tensor '{}' is {} of {} bytes; a weight's scale is one number of f32",
                              tensor.name, to_text(*gguf_tensor_type(tensor.type)), tensor.bytes));
  float value = 0;
  TSR_RETURN_IF_ERROR(
      file.source()->read_at(tensor.offset, std::as_writable_bytes(std::span<float, 1>(&value, 1))));
  if (!std::isfinite(value))
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}' is {}; a weight's scale is finite", tensor.name, value));
  return value;
}

Status find_parameters(const GgufFile& file, const Architecture& architecture,
                       const std::set<std::string>& left_out, OpenedModel& opened) {
  Model& model = opened.model;
  TSR_RETURN_IF_ERROR(check_tensors(file, architecture, model));
  std::set<std::string> used = left_out;
  std::map<std::string, StoredParameter> places;
  WeightStorage storage;
  ProductScales scales;
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& parameter = model.graph.tensor(id);
    const GgufName theirs = their_name(architecture, parameter.name);
    auto tensor = file.tensors().find(theirs.tensor);
    TSR_ASSIGN_OR_RETURN(const StoredParameter place,
                         find_stored(tensor->second, theirs.part, parameter.type));
    storage.types.emplace(parameter.name, place.dtype);
    places.emplace(parameter.name, place);
    used.insert(theirs.tensor);
    if (const GgufTensor* scale = find_product_scale(file, theirs.tensor)) {
      TSR_ASSIGN_OR_RETURN(const float value, read_product_scale(file, *scale));
      used.insert(scale->name);
      if (value != 1) scales.emplace(parameter.name, value);
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!used.contains(name)) {
      return unsupported(
          format("tensor '{}' has no place in a {} model: the file is a variant that is not supported", name,
                 architecture.name));
    }
  }
  if (!scales.empty()) {
    TSR_ASSIGN_OR_RETURN(model.graph, with_scaled_products(model.graph, scales));
    model.metadata.erase("description");  // which makes a graph without them
  }
  TSR_ASSIGN_OR_RETURN(model.graph, with_stored_weights(model.graph, storage));
  for (TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& parameter = model.graph.tensor(id);
    TSR_ASSIGN_OR_RETURN(TensorSource found, parameter_source(file, places.at(parameter.name),
                                                              parameter.name, parameter.type));
    opened.parameters.push_back(std::move(found));
  }
  return {};
}

Status read_metadata(const GgufFile& file, Model& model) {
  for (const auto& [key, value] : file.metadata()) {
    constexpr std::string_view kPrefix = "general.";
    if (!key.starts_with(kPrefix) || !std::holds_alternative<std::string>(value)) continue;
    TSR_ASSIGN_OR_RETURN(model.metadata[key.substr(kPrefix.size())], file.text(key));
  }
  model.metadata["source_format"] = "gguf";
  return {};
}

ModelOrigin origin_of(const GgufFile& file) {
  ModelOrigin origin;
  origin.format = "gguf";
  origin.files = std::max<int64_t>(1, static_cast<int64_t>(file.source()->paths().size()));
  std::map<std::string, StoredTensors> by_type;
  for (const auto& [name, tensor] : file.tensors()) {
    StoredTensors& stored = by_type[to_text(*gguf_tensor_type(tensor.type))];
    ++stored.tensors;
    stored.bytes += tensor.bytes;
  }
  for (auto& [type, stored] : by_type) {
    stored.type = type;
    origin.stored.push_back(stored);
  }
  for (const auto& [key, value] : file.metadata())
    (file.was_read(key) ? origin.used : origin.unused).emplace_back(key, value_text(value));
  return origin;
}

}  // namespace

Result<OpenedModel> open_gguf(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(GgufFile file, open_gguf_parts(std::move(source)));
  OpenedModel opened;
  Model& model = opened.model;
  TSR_ASSIGN_OR_RETURN(model.tokenizer, gguf_tokenizer(file));
  TSR_RETURN_IF_ERROR(read_metadata(file, model));
  TSR_ASSIGN_OR_RETURN(std::string name, file.text("general.architecture"));
  auto architecture = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (architecture == std::end(kArchitectures)) {
    const bool vocabulary_alone = file.tensors().empty() && model.tokenizer;
    return unsupported(format("general.architecture is '{}'; llama and gpt2 can be imported{}", name,
                              vocabulary_alone ? "; its vocabulary can be used as a tokenizer" : ""));
  }

  TSR_ASSIGN_OR_RETURN(ModelConfig config, architecture->read(file));
  model.metadata["context_length"] = to_text(config.sizes["T"]);
  std::set<std::string> left_out;
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding != file.tensors().end() && embedding->second.dims.size() == 2) {
    config.sizes["V"] = embedding->second.dims[1];
    const auto output = file.tensors().find("output.weight");
    config.flags["tied"] = output == file.tensors().end();
    if (output != file.tensors().end()) {
      TSR_ASSIGN_OR_RETURN(config.flags["tied"], same_contents(file, embedding->second, output->second));
      if (config.flags["tied"]) left_out.insert("output.weight");
    }
  } else {
    const auto tokens = model.tokenizer ? static_cast<int64_t>(model.tokenizer->tokens.size()) : 0;
    TSR_ASSIGN_OR_RETURN(config.sizes["V"], file.integer(name + ".vocab_size", tokens));
  }
  TSR_ASSIGN_OR_RETURN(model.graph, build_model(config));
  model.metadata["description"] = to_text(config);
  TSR_RETURN_IF_ERROR(find_parameters(file, *architecture, left_out, opened));
  model.origin = origin_of(file);
  model.source = file.source();
  return opened;
}

Result<Model> import_gguf(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_gguf(std::move(source)));
  return read_values(std::move(opened));
}

}  // namespace tessera
