// Fields are known or refused by tables, unknown ones refused. A module is selected as PEFT does: by a name's last
// components or a regular expression, then by layer.
#include "serialize/adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/json_fields.h"
#include "text/tokenizer/pattern.h"

namespace tessera {
namespace {

constexpr std::string_view kFile = "adapter_config.json";
constexpr int64_t kMostRank = int64_t{1} << 20;
constexpr size_t kMostNames = 1 << 16;

Status unsupported(std::string message) {
  return Status(StatusCode::kUnsupported, format("{}: {}", kFile, message));
}
Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, format("{}: {}", kFile, message)); }

// Fields that change an adapter's function in unsupported ways.
constexpr std::string_view kForeign[] = {"layer_replication",
                                         "alora_invocation_tokens",
                                         "use_qalora",
                                         "use_bdlora",
                                         "arrow_config",
                                         "kasa_config",
                                         "monteclora_config",
                                         "velora_config",
                                         "target_parameters",
                                         "megatron_config"};

// Fields that are read, and fields without effect on the
// function: creation, initialization, the base's place.
constexpr std::string_view kKnown[] = {"alpha_pattern",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "corda_config",
                                       "ensure_weight_tying",
                                       "eva_config",
                                       "exclude_modules",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "layers_pattern",
                                       "layers_to_transform",
                                       "loftq_config",
                                       "lora_alpha",
                                       "lora_bias",
                                       "lora_dropout",
                                       "lora_ga_config",
                                       "megatron_core",
                                       "modules_to_save",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "rank_pattern",
                                       "revision",
                                       "runtime_config",
                                       "target_modules",
                                       "task_type",
                                       "trainable_token_indices",
                                       "use_dora",
                                       "use_rslora"};

const Json& field(const Json& json, const char* key) {
  static const Json kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

bool is_set(const Json& value) {
  if (value.is_null() || value == false) return false;
  return !(value.is_array() || value.is_object()) || !value.empty();
}

// Refuses initializations that modify the base, which would have to be recomputed.
Status check_initialization(const Json& value) {
  if (!value.is_string()) return {};
  const auto word = value.get<std::string>();
  if (word == "pissa") return {};  // the principal part is taken from the base, which is present
  for (const char* const other : {"pissa", "olora", "corda", "loftq", "lora_ga"})
    if (word.starts_with(other))
      return unsupported(format(
          "init_lora_weights is '{}', which changes the base's weights too; save it with "
          "save_pretrained(path_initial_model_for_weight_conversion=...), which makes it an ordinary adapter",
          quote(word)));
  for (const char* const known : {"gaussian", "eva", "orthogonal", "mica"})
    if (word == known) return {};
  return unsupported(format("init_lora_weights is '{}', which is not known", quote(word)));
}

Result<std::vector<std::string>> texts(const Json& value, std::string_view key) {
  std::vector<std::string> all;
  if (value.is_null()) return all;
  if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
  if (!value.is_array() || value.size() > kMostNames)
    return corrupt(format("{} is {}, wanted a list of names", key, quote_json(value)));
  for (const Json& each : value) {
    if (!each.is_string() || each.get<std::string>().empty())
      return corrupt(format("{} holds {}, wanted a name", key, quote_json(each)));
    all.push_back(each.get<std::string>());
  }
  return all;
}

Result<PeftConfig::Names> names(const Json& value, std::string_view key) {
  if (value.is_string()) return PeftConfig::Names{{}, value.get<std::string>()};
  TSR_ASSIGN_OR_RETURN(std::vector<std::string> list, texts(value, key));
  return PeftConfig::Names{std::move(list), {}};
}

Result<std::vector<int64_t>> layers(const Json& value) {
  std::vector<int64_t> all;
  const auto add = [&](const Json& each) {
    const bool is_layer = each.is_number_integer() && each.get<int64_t>() >= 0;
    if (is_layer) all.push_back(each.get<int64_t>());
    return is_layer;
  };
  bool are_layers = true;
  if (value.is_array())
    for (const Json& each : value) are_layers = are_layers && add(each);
  else if (!value.is_null())
    are_layers = add(value);
  if (!are_layers)
    return corrupt(format("layers_to_transform is {}, wanted numbers of layers", quote_json(value)));
  return all;
}

// Token ids in the order of their rows.
Result<std::vector<int64_t>> token_ids(const Json& value, std::string_view key) {
  std::vector<int64_t> ids;
  const bool is_list = value.is_array() && value.size() <= size_t{INT32_MAX};
  for (const Json& id : is_list ? value : Json::array()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      return corrupt(format("{} holds {}, wanted a token's id", key, quote_json(id)));
    ids.push_back(id.get<int64_t>());
  }
  if (!is_list) return corrupt(format("{} is {}, wanted a list of token ids", key, quote_json(value)));
  return ids;
}

Status read_token_rows(const Json& value, std::string_view key, PeftConfig& config) {
  if (!is_set(value)) return {};
  if (!value.is_object()) {
    TSR_ASSIGN_OR_RETURN(std::vector<int64_t> ids, token_ids(value, key));
    config.token_rows.emplace_back("", std::move(ids));
    return {};
  }
  for (const auto& [module, list] : value.items()) {
    if (module.empty()) return corrupt(format("{} has a module without a name", key));
    TSR_ASSIGN_OR_RETURN(std::vector<int64_t> ids, token_ids(list, format("{} '{}'", key, quote(module))));
    config.token_rows.emplace_back(module, std::move(ids));
  }
  return {};
}

// Reads an adapter of table rows only.
Result<PeftConfig> read_trainable_tokens(const Json& json) {
  constexpr std::string_view kOwn[] = {"auto_mapping",   "base_model_name_or_path", "inference_mode",
                                       "init_weights",   "peft_type",               "peft_version",
                                       "revision",       "target_modules",          "task_type",
                                       "runtime_config", "token_indices"};
  for (const auto& [key, value] : json.items())
    if (is_set(value) && std::ranges::find(kOwn, std::string_view(key)) == std::end(kOwn))
      return unsupported(format("{} is {}, which is not known: it may change what the adapter computes",
                                quote(key), quote_json(value)));
  PeftConfig config;
  config.targets.emplace();
  TSR_RETURN_IF_ERROR(read_token_rows(field(json, "token_indices"), "token_indices", config));
  if (config.token_rows.empty()) return corrupt("token_indices is missing");
  return config;
}

Status check_rank(std::string_view key, const Json& value) {
  if (value.is_number_integer() && value.get<int64_t>() >= 1 && value.get<int64_t>() <= kMostRank) return {};
  return corrupt(format("{} is {}, wanted a rank from 1 to {}", key, quote_json(value), kMostRank));
}

Status check_alpha(std::string_view key, const Json& value) {
  if (value.is_number() && std::isfinite(value.get<double>())) return {};
  return corrupt(format("{} is {}, wanted a number", key, quote_json(value)));
}

// Default modules of PEFT, for a configuration without targets.
std::vector<std::string> family_targets(std::string_view family) {
  if (family == "gpt2") return {"c_attn"};
  if (family == "bert" || family == "roberta") return {"query", "value"};
  for (const char* const other : {"llama", "moe", "gemma2", "gemma3", "qwen2", "qwen3"})
    if (family == other) return {"q_proj", "v_proj"};
  return {};
}

Result<ModuleExpression> expression_of(std::string_view key, std::string_view expression) {
  return ModuleExpression::create(format("{}: {}", kFile, key), expression);
}

}  // namespace

