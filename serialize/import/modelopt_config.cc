#include "serialize/import/modelopt_config.h"

#include <algorithm>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/json_fields.h"

namespace tessera {
namespace {

using Layout = WeightScheme::Layout;

constexpr std::string_view kMixed = "MIXED_PRECISION";
constexpr size_t kMostModules = 1 << 20;

struct Algorithm {
  std::string_view name;
  Layout layout;
  int64_t bits, block_rows, block_columns;
};
// Algorithms that also round activations store weights as those that do not.
constexpr Algorithm kAlgorithms[] = {
    {"FP8", Layout::kFp8, 8, 0, 0},
    {"FP8_PB_REAL", Layout::kFp8, 8, 128, 128},
    {"FP8_PB_WO", Layout::kFp8, 8, 128, 128},
    {"FP8_PER_CHANNEL_PER_TOKEN", Layout::kFp8, 8, 1, 0},
    {"MXFP8", Layout::kMxfp8, 8, 1, 32},
    {"NVFP4", Layout::kNvfp4, 4, 1, 16},
    {"NVFP4_AWQ", Layout::kNvfp4, 4, 1, 16},
    {"W4A16_NVFP4", Layout::kNvfp4, 4, 1, 16},
    {"W4A8_MXFP4_FP8", Layout::kMxfp4, 4, 1, 32},
    {"W4A8_NVFP4_FP8", Layout::kNvfp4, 4, 1, 16},
    {"W8A16", Layout::kIntegers, 8, 1, 0},
    {"W8A8_SQ_PER_CHANNEL", Layout::kIntegers, 8, 1, 0},
};

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

Result<WeightScheme> scheme_of(const std::string& name) {
  const auto found = std::ranges::find(kAlgorithms, std::string_view(name), &Algorithm::name);
  if (found == std::end(kAlgorithms)) {
    std::vector<std::string> known;
    for (const Algorithm& each : kAlgorithms) known.emplace_back(each.name);
    return Status(StatusCode::kUnsupported,
                  format("modelopt: quant_algo is '{}'; known: {}, {}", quote(name, 80), join(known, ", "), kMixed));
  }
  WeightScheme scheme;
  scheme.layout = found->layout;
  scheme.bits = found->bits;
  scheme.block_rows = found->block_rows;
  scheme.block_columns = found->block_columns;
  if (found->layout == Layout::kNvfp4) scheme.factor = ".weight_scale_2";
  return scheme;
}

// The algorithm of one module.
Status read_layer(const std::string& name, const Json& json, const std::string& where, ModeloptConfig& config) {
  JsonFields fields(json, format("{}.quantized_layers.{}", where, quote(name, 60)));
  if (!json.is_object()) fields.fail(StatusCode::kCorrupt, format("it is {}, wanted an object", quote_json(json, 60)));
  config.layers[name] = upper(fields.text("quant_algo", ""));
  return fields.status();
}

}  // namespace

Result<ModeloptConfig> read_modelopt(const Json& json, std::string_view where_given) {
  std::string where(where_given);
  if (!json.is_object()) return Status(StatusCode::kCorrupt, format("{} is {}, wanted an object", where, quote_json(json, 60)));
  const auto inner = json.find("quantization");
  const bool is_nested = inner != json.end() && inner->is_object();
  if (is_nested) where += ".quantization";
  JsonFields fields(is_nested ? *inner : json, where);
  ModeloptConfig config;
  config.algorithm = upper(fields.text("quant_algo", ""));
  for (const char* const key : {"exclude_modules", "ignore"})
    for (std::string& pattern : fields.texts(key, kMostModules)) config.excluded.push_back(std::move(pattern));
  std::ranges::sort(config.excluded);
  config.excluded.erase(std::unique(config.excluded.begin(), config.excluded.end()), config.excluded.end());
  config.caches_keys = fields.has("kv_cache_quant_algo") || fields.has("kv_cache_scheme");
  const Json* const layers = fields.object("quantized_layers");
  if (layers != nullptr && config.algorithm == kMixed)
    for (const auto& [name, layer] : layers->items()) TSR_RETURN_IF_ERROR(read_layer(name, layer, where, config));
  if (config.algorithm == kMixed && config.layers.empty())
    fields.fail(StatusCode::kCorrupt, "quantized_layers is missing, wanted the algorithm of each module of MIXED_PRECISION");
  TSR_RETURN_IF_ERROR(fields.status());
  return config;
}

Status check_agrees(const ModeloptConfig& config, const ModeloptConfig& file) {
  const auto differ = [](std::string_view key, const std::string& one, const std::string& other) {
    return Status(
        StatusCode::kUnsupported,
        format("quantization_config of config.json has {} '{}', hf_quant_config.json '{}'; correct the wrong one of the "
               "two, or take it away",
               key, quote(one, 100), quote(other, 100)));
  };
  if (config.algorithm != file.algorithm) return differ("quant_algo", config.algorithm, file.algorithm);
  if (config.excluded != file.excluded) return differ("exclude_modules", join(config.excluded, ", "), join(file.excluded, ", "));
  const auto [one, other] = std::ranges::mismatch(config.layers, file.layers);
  if (one == config.layers.end() && other == file.layers.end()) return {};
  const auto text = [](auto at, const auto& map) {
    return at == map.end() ? std::string("no more modules") : format("{}: {}", at->first, at->second);
  };
  return differ("quantized_layers", text(one, config.layers), text(other, file.layers));
}

Result<ModuleSchemes> modelopt_schemes(const ModeloptConfig& config) {
  ModuleSchemes schemes;
  schemes.wants_matches = false;  // its layers and patterns may name modules of other classes
  if (config.caches_keys) schemes.left_out.emplace_back("kv_cache_quant_algo");
  for (const std::string& pattern : config.excluded)
    schemes.ignored.push_back(
        {pattern.find('*') == pattern.npos ? ModulePattern::Kind::kName : ModulePattern::Kind::kWildcard, pattern});
  if (config.algorithm.empty()) return schemes;
  if (config.algorithm != kMixed) {
    TSR_ASSIGN_OR_RETURN(const WeightScheme scheme, scheme_of(config.algorithm));
    schemes.groups.push_back({"quant_algo " + config.algorithm, scheme, {{ModulePattern::Kind::kWildcard, "*"}}});
    return schemes;
  }
  std::map<std::string, ModuleGroup> groups;
  for (const auto& [layer, algorithm] : config.layers) {
    ModuleGroup& group = groups[algorithm];
    if (group.targets.empty()) {
      TSR_ASSIGN_OR_RETURN(group.scheme, scheme_of(algorithm));
      group.name = "quantized_layers of " + algorithm;
    }
    group.targets.push_back({ModulePattern::Kind::kBeginning, layer});
  }
  for (auto& [algorithm, group] : groups) schemes.groups.push_back(std::move(group));
  return schemes;
}

}  // namespace tessera
