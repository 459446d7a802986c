#include "engine/model/quantize.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "graph/base/text.h"
#include "serialize/model_writer.h"
#include "serialize/opened_model.h"

namespace tessera {
namespace {

constexpr int64_t kMostThreads = 1024;

Result<std::optional<DType>> read_type(OptionReader& reader, std::string_view key) {
  const std::string name = reader.word(key);
  if (name.empty()) return std::optional<DType>();
  Result<DType> type = encodable_type(name);
  if (!type.ok()) return type.status().with_context(std::string(key));
  return std::optional<DType>(*type);
}

Result<std::shared_ptr<const ImportanceMatrix>> read_importance(const std::string& path) {
  if (path.empty()) return std::shared_ptr<const ImportanceMatrix>();
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(path));
  Result<ImportanceMatrix> matrix = ImportanceMatrix::read(std::move(source));
  if (!matrix.ok()) return matrix.status().with_context(path);
  return std::shared_ptr<const ImportanceMatrix>(
      std::make_shared<const ImportanceMatrix>(std::move(matrix).value()));
}

}  // namespace

Result<std::optional<QuantizationSettings>> read_quantization_settings(OptionReader& reader) {
  QuantizationSettings settings;
  const bool has_type = reader.has("type");
  const bool has_others = reader.has("pure") || reader.has("imatrix") || reader.has("output_type") ||
                          reader.has("embedding_type");
  settings.mix.type = reader.word("type", settings.mix.type);
  settings.mix.pure = reader.flag("pure", false);
  const int64_t threads = reader.i64("threads", 0, 0, kMostThreads);
  const std::string imatrix = reader.text("imatrix");
  Result<std::optional<DType>> output = read_type(reader, "output_type");
  Result<std::optional<DType>> embedding = read_type(reader, "embedding_type");
  TSR_RETURN_IF_ERROR(reader.finish());
  if (!has_type && has_others)
    return Status(StatusCode::kInvalidArgument,
                  "pure, imatrix, output_type and embedding_type say how to quantise, and type is missing: "
                  "give one, such as q4_k_m");
  if (!has_type) return std::optional<QuantizationSettings>();
  TSR_RETURN_IF_ERROR(check_mix_name(settings.mix.type));
  TSR_ASSIGN_OR_RETURN(settings.mix.output_type, std::move(output));
  TSR_ASSIGN_OR_RETURN(settings.mix.embedding_type, std::move(embedding));
  TSR_ASSIGN_OR_RETURN(settings.importance, read_importance(imatrix));
  settings.mix.has_importance = settings.importance != nullptr;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  settings.threads = static_cast<int32_t>(threads == 0 ? std::max<int64_t>(1, cores) : threads);
  return std::optional<QuantizationSettings>(std::move(settings));
}

Json quantization_json(const QuantizationSettings& settings, const Quantization& quantization) {
  Json tensors = Json::array();
  int64_t in = 0, out = 0, fallbacks = 0;
  EncodingError all;
  for (const QuantizedTensor& it : quantization.tensors()) {
    Json tensor = {{"name", it.name},
                   {"from", to_text(it.from.dtype)},
                   {"to", to_text(it.to.dtype)},
                   {"bytes_in", bytes(it.from)},
                   {"bytes_out", bytes(it.to)},
                   {"error", it.error ? it.error->relative() : 0.0},
                   {"weighted", it.is_weighted}};
    if (it.wanted != it.to.dtype) {
      tensor["wanted"] = to_text(it.wanted);
      tensor["width"] = it.to.shape.dims().back();
      ++fallbacks;
    }
    tensors.push_back(std::move(tensor));
    in += bytes(it.from);
    out += bytes(it.to);
    if (!it.error) continue;
    all.squared_errors += it.error->squared_errors;
    all.squares += it.error->squares;
  }
  return {{"type", settings.mix.type}, {"bytes_in", in},         {"bytes_out", out},
          {"error", all.relative()},   {"fallbacks", fallbacks}, {"tensors", std::move(tensors)}};
}

}  // namespace tessera