Result<PeftConfig> read_peft_config(const Json& json) {
  if (!json.is_object()) return corrupt("is no JSON object");
  const Json& type = field(json, "peft_type");
  if (type == "TRAINABLE_TOKENS") return read_trainable_tokens(json);
  if (type != "LORA")
    return unsupported(format("peft_type is {}, wanted \"LORA\" or \"TRAINABLE_TOKENS\"",
                              type.is_null() ? "missing" : quote_json(type)));
  for (const std::string_view key : kForeign)
    if (const Json& value = field(json, std::string(key).c_str()); is_set(value))
      return unsupported(format("{} is {}, which is not supported", key, quote_json(value)));
  for (const auto& [key, value] : json.items())
    if (is_set(value) && std::ranges::find(kKnown, std::string_view(key)) == std::end(kKnown))
      return unsupported(format("{} is {}, which is not known: it may change what the adapter computes",
                                quote(key), quote_json(value)));
  TSR_RETURN_IF_ERROR(check_initialization(field(json, "init_lora_weights")));

  PeftConfig config;
  JsonFields fields(json, std::string(kFile));
  config.scales_by_root = fields.flag("use_rslora", false);
  config.has_magnitudes = fields.flag("use_dora", false);
  config.has_bias = fields.flag("lora_bias", false);
  config.bias = fields.text("bias", "none");
  TSR_RETURN_IF_ERROR(fields.status());
  if (config.bias != "none" && config.bias != "all" && config.bias != "lora_only")
    return corrupt(format("bias is '{}', wanted none, all or lora_only", quote(config.bias)));
  if (const Json& rank = field(json, "r"); !rank.is_null()) {
    TSR_RETURN_IF_ERROR(check_rank("r", rank));
    config.rank = rank.get<int64_t>();
  }
  if (const Json& alpha = field(json, "lora_alpha"); !alpha.is_null()) {
    TSR_RETURN_IF_ERROR(check_alpha("lora_alpha", alpha));
    config.alpha = alpha.get<double>();
  }
  for (const char* const key : {"rank_pattern", "alpha_pattern"}) {
    const Json& pattern = field(json, key);
    if (!pattern.is_null() && (!pattern.is_object() || pattern.size() > kMostNames))
      return corrupt(format("{} is {}, wanted an object", key, quote_json(pattern)));
    for (const auto& [name, value] : pattern.items()) {
      const std::string where = format("{} '{}'", key, quote(name));
      if (key == std::string_view("rank_pattern")) {
        TSR_RETURN_IF_ERROR(check_rank(where, value));
        config.rank_pattern.emplace_back(name, value.get<int64_t>());
      } else {
        TSR_RETURN_IF_ERROR(check_alpha(where, value));
        config.alpha_pattern.emplace_back(name, value.get<double>());
      }
    }
  }
  if (const Json& dropout = field(json, "lora_dropout"); !dropout.is_null()) {
    if (!dropout.is_number() || !(dropout.get<double>() >= 0 && dropout.get<double>() < 1))
      return corrupt(format("lora_dropout is {}, wanted a probability below 1", quote_json(dropout)));
    config.dropout = dropout.get<double>();
  }
  config.has_start = field(json, "init_lora_weights") == "pissa";
  if (config.has_start && (config.has_magnitudes || config.has_bias))
    return unsupported("init_lora_weights is \"pissa\" with use_dora or lora_bias, which is not supported");
  const Json& targets = field(json, "target_modules");
  config.all_linear = targets == "all-linear";
  if (!targets.is_null() && !config.all_linear) {
    TSR_ASSIGN_OR_RETURN(config.targets, names(targets, "target_modules"));
  }
  TSR_ASSIGN_OR_RETURN(config.excluded, names(field(json, "exclude_modules"), "exclude_modules"));
  TSR_ASSIGN_OR_RETURN(config.layers, layers(field(json, "layers_to_transform")));
  TSR_ASSIGN_OR_RETURN(config.layers_patterns, texts(field(json, "layers_pattern"), "layers_pattern"));
  TSR_ASSIGN_OR_RETURN(config.modules_to_save, texts(field(json, "modules_to_save"), "modules_to_save"));
  TSR_RETURN_IF_ERROR(
      read_token_rows(field(json, "trainable_token_indices"), "trainable_token_indices", config));
  if (is_set(field(json, "ensure_weight_tying")) && !config.modules_to_save.empty())
    return unsupported("ensure_weight_tying is true with modules_to_save, which is not supported");
  return config;
}

