#include "capi/engine/load_tokenizer.h"

#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"
#include "serialize/model.h"
#include "serialize/model_format.h"
#include "serialize/opened_model.h"

namespace tessera {
namespace {

Result<std::optional<TokenizerData>> read_tokenizer_data(const std::shared_ptr<const ByteSource>& source) {
  TSR_ASSIGN_OR_RETURN(const ModelFormat format, model_format(*source));
  if (format == ModelFormat::kGguf) {
    TSR_ASSIGN_OR_RETURN(const GgufFile file, open_gguf_metadata(source));
    return gguf_tokenizer(file);
  }
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_tsr(source));
  return std::move(opened.model.tokenizer);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const ByteSource> source,
                       open_file(path));  // its errors already name the path
  Result<std::optional<TokenizerData>> data = read_tokenizer_data(source);
  if (!data.ok()) return data.status().with_context(path);
  if (!data->has_value()) return Status(StatusCode::kNotFound, format("{} holds no tokenizer", path));
  return Tokenizer::create(std::move(**data));
}

}  // namespace tessera
