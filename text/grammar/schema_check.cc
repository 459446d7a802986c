// Decides whether a schema allows a value, for listed values and for disjointness.
#include <algorithm>
#include <cmath>

#include "text/grammar/regex_language.h"
#include "text/grammar/schema_pointer.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/string_formats.h"

namespace tessera::grammar {
namespace {

constexpr int kMostCheckDepth = 32;
constexpr size_t kMostListed = 1024;

size_t count_characters(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char each) { return (static_cast<uint8_t>(each) & 0xC0) != 0x80; }));
}

// Conjunction: true if all are true, false if one is, else unknown.
class Conjunction {
 public:
  void add(std::optional<bool> each) {
    if (each == std::optional(false)) is_false_ = true;
    if (!each) is_known_ = false;
  }
  std::optional<bool> value() const {
    if (is_false_) return false;
    return is_known_ ? std::optional(true) : std::nullopt;
  }

 private:
  bool is_false_ = false, is_known_ = true;
};

bool is_within(const Json& schema, const char* minimum, const char* maximum, size_t count) {
  const Json number(count);
  const auto least = schema.find(minimum), most = schema.find(maximum);
  return (least == schema.end() || !is_number(*least) || compare_numbers(number, *least) >= 0) &&
         (most == schema.end() || !is_number(*most) || compare_numbers(number, *most) <= 0);
}

}  // namespace

std::optional<bool> SchemaReader::allows(const Json& value, const Json& schema, int depth) {
  if (depth > kMostCheckDepth) return {};
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) return {};
  Conjunction all;
  for (const auto& [key, limit] : schema.items()) {
    if (use_of_keyword(key) == KeywordUse::kRefused) all.add(std::nullopt);
    if (key == "$ref") {
      std::string pointer;
      const auto target = limit.is_string() ? find_schema(root_, limit.get<std::string>(), "#", pointer)
                                            : Result<const Json*>(Status(StatusCode::kInvalidArgument, ""));
      all.add(target.ok() ? allows(value, **target, depth + 1) : std::nullopt);
    } else if (key == "enum" && limit.is_array()) {
      all.add(std::ranges::any_of(limit, [&](const Json& each) { return is_same(each, value); }));
    } else if (key == "const") {
      all.add(is_same(limit, value));
    } else if (key == "type") {
      const Json types = limit.is_array() ? limit : Json::array({limit});
      all.add(std::ranges::any_of(types, [&](const Json& type) {
        return type.is_string() && is_of_type(value, type.get<std::string>());
      }));
    } else if (key == "not") {
      for (const Json& each : values_together(limit)) {
        const std::optional<bool> inner = allows(value, each, depth + 1);
        all.add(inner ? std::optional(!*inner) : std::nullopt);
      }
    } else if (key == "allOf" && limit.is_array()) {
      for (const Json& each : limit) all.add(allows(value, each, depth + 1));
    } else if ((key == "anyOf" || key == "oneOf") && limit.is_array()) {
      size_t yes = 0, unknown = 0;
      for (const Json& each : limit) {
        const std::optional<bool> inner = allows(value, each, depth + 1);
        yes += inner == std::optional(true);
        unknown += !inner;
      }
      const bool is_any = key == "anyOf";
      if (is_any && yes > 0)
        all.add(true);
      else if (!is_any && yes > 1)
        all.add(false);
      else
        all.add(unknown > 0 ? std::nullopt : std::optional(yes == 1));
    }
  }
  if (value.is_string()) all.add(allows_string(value.get<std::string>(), schema));
  if (is_number(value)) all.add(allows_number(value, schema));
  if (value.is_array()) all.add(allows_array(value, schema, depth));
  if (value.is_object()) all.add(allows_object(value, schema, depth));
  return all.value();
}