bool ends_with_name(std::string_view module, std::string_view name) {
  return module == name || (module.size() > name.size() && module.ends_with(name) &&
                            module[module.size() - name.size() - 1] == '.');
}

bool is_saved_module(std::string_view module, std::string_view saved) {
  for (size_t end = module.size(); end != module.npos && end > 0; end = module.rfind('.', end - 1))
    if (module.substr(0, end).ends_with(saved)) return true;
  return false;
}

struct ModuleExpression::Impl {
  std::string place, expression;
  Pattern pattern;
};

Result<ModuleExpression> ModuleExpression::create(std::string place, std::string_view expression) {
  // Python's syntax for a named group.
  std::string text(expression);
  for (size_t at = 0; (at = text.find("(?P<", at)) != text.npos;) text.erase(at + 2, 1);
  Result<Pattern> pattern = Pattern::create("\\A(?:" + text + ")\\z");
  if (!pattern.ok()) return pattern.status().with_context(place);
  ModuleExpression made;
  made.impl_ =
      std::make_shared<const Impl>(Impl{std::move(place), std::string(expression), *std::move(pattern)});
  return made;
}

Result<bool> ModuleExpression::matches(std::string_view module) const {
  PatternSearch search(impl_->pattern, module);
  if (search.next()) return true;
  if (search.status().ok()) return false;
  return Status(StatusCode::kInvalidArgument,
                format("{} {} takes too many steps on '{}', as it tries one way after another", impl_->place,
                       quote(impl_->expression), module));
}

