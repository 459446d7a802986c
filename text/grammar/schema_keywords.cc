#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/schema_json.h"

namespace tessera::grammar {
namespace {

struct Keyword {
  std::string_view name;
  std::string_view type;  // the type it applies to; empty: all
};
constexpr Keyword kObeyedKeywords[] = {{"$ref", ""},
                                       {"type", ""},
                                       {"enum", ""},
                                       {"const", ""},
                                       {"anyOf", ""},
                                       {"oneOf", ""},
                                       {"allOf", ""},
                                       {"not", ""},
                                       {"properties", "object"},
                                       {"required", "object"},
                                       {"additionalProperties", "object"},
                                       {"patternProperties", "object"},
                                       {"propertyNames", "object"},
                                       {"unevaluatedProperties", "object"},
                                       {"minProperties", "object"},
                                       {"maxProperties", "object"},
                                       {"items", "array"},
                                       {"prefixItems", "array"},
                                       {"unevaluatedItems", "array"},
                                       {"minItems", "array"},
                                       {"maxItems", "array"},
                                       {"uniqueItems", "array"},
                                       {"minLength", "string"},
                                       {"maxLength", "string"},
                                       {"pattern", "string"},
                                       {"format", "string"},
                                       {"minimum", "number"},
                                       {"maximum", "number"},
                                       {"exclusiveMinimum", "number"},
                                       {"exclusiveMaximum", "number"},
                                       {"multipleOf", "number"}};
constexpr std::string_view kRefusedKeywords[] = {"if",
                                                 "then",
                                                 "else",
                                                 "dependentRequired",
                                                 "dependentSchemas",
                                                 "dependencies",
                                                 "contains",
                                                 "minContains",
                                                 "maxContains",
                                                 "additionalItems",
                                                 "$dynamicRef",
                                                 "$recursiveRef",
                                                 "nullable",
                                                 "disallow",
                                                 "extends",
                                                 "divisibleBy"};
constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

const Keyword* find_keyword(std::string_view name) {
  const auto found = std::ranges::find(kObeyedKeywords, name, &Keyword::name);
  return found == std::end(kObeyedKeywords) ? nullptr : found;
}

bool is_lower_bound(std::string_view key) {
  return key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems" ||
         key == "minProperties";
}
bool is_upper_bound(std::string_view key) {
  return key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems" ||
         key == "maxProperties";
}

Json both(const Json& a, const Json& b) { return a == b ? a : Json{{"allOf", Json::array({a, b})}}; }

Json intersect_types(const Json& a, const Json& b) {
  const auto list = [](const Json& value) { return value.is_array() ? value : Json::array({value}); };
  const auto has = [](const Json& types, std::string_view type) {
    return std::ranges::find(types, Json(type)) != types.end();
  };
  const Json one = list(a), other = list(b);
  Json types = Json::array();
  for (const std::string_view type : kTypes) {
    const bool in_one = has(one, type) || (type == "integer" && has(one, "number"));
    const bool in_other = has(other, type) || (type == "integer" && has(other, "number"));
    if (in_one && in_other && !(type == "integer" && has(one, "number") && has(other, "number")))
      types.push_back(type);
  }
  return types;
}

// Applies additionalProperties of one schema to properties that only the other has.
Status apply_additional(Json& merged, const Json& closed, const Json& other, const std::string& where) {
  const auto additional = closed.find("additionalProperties");
  if (additional == closed.end() || *additional == Json(true) || !other.contains("properties")) return {};
  if (closed.contains("patternProperties"))
    return schema_error(StatusCode::kUnsupported, where,
                        "'patternProperties' together with 'properties' of another schema is not supported");
  const Json own = closed.value("properties", Json::object());
  for (const auto& [name, schema] : other["properties"].items())
    if (!own.contains(name)) merged["properties"][name] = both(schema, *additional);
  return {};
}

// Merges patternProperties. Refuses additional-property constraints
// that would be lost for names matched by the other's patterns.
Status merge_patterns(Json& merged, const Json& a, const Json& b, const std::string& where) {
  const auto has = [](const Json& schema) {
    return schema.contains("patternProperties") && schema["patternProperties"].is_object() &&
           !schema["patternProperties"].empty();
  };
  if (!has(a) && !has(b)) return {};
  if (has(a) && has(b) && a["patternProperties"] == b["patternProperties"]) return {};
  for (const auto& [schema, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const auto additional = schema->find("additionalProperties");
    if (has(*other) && additional != schema->end() && *additional != Json(true))
      return schema_error(StatusCode::kUnsupported, where,
                          "'patternProperties' together with 'additionalProperties' of another schema is not supported");
  }
  if (!has(a) || !has(b)) return {};
  Json all = a["patternProperties"];
  for (const auto& [pattern, schema] : b["patternProperties"].items())
    all[pattern] = all.contains(pattern) ? both(all[pattern], schema) : schema;
  merged["patternProperties"] = std::move(all);
  return {};
}

// Merges items by position, since prefixItems of one may meet items of the other.
void merge_items(Json& merged, const Json& a, const Json& b) {
  const auto prefix = [](const Json& schema) {
    const auto list = schema.find("prefixItems");
    return list == schema.end() ? Json::array() : *list;
  };
  const auto rest = [](const Json& schema) {
    const auto items = schema.find("items");
    return items == schema.end() ? Json(true) : *items;
  };
  const auto all = [](const Json& x, const Json& y) {
    return x == Json(true) ? y : y == Json(true) ? x : both(x, y);
  };
  const Json one = prefix(a), other = prefix(b);
  if (one.empty() && other.empty()) return;
  Json first = Json::array();
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i)
    first.push_back(all(i < one.size() ? one[i] : rest(a), i < other.size() ? other[i] : rest(b)));
  merged["prefixItems"] = std::move(first);
  if (a.contains("items") || b.contains("items")) merged["items"] = all(rest(a), rest(b));
}

Status merge_keyword(Json& merged, const std::string& key, const Json& value, const std::string& where) {
  Json& target = merged[key];
  if (key == "type") {
    target = intersect_types(target, value);
  } else if (key == "properties" && target.is_object() && value.is_object()) {
    for (const auto& [name, schema] : value.items())
      target[name] = target.contains(name) ? both(target[name], schema) : schema;
  } else if (key == "required" && target.is_array() && value.is_array()) {
    for (const Json& name : value)
      if (std::ranges::find(target, name) == target.end()) target.push_back(name);
  } else if (key == "items") {
    target = both(target, value);
  } else if (key == "prefixItems") {
    return {};  // handled with the items
  } else if (key == "additionalProperties") {
    target = target == Json(true) ? value : value == Json(true) ? target : both(target, value);
  } else if (is_lower_bound(key) && is_number(target) && is_number(value)) {
    if (compare_numbers(target, value) < 0) target = value;
  } else if (is_upper_bound(key) && is_number(target) && is_number(value)) {
    if (compare_numbers(value, target) < 0) target = value;
  } else if (key == "enum" && target.is_array() && value.is_array()) {
    Json common = Json::array();
    for (const Json& each : target)
      if (std::ranges::any_of(value, [&](const Json& same) { return is_same(each, same); }))
        common.push_back(each);
    target = std::move(common);
  } else if (key == "const") {
    if (is_same(target, value)) return {};
    merged.erase(key);
    merged["enum"] = Json::array();  // no common value
  } else if (key == "pattern" || key == "format" || key == "multipleOf" || key == "not") {
    target = hold_together(target, value);
  } else if (key == "patternProperties") {
    return {};  // see merge_patterns
  } else if (key == "propertyNames" || key == "unevaluatedProperties" || key == "unevaluatedItems") {
    target = both(target, value);
  } else if (key == "uniqueItems" && target.is_boolean() && value.is_boolean()) {
    target = target.get<bool>() || value.get<bool>();
  } else if ((key == "anyOf" || key == "oneOf") && target.is_array() && value.is_array()) {
    // One of each; for 'oneOf' exactly one pair.
    constexpr size_t kMostPairs = 256;
    if (target.size() * value.size() > kMostPairs)
      return schema_error(StatusCode::kUnsupported, where,
                          format("two '{}' that both hold have {} pairs of schemas, wanted at most {}", key,
                                 target.size() * value.size(), kMostPairs));
    Json pairs = Json::array();
    for (const Json& one : target)
      for (const Json& other : value) pairs.push_back(both(one, other));
    target = std::move(pairs);
  } else if (use_of_keyword(key) == KeywordUse::kObeyed) {
    return schema_error(
        StatusCode::kUnsupported, where,
        format("two schemas that both hold have different '{}', which is not supported", key));
  }
  return {};
}

}  // namespace

Status schema_error(StatusCode code, const std::string& where, std::string_view what) {
  return Status(code, format("JSON schema, {}: {}", quote(where, 400), what));
}

Json close_unevaluated(Json schema) {
  if (!schema.is_object()) return schema;
  for (const auto& [key, closing] : {std::pair("unevaluatedProperties", "additionalProperties"),
                                     std::pair("unevaluatedItems", "items")})
    if (const auto found = schema.find(key); found != schema.end()) {
      Json value = *found;
      schema.erase(key);
      if (!schema.contains(closing)) schema[closing] = std::move(value);
    }
  return schema;
}

KeywordUse use_of_keyword(std::string_view keyword) {
  if (find_keyword(keyword) != nullptr) return KeywordUse::kObeyed;
  return std::ranges::find(kRefusedKeywords, keyword) != std::end(kRefusedKeywords) ? KeywordUse::kRefused
                                                                                    : KeywordUse::kAnnotation;
}

Status check_keywords(const Json& schema, const std::string& where) {
  for (const auto& [key, value] : schema.items()) {
    if (use_of_keyword(key) == KeywordUse::kRefused)
      return schema_error(StatusCode::kUnsupported, where,
                          key == "nullable"
                              ? "'nullable' is not supported; wanted \"null\" in a list of types"
                              : format("'{}' is not supported", key));
    if (key == "$id" && where != "#")
      return schema_error(StatusCode::kUnsupported, where, "'$id' is supported in the whole schema alone");
    if (key == "uniqueItems" && !value.is_boolean())
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'uniqueItems' is {}, wanted true or false", quote_json(value)));
  }
  return {};
}

bool has_constraints_beside(const Json& schema, std::initializer_list<std::string_view> keywords) {
  for (const auto& [key, value] : schema.items())
    if (use_of_keyword(key) != KeywordUse::kAnnotation && std::ranges::find(keywords, key) == keywords.end())
      return true;
  return false;
}

Result<std::vector<std::string>> types_of_schema(const Json& schema, const std::string& where) {
  std::vector<std::string> types;
  if (const auto given = schema.find("type"); given != schema.end()) {
    const Json list = given->is_array() ? *given : Json::array({*given});
    for (const Json& type : list) {
      if (!type.is_string() || std::ranges::find(kTypes, type.get<std::string>()) == std::end(kTypes))
        return schema_error(
            StatusCode::kInvalidArgument, where,
            format("found the type {}, wanted null, boolean, integer, number, string, array or object",
                   quote_json(type)));
      types.push_back(type.get<std::string>());
    }
    if (std::ranges::find(types, "number") != types.end()) std::erase(types, "integer");
  } else {
    for (const std::string_view type : kTypes)
      for (const auto& [key, value] : schema.items())
        if (const Keyword* keyword = find_keyword(key); keyword != nullptr && keyword->type == type) {
          types.emplace_back(type);
          break;
        }
    if (types.empty())
      for (const std::string_view type : kTypes)
        if (type != "integer") types.emplace_back(type);
  }
  std::ranges::sort(types);
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (value.is_binary()) return type == "integer" || type == "number";
  if (type == "integer" && value.is_number_float())
    return value.get<double>() == std::trunc(value.get<double>());
  return value.is_number();
}

Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& where) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  Json merged = a;
  for (const auto& [key, value] : b.items()) {
    if (!merged.contains(key))
      merged[key] = value;
    else if (merged[key] != value)
      TSR_RETURN_IF_ERROR(merge_keyword(merged, key, value, where));
  }
  merge_items(merged, a, b);
  TSR_RETURN_IF_ERROR(merge_patterns(merged, a, b, where));
  TSR_RETURN_IF_ERROR(apply_additional(merged, a, b, where));
  TSR_RETURN_IF_ERROR(apply_additional(merged, b, a, where));
  return merged;
}

}  // namespace tessera::grammar