std::optional<bool> SchemaReader::allows_string(const std::string& text, const Json& schema) {
  Conjunction all;
  all.add(is_within(schema, "minLength", "maxLength", count_characters(text)));
  for (const char* key : {"pattern", "format"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    for (const Json& each : values_together(*found)) {
      const bool is_pattern = key == std::string_view("pattern");
      std::string source = each.is_string() ? each.get<std::string>() : "";
      if (!is_pattern) source = format_of(source).unbounded;
      if (!is_pattern && source.empty()) continue;
      const auto language = regex_language(languages_, source,
                                           is_pattern ? RegexMatch::kSearch : RegexMatch::kWhole, "pattern");
      if (!language.ok())
        all.add(std::nullopt);
      else if (const bool matches = languages_.contains(*language, text); matches || is_pattern)
        all.add(matches);
      else
        all.add(std::nullopt);  // a format allows more than is generated
    }
  }
  return all.value();
}

std::optional<bool> SchemaReader::allows_number(const Json& value, const Json& schema) {
  Conjunction all;
  for (const auto& [key, sign, is_exclusive] :
       {std::tuple("minimum", 1, false), std::tuple("exclusiveMinimum", 1, true),
        std::tuple("maximum", -1, false), std::tuple("exclusiveMaximum", -1, true)}) {
    const auto found = schema.find(key);
    if (found == schema.end() || !is_number(*found)) continue;
    const int order = compare_numbers(value, *found) * sign;
    all.add(order > 0 || (order == 0 && !is_exclusive));
  }
  if (const auto found = schema.find("multipleOf"); found != schema.end())
    for (const Json& step : values_together(*found)) {
      if (!step.is_number() || !value.is_number() || step.get<double>() <= 0) {
        all.add(std::nullopt);
        continue;
      }
      const double count = value.get<double>() / step.get<double>();
      all.add(count == std::floor(count));
    }
  return all.value();
}

std::optional<bool> SchemaReader::allows_array(const Json& value, const Json& schema, int depth) {
  Conjunction all;
  all.add(is_within(schema, "minItems", "maxItems", value.size()));
  const Json first = schema.value("prefixItems", Json::array());
  for (size_t i = 0; i < value.size(); ++i) {
    if (first.is_array() && i < first.size())
      all.add(allows(value[i], first[i], depth + 1));
    else if (schema.contains("items"))
      all.add(allows(value[i], schema["items"], depth + 1));
  }
  if (schema.value("uniqueItems", Json(false)) == Json(true))
    for (size_t i = 0; i < value.size(); ++i)
      for (size_t k = i + 1; k < value.size(); ++k)
        if (is_same(value[i], value[k])) all.add(false);
  return all.value();
}

std::optional<bool> SchemaReader::allows_object(const Json& value, const Json& schema, int depth) {
  Conjunction all;
  all.add(is_within(schema, "minProperties", "maxProperties", value.size()));
  for (const char* key : {"patternProperties", "propertyNames", "unevaluatedProperties"})
    if (schema.contains(key)) all.add(std::nullopt);
  if (const auto required = schema.find("required"); required != schema.end() && required->is_array())
    for (const Json& name : *required)
      if (name.is_string()) all.add(value.contains(name.get<std::string>()));
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, each] : value.items()) {
    if (properties.contains(name))
      all.add(allows(each, properties[name], depth + 1));
    else if (schema.contains("additionalProperties"))
      all.add(allows(each, schema["additionalProperties"], depth + 1));
  }
  return all.value();
}

std::optional<std::vector<Json>> SchemaReader::list_values(const Json& schema, const std::string& where,
                                                           int depth) {
  if (depth > kMostCheckDepth) return {};
  const auto flattened = flatten(schema, where, 0);
  if (!flattened.ok()) return {};
  const Json& flat = *flattened;
  if (flat == Json(false)) return std::vector<Json>();
  if (!flat.is_object()) return {};
  std::vector<Json> candidates;
  const auto add = [&](const Json& value) {
    if (std::ranges::none_of(candidates, [&](const Json& each) { return is_same(each, value); }))
      candidates.push_back(value);
  };
  if (flat.contains("const")) {
    add(flat["const"]);
  } else if (flat.contains("enum") && flat["enum"].is_array()) {
    if (flat["enum"].size() > kMostListed) return {};
    for (const Json& value : flat["enum"]) add(value);
  } else if (const char* keyword = flat.contains("anyOf") ? "anyOf" : flat.contains("oneOf") ? "oneOf" : nullptr) {
    if (!flat[keyword].is_array()) return {};
    for (const Json& branch : flat[keyword]) {
      const auto values = list_values(branch, where, depth + 1);
      if (!values || candidates.size() + values->size() > kMostListed) return {};
      for (const Json& value : *values) add(value);
    }
  } else {
    const auto types = types_of_schema(flat, where);
    if (!types.ok() || !flat.contains("type")) return {};
    for (const std::string& type : *types) {
      if (type == "null") {
        add(nullptr);
      } else if (type == "boolean") {
        add(true);
        add(false);
      } else if (type == "integer" && flat.contains("minimum") && flat.contains("maximum") &&
                 flat["minimum"].is_number_integer() && flat["maximum"].is_number_integer()) {
        constexpr int64_t kMostRange = 64;
        const auto least = flat["minimum"].get<int64_t>(), most = flat["maximum"].get<int64_t>();
        if (least < -(int64_t{1} << 53) || most > int64_t{1} << 53 || most - least >= kMostRange) return {};
        for (int64_t value = least; value <= most; ++value) add(value);
      } else {
        return {};
      }
    }
  }
  Json limits = flat;
  limits.erase("enum");
  std::vector<Json> values;
  for (const Json& value : candidates) {
    const std::optional<bool> is_allowed = allows(value, limits, depth + 1);
    if (!is_allowed) return {};
    if (*is_allowed) values.push_back(value);
  }
  return values;
}

}  // namespace tessera::grammar
