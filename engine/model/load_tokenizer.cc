#include "engine/model/load_tokenizer.h"

#include <filesystem>

#include "engine/model/adapter_folder.h"
#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/tokenizer_folder.h"
#include "serialize/model.h"
#include "serialize/model_format.h"
#include "serialize/opened_model.h"
#include "text/tokenizer/hugging_face.h"

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

Result<std::shared_ptr<const Tokenizer>> load_hf_tokenizer(const std::string& path) {
  Result<std::optional<TokenizerData>> data = hf_folder_tokenizer(path);
  if (!data.ok()) return data.status().with_context(path);
  if (!data->has_value())
    return Status(
        StatusCode::kNotFound,
        format("{} holds no tokenizer: wanted tokenizer.json, tokenizer.model, vocab.json or vocab.txt",
               path));
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::create(std::move(**data));
  if (!tokenizer.ok()) return tokenizer.status().with_context(path);
  return tokenizer;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (is_adapter_folder(path) && !std::filesystem::exists(path + "/tokenizer.json", ignored)) {
    TSR_ASSIGN_OR_RETURN(const std::string base, base_of_adapters(path));
    if (!is_adapter_folder(base)) return load_tokenizer(base);
  }
  if (path.ends_with(".json") || std::filesystem::is_directory(path, ignored)) return load_hf_tokenizer(path);
  if (path.ends_with(".safetensors")) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return load_hf_tokenizer(folder.empty() ? "." : folder);
  }
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<const ByteSource> source,
                       open_file(path));  // its errors name the path
  Result<std::optional<TokenizerData>> data = read_tokenizer_data(source);
  if (!data.ok()) return data.status().with_context(path);
  if (!data->has_value()) return Status(StatusCode::kNotFound, format("{} holds no tokenizer", path));
  return Tokenizer::create(std::move(**data));
}

}  // namespace tessera