Result<PeftSelection> PeftSelection::create(const PeftConfig& config, std::string_view family) {
  PeftSelection made;
  made.config_ = config;
  if (config.targets) {
    made.targets_ = config.targets->list;
    if (config.targets->expression) {
      TSR_ASSIGN_OR_RETURN(made.target_expression_,
                           expression_of("target_modules", *config.targets->expression));
    }
  } else if (!config.all_linear) {
    made.targets_ = family_targets(family);
    if (made.targets_.empty())
      return corrupt(format("target_modules is missing, and there are none by default for {}", family));
  }
  if (config.excluded.expression) {
    TSR_ASSIGN_OR_RETURN(made.excluded_expression_,
                         expression_of("exclude_modules", *config.excluded.expression));
  }
  for (const std::string& name : config.modules_to_save) {
    TSR_ASSIGN_OR_RETURN(ModuleExpression each,
                         expression_of("modules_to_save", format("(?:.*\\.)?(?:{})(?:\\..*)?", name)));
    made.saved_.push_back(std::move(each));
  }
  for (const auto& [name, rank] : config.rank_pattern) {
    TSR_ASSIGN_OR_RETURN(ModuleExpression each,
                         expression_of("rank_pattern", format("(?:.*\\.)?(?:{})", name)));
    made.ranks_.emplace_back(std::move(each), rank);
  }
  for (const auto& [name, alpha] : config.alpha_pattern) {
    TSR_ASSIGN_OR_RETURN(ModuleExpression each,
                         expression_of("alpha_pattern", format("(?:.*\\.)?(?:{})", name)));
    made.alphas_.emplace_back(std::move(each), alpha);
  }
  for (const std::string& pattern : config.layers_patterns)
    if (std::ranges::any_of(pattern, [](char c) {
          return std::string_view("\\^$|?*+()[]{}").find(c) != std::string_view::npos;
        }))
      return unsupported(format("layers_pattern is '{}', wanted a name", quote(pattern)));
  return made;
}

// The number after the first "<pattern>.", or, without a pattern, after the first nested name.
bool PeftSelection::is_in_layers(std::string_view module) const {
  if (config_.layers.empty()) return true;
  const std::vector<std::string> names = split(module, '.');
  const auto number_at = [&](size_t i) -> std::optional<int64_t> {
    if (i + 1 >= names.size()) return std::nullopt;
    const bool digits =
        !names[i].empty() && std::ranges::all_of(names[i], [](char c) { return c >= '0' && c <= '9'; });
    return digits ? parse_i64(names[i]) : std::nullopt;
  };
  std::optional<int64_t> layer;
  if (config_.layers_patterns.empty()) {
    for (size_t i = 2; i < names.size() && !layer; ++i) layer = number_at(i);
  } else {
    for (const std::string& pattern : config_.layers_patterns) {
      const std::vector<std::string> wanted = split(pattern, '.');
      for (size_t i = 0; i + wanted.size() < names.size() && !layer; ++i)
        if (std::equal(wanted.begin(), wanted.end(), names.begin() + static_cast<ptrdiff_t>(i)))
          layer = number_at(i + wanted.size());
      if (layer) break;
    }
  }
  return layer && std::ranges::find(config_.layers, *layer) != config_.layers.end();
}

Result<bool> PeftSelection::is_adapted(std::string_view module, bool is_linear) const {
  const auto ends_with = [&](const std::string& name) { return ends_with_name(module, name); };
  if (excluded_expression_) {
    TSR_ASSIGN_OR_RETURN(const bool excluded, excluded_expression_->matches(module));
    if (excluded) return false;
  }
  if (std::ranges::any_of(config_.excluded.list, ends_with)) return false;
  for (const ModuleExpression& saved : saved_) {
    TSR_ASSIGN_OR_RETURN(const bool is, saved.matches(module));
    if (is) return false;
  }
  if (config_.all_linear) return is_linear;
  if (target_expression_) return target_expression_->matches(module);
  if (std::ranges::find(targets_, module) != targets_.end()) return true;
  return std::ranges::any_of(targets_, ends_with) && is_in_layers(module);
}

bool PeftSelection::is_saved(std::string_view module) const {
  return std::ranges::any_of(config_.modules_to_save,
                             [&](const std::string& name) { return is_saved_module(module, name); });
}

Result<int64_t> PeftSelection::rank(std::string_view module) const {
  for (const auto& [expression, rank] : ranks_) {
    TSR_ASSIGN_OR_RETURN(const bool matches, expression.matches(module));
    if (matches) return rank;
  }
  return config_.rank;
}

Result<double> PeftSelection::factor(std::string_view module) const {
  TSR_ASSIGN_OR_RETURN(const int64_t rank, this->rank(module));
  double alpha = config_.alpha;
  for (const auto& [expression, value] : alphas_) {
    TSR_ASSIGN_OR_RETURN(const bool matches, expression.matches(module));
    if (!matches) continue;
    alpha = value;
    break;
  }
  const auto count = static_cast<double>(rank);
  return alpha / (config_.scales_by_root ? std::sqrt(count) : count);
}

}  // namespace tessera
