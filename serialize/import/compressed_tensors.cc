#include "serialize/import/compressed_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

using Layout = WeightScheme::Layout;

constexpr size_t kMostTargets = 1 << 20;
constexpr int64_t kLargestBlock = int64_t{1} << 31;

// Format: what a format's weights are, as `type` and `num_bits` have to say.
struct Format {
  std::string_view name, type;
  Layout layout;
  int64_t least_bits, most_bits;
  int64_t group;  // the only group_size; 0: any strategy
  std::string_view codes, factor;
};
constexpr Format kFormats[] = {
    {"dense", "", Layout::kPlain, 1, 32, 0, ".weight", ""},
    {"float-quantized", "float", Layout::kFp8, 8, 8, 0, ".weight", ""},
    {"int-quantized", "int", Layout::kIntegers, 1, 8, 0, ".weight", ""},
    {"mxfp4-pack-quantized", "float", Layout::kMxfp4, 4, 4, 32, ".weight_packed", ""},
    {"mxfp8-quantized", "float", Layout::kMxfp8, 8, 8, 32, ".weight", ""},
    {"naive-quantized", "int", Layout::kIntegers, 1, 8, 0, ".weight", ""},
    {"naive-quantized", "float", Layout::kFp8, 8, 8, 0, ".weight", ""},
    {"nvfp4-pack-quantized", "float", Layout::kNvfp4, 4, 4, 16, ".weight_packed", ".weight_global_scale"},
    {"pack-quantized", "int", Layout::kPackedIntegers, 1, 8, 0, ".weight_packed", ""},
};

