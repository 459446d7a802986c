#include "engine/model/adapter_folder.h"

#include <filesystem>
#include <system_error>

#include "engine/base/text_file.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/export/peft_export.h"
#include "text/python_json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostConfigBytes = size_t{16} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

bool is_adapter_folder(const std::string& path) {
  std::error_code ignored;
  const fs::path folder(path);
  if (!fs::is_directory(folder, ignored) || !fs::is_regular_file(folder / "adapter_config.json", ignored))
    return false;
  for (const char* of_model : {"model.safetensors", "model.safetensors.index.json"})
    if (is_there(folder / of_model)) return false;
  return true;
}

Result<std::string> base_of_adapters(const std::string& folder) {
  const std::string path = folder + "/adapter_config.json";
  TSR_ASSIGN_OR_RETURN(const std::string text,
                       read_text_file(path, "adapter configuration", kMostConfigBytes));
  TSR_ASSIGN_OR_RETURN(const Json config, parse_python_json(text, path));
  const auto found = config.is_object() ? config.find("base_model_name_or_path") : config.end();
  const std::string base = found != config.end() && found->is_string() ? found->get<std::string>() : "";
  const std::string relative = relative_base_of(folder);
  std::vector<fs::path> places;
  if (!base.empty() && fs::path(base).is_absolute()) places.emplace_back(base);
  if (!relative.empty()) places.push_back(fs::path(folder) / relative);
  if (!base.empty() && !fs::path(base).is_absolute())
    places.push_back(fs::path(folder) / base), places.emplace_back(base);
  for (const fs::path& place : places)
    if (is_there(place)) return place.lexically_normal().string();
  return Status(
      StatusCode::kNotFound,
      format(
          "{} holds adapters, {}: give the base as the model and the folder as its adapters (--adapter {}, "
          "tsr_model_load_adapters)",
          folder,
          base.empty() ? std::string("and adapter_config.json does not name the model that they are of")
                       : format("and the model that they are of, '{}', is not here", quote(base)),
          folder));
}

}  // namespace tessera
