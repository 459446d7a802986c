#include "serialize/import/dense_modules.h"

#include <algorithm>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/models/dense_modules.h"
#include "graph/models/model_family.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/safetensors.h"
#include "serialize/model.h"
#include "serialize/plain_file.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
constexpr std::string_view kWeight = "linear.weight", kBias = "linear.bias", kIdentity = "Identity";

constexpr NameRule kNames[] = {
    {"dense.0", "modules.dense.0.linear.weight"}, {"dense.0.bias", "modules.dense.0.linear.bias"},
    {"dense.1", "modules.dense.1.linear.weight"}, {"dense.1.bias", "modules.dense.1.linear.bias"},
    {"dense.2", "modules.dense.2.linear.weight"}, {"dense.2.bias", "modules.dense.2.linear.bias"},
    {"dense.3", "modules.dense.3.linear.weight"}, {"dense.3.bias", "modules.dense.3.linear.bias"},
};
static_assert(std::size(kNames) == 2 * kMostDenseModules);

Result<Json> read_config(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const bool is_there, has_plain_file(path));
  if (!is_there) return Status(StatusCode::kNotFound, format("{} is missing: modules.json names its folder", path));
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostConfigBytes)
    return Status(StatusCode::kCorrupt, format("{} has {} bytes, wanted at most {}", path, file->size(), kMostConfigBytes));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  TSR_ASSIGN_OR_RETURN(Json json, parse_json(text, path));
  if (!json.is_object()) return Status(StatusCode::kCorrupt, format("{} is {}, wanted an object", path, quote_json(json, 60)));
  return json;
}

Result<std::shared_ptr<const ByteSource>> open_weights(const std::string& folder) {
  const std::string path = folder + "/model.safetensors", pickle = folder + "/pytorch_model.bin";
  TSR_ASSIGN_OR_RETURN(const bool is_there, has_plain_file(path));
  if (is_there) return open_file(path);
  TSR_ASSIGN_OR_RETURN(const bool is_pickled, has_plain_file(pickle));
  if (is_pickled)
    return Status(StatusCode::kUnsupported,
                  format("{} has its weights in pytorch_model.bin; save them as model.safetensors (save_pretrained of "
                         "sentence-transformers does)",
                         folder));
  return Status(StatusCode::kNotFound, format("{} is missing: modules.json names its folder", path));
}

// Takes the tensor `name` of the module's file out of `stored`.
Result<ForeignTensor> take_tensor(ForeignTensors& stored, std::string_view name, const Shape& shape, const std::string& folder) {
  const auto found = stored.find(name);
  if (found == stored.end())
    return Status(StatusCode::kCorrupt, format("{}/model.safetensors has no tensor '{}'", folder, name));
  if (found->second.shape != shape)
    return Status(StatusCode::kCorrupt, format("{}/model.safetensors: tensor '{}' is [{}], config.json makes it [{}]", folder, name,
                                               found->second.shape, shape));
  ForeignTensor tensor = std::move(found->second);
  stored.erase(found);
  return tensor;
}

}  // namespace

constexpr std::span<const NameRule> kDenseModuleNames = kNames;

Result<DenseModule> read_dense_module(const std::string& folder, int64_t channels) {
  const std::string path = folder + "/config.json";
  TSR_ASSIGN_OR_RETURN(const Json json, read_config(path));
  JsonFields fields(json, path);
  DenseModule module{.folder = folder, .width = fields.size("out_features"), .has_bias = fields.flag("bias", true)};
  if (const int64_t in = fields.size("in_features"); in != channels)
    fields.fail(StatusCode::kCorrupt, format("in_features is {}, the vectors before it have {} numbers", in, channels));
  const std::string activation = fields.text("activation_function", "torch.nn.modules.activation.Tanh");  // the class's default
  if (activation.substr(activation.rfind('.') + 1) != kIdentity)
    fields.fail(StatusCode::kUnsupported,
                format("activation_function is '{}'; Dense modules are layers of the model with torch.nn.modules.linear.Identity "
                       "alone",
                       quote(activation, 80)));
  for (const char* const key : {"module_input_name", "module_output_name"})
    if (fields.has(key)) fields.wants(key, "sentence_embedding", "vectors of texts");
  TSR_RETURN_IF_ERROR(fields.status());
  return module;
}

Status add_dense_sizes(std::span<const DenseModule> modules, ModelConfig& config) {
  if (modules.empty()) return {};
  const ModelFamily* const family = find_model_family(config.family);
  TSR_CHECK(family != nullptr, "a configuration is of a family");
  if (family->decoder == nullptr && family->encoder == nullptr)
    return Status(StatusCode::kUnsupported, format("modules.json has a Dense module, which a {} model has no layer for; wanted another "
                                                   "family, or a folder without it",
                                                   config.family));
  for (const DenseModule& module : modules) {
    config.lists["dense"].push_back(module.width);
    if (module.has_bias) config.flags["dense_bias"] = true;
  }
  if (family->decoder != nullptr) config.flags["head"] = false;
  return {};
}

Result<ForeignTensors> join_dense_files(std::span<const DenseModule> modules, int64_t channels, ForeignFile& file) {
  ForeignTensors tensors;
  std::vector<std::shared_ptr<const ByteSource>> sources = {file.source};
  int64_t base = file.source->size(), width = channels;
  for (size_t i = 0; i < modules.size(); ++i) {
    const DenseModule& module = modules[i];
    TSR_ASSIGN_OR_RETURN(auto source, open_weights(module.folder));
    Result<ForeignTensors> stored = read_safetensors(*source, base);
    if (!stored.ok()) return stored.status().with_context(module.folder + "/model.safetensors");
    TSR_ASSIGN_OR_RETURN(ForeignTensor weight, take_tensor(*stored, kWeight, Shape{module.width, width}, module.folder));
    tensors.emplace(kNames[2 * i].theirs, std::move(weight));
    if (module.has_bias) {
      TSR_ASSIGN_OR_RETURN(ForeignTensor bias, take_tensor(*stored, kBias, Shape{module.width}, module.folder));
      tensors.emplace(kNames[2 * i + 1].theirs, std::move(bias));
    }
    if (!stored->empty())
      return Status(StatusCode::kUnsupported, format("{}/model.safetensors has a tensor '{}', which its config.json does not have",
                                                     module.folder, quote(stored->begin()->first)));
    width = module.width;
    base += source->size();
    sources.push_back(std::move(source));
  }
  if (!modules.empty()) {
    TSR_ASSIGN_OR_RETURN(file.source, join_sources(std::move(sources)));
  }
  return tensors;
}

void add_absent_biases(std::span<const DenseModule> modules, ForeignPlaces& places) {
  if (std::ranges::none_of(modules, &DenseModule::has_bias)) return;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (modules[i].has_bias) continue;
    const std::string name = format("dense.{}.bias", i);
    const std::vector<float> zeros(static_cast<size_t>(modules[i].width));
    places.computed.emplace(name, source_in_memory(name, HostTensor::copy_of<float>({DType::kF32, {modules[i].width}}, zeros)));
  }
}

}  // namespace tessera