std::string known_formats() {
  std::vector<std::string> names;
  for (const Format& format : kFormats)
    if (names.empty() || names.back() != format.name) names.emplace_back(format.name);
  return join(names, ", ");
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// [rows, columns]; older files write "128x128".
std::optional<std::pair<int64_t, int64_t>> read_block(JsonFields& fields) {
  const Json* const value = fields.any("block_structure");
  if (value == nullptr) return std::nullopt;
  std::vector<double> sizes;
  if (value->is_string()) {
    for (const std::string& part : split(value->get<std::string>(), 'x'))
      sizes.push_back(static_cast<double>(parse_i64(part).value_or(0)));
  } else {
    sizes = fields.reals("block_structure", 2);
  }
  const auto is_size = [](double each) {
    return each >= 1 && each < static_cast<double>(kLargestBlock) && each == static_cast<double>(static_cast<int64_t>(each));
  };
  if (sizes.size() == 2 && std::ranges::all_of(sizes, is_size))
    return std::pair(static_cast<int64_t>(sizes[0]), static_cast<int64_t>(sizes[1]));
  fields.fail(StatusCode::kCorrupt,
              format("block_structure is {}, wanted two whole numbers, rows and columns", quote_json(*value, 60)));
  return std::nullopt;
}

// Sets which numbers have one scale.
void read_strategy(JsonFields& fields, const Format& form, WeightScheme& scheme) {
  const int64_t group = fields.integer("group_size", 0, -1, kLargestBlock);
  const bool has_group = fields.has("group_size");
  const std::string implied = group > 0 ? "group" : group == -1 ? "channel" : "tensor";
  const std::string strategy = lower(fields.text("strategy", implied));
  const auto block = read_block(fields);
  if (has_group && group == 0) {
    fields.fail(StatusCode::kCorrupt, "group_size is 0, wanted -1 (a whole row) or a positive number");
  } else if (strategy == "tensor" && form.group == 0) {
    scheme.block_rows = scheme.block_columns = 0;
  } else if (strategy == "channel" && form.group == 0) {
    scheme.block_rows = 1;
  } else if (strategy == "group" || (strategy == "tensor_group" && form.layout == Layout::kNvfp4)) {
    scheme.block_rows = 1;
    scheme.block_columns = group;
    if (group <= 0) fields.fail(StatusCode::kCorrupt, format("group_size is {}, wanted a positive number for groups", group));
    if (form.group > 0 && group != form.group)
      fields.fail(StatusCode::kUnsupported, format("group_size is {}; {} has groups of {}", group, form.name, form.group));
  } else if (strategy == "block" && form.group == 0 && form.layout != Layout::kPackedIntegers) {
    if (!block) fields.fail(StatusCode::kCorrupt, "block_structure is missing, wanted [rows, columns] for the strategy 'block'");
    std::tie(scheme.block_rows, scheme.block_columns) = block.value_or(std::pair(int64_t{1}, int64_t{1}));
  } else {
    fields.fail(StatusCode::kUnsupported, format("strategy is '{}'; known for {}: {}", quote(strategy, 80), form.name,
                                                 form.layout == Layout::kNvfp4            ? "tensor_group, group"
                                                 : form.group > 0                         ? "group"
                                                 : form.layout == Layout::kPackedIntegers ? "channel, group, tensor"
                                                                                          : "block, channel, group, tensor"));
  }
}

WeightScheme read_scheme(JsonFields& fields, const std::string& format_name) {
  const std::string type = lower(fields.text("type", "int"));
  WeightScheme scheme;
  const auto form = std::ranges::find_if(kFormats, [&](const Format& each) {
    return each.name == format_name && (each.type.empty() || each.type == type || each.name != "naive-quantized");
  });
  if (form == std::end(kFormats)) {
    fields.fail(StatusCode::kUnsupported, format_name == "naive-quantized"
                                              ? format("type is '{}'; known: float, int", quote(type, 80))
                                              : format("format is '{}'; known: {}", quote(format_name, 80), known_formats()));
    return scheme;
  }
  scheme.layout = form->layout;
  scheme.codes = form->codes;
  scheme.factor = form->factor;
  scheme.divides = true;
  if (form->layout == Layout::kPlain) return scheme;
  if (type != form->type)
    fields.fail(StatusCode::kUnsupported, format("type is '{}'; {} has '{}'", quote(type, 80), form->name, form->type));
  scheme.bits = fields.integer("num_bits", 8, 1, 64);
  if (scheme.bits < form->least_bits || scheme.bits > form->most_bits)
    fields.fail(StatusCode::kUnsupported,
                format("num_bits is {}; {} can be read with {}", scheme.bits, form->name,
                       form->least_bits == form->most_bits ? to_text(form->least_bits)
                                                           : format("{} to {}", form->least_bits, form->most_bits)));
  scheme.has_zeros = !fields.flag("symmetric", true);
  if (scheme.has_zeros && type == "float")
    fields.fail(StatusCode::kUnsupported, format("symmetric is false; floats can be read without zero points alone"));
  fields.wants("dynamic", false, "weights quantised in the file");
  read_strategy(fields, *form, scheme);
  return scheme;
}

// Whether an object without use here is there: null and {} are not.
bool is_there(JsonFields& fields, std::string_view key) {
  const Json* const value = fields.any(key);
  return value != nullptr && !(value->is_object() && value->empty());
}

Status read_group(const std::string& name, const Json& json, const std::string& whole_format, ModuleSchemes& schemes) {
  JsonFields fields(json, format("config.json: quantization_config.config_groups.{}", quote(name, 60)));
  if (!json.is_object()) {
    fields.fail(StatusCode::kUnsupported, format("it is {}, wanted an object", quote_json(json, 60)));
    return fields.status();
  }
  for (const char* const key : {"input_activations", "output_activations"})
    if (is_there(fields, key) && std::ranges::find(schemes.left_out, key) == schemes.left_out.end())
      schemes.left_out.emplace_back(key);
  const std::vector<std::string> targets = fields.texts("targets", kMostTargets);
  const std::string own = fields.text("format", whole_format);
  const Json* const weights = fields.object("weights");
  TSR_RETURN_IF_ERROR(fields.status());
  if (weights == nullptr) return {};  // a group of activations, keys and values
  JsonFields inner(*weights, format("config.json: quantization_config.config_groups.{}.weights", quote(name, 60)));
  ModuleGroup group{"config_groups." + name, read_scheme(inner, own), {}};
  TSR_RETURN_IF_ERROR(inner.status());
  if (targets.empty()) fields.fail(StatusCode::kCorrupt, "targets is empty, wanted names of modules, classes or patterns");
  for (const std::string& target : targets) group.targets.push_back(module_pattern(target));
  schemes.groups.push_back(std::move(group));
  return fields.status();
}

}  // namespace

Result<ModuleSchemes> read_compressed_tensors(JsonFields& fields) {
  ModuleSchemes schemes;
  fields.wants("quantization_status", "compressed", "weights in fewer bits");
  for (const char* const key : {"transform_config", "moe_sparsity_config"})
    if (is_there(fields, key))
      fields.fail(StatusCode::kUnsupported,
                  format("{} is {}; only weights without it can be read", key, quote_json(*fields.any(key), 60)));
  if (is_there(fields, "sparsity_config")) {
    const Json& sparsity = *fields.any("sparsity_config");
    if (!sparsity.is_object() || !sparsity.contains("format") || sparsity["format"] != "dense")
      fields.fail(StatusCode::kUnsupported,
                  format("sparsity_config is {}; only dense weights can be read", quote_json(sparsity, 60)));
  }
  if (is_there(fields, "kv_cache_scheme")) schemes.left_out.emplace_back("kv_cache_scheme");
  const std::string whole_format = fields.text("format", "");
  for (const std::string& pattern : fields.texts("ignore", kMostTargets)) schemes.ignored.push_back(module_pattern(pattern));
  const Json* const groups = fields.object("config_groups");
  if (groups == nullptr) fields.fail(StatusCode::kCorrupt, "config_groups is missing, wanted an object of groups of modules");
  TSR_RETURN_IF_ERROR(fields.status());
  for (const auto& [name, group] : groups->items()) TSR_RETURN_IF_ERROR(read_group(name, group, whole_format, schemes));
  return schemes;
}

}  // namespace tessera
