// Random JSON schemas, values that they allow, and a validator of its own: slow, plain and of few keywords.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/serialize/grammar_support.h"
#include "tests/serialize/pcre_reference.h"
#include "text/json.h"

namespace tessera::grammar::testing {

inline size_t count_characters(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Patterns and a text that each finds something in.
inline const std::vector<std::pair<std::string, std::string>>& sample_patterns() {
  static const std::vector<std::pair<std::string, std::string>> kPatterns = {
      {"^[a-z]+$", "abc"}, {"^\\d{3}-\\d{4}$", "123-4567"}, {"ab", "xxabyy"},
      {"^x", "x\"\\\n"},   {"[\"\\\\]$", "a\"b\\"},         {"^a(é|\\.)c$|^$", "aéc"}};
  return kPatterns;
}

inline bool is_valid(const Json& schema, const Json& value, const Json& root);

inline bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
         (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

inline bool is_valid_object(const Json& schema, const Json& value, const Json& root) {
  const Json required = schema.value("required", Json::array());
  for (const Json& name : required)
    if (!value.contains(name.get<std::string>())) return false;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, each] : value.items()) {
    if (properties.contains(name)) {
      if (!is_valid(properties[name], each, root)) return false;
    } else if (schema.contains("additionalProperties") &&
               !is_valid(schema["additionalProperties"], each, root)) {
      return false;
    }
  }
  return value.size() <= schema.value("maxProperties", SIZE_MAX);
}

inline bool is_valid(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref"))
    return is_valid(root[Json::json_pointer(schema["$ref"].get<std::string>().substr(1))], value, root);
  const auto holds = [&](const Json& each) { return is_valid(each, value, root); };
  if (schema.contains("allOf") && !std::ranges::all_of(schema["allOf"], holds)) return false;
  if (schema.contains("anyOf") && std::ranges::none_of(schema["anyOf"], holds)) return false;
  if (schema.contains("oneOf") && std::ranges::count_if(schema["oneOf"], holds) != 1) return false;
  if (schema.contains("const") && schema["const"] != value) return false;
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
    return false;
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::ranges::none_of(types,
                             [&](const Json& type) { return has_type(value, type.get<std::string>()); }))
      return false;
  }
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const size_t size = count_characters(text);
    if (size < schema.value("minLength", size_t{0}) || size > schema.value("maxLength", SIZE_MAX))
      return false;
    if (schema.contains("pattern") &&
        PcreReference(schema["pattern"].get<std::string>(), false).matches(text) != 1)
      return false;
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>())
      return false;
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>())
      return false;
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0}) ||
        value.size() > schema.value("maxItems", SIZE_MAX))
      return false;
    const Json first = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i)
      if (!is_valid(i < first.size() ? first[i] : schema.value("items", Json(true)), value[i], root))
        return false;
  }
  return !value.is_object() || is_valid_object(schema, value, root);
}

// Schemas at random, which refer to their own $defs, and values that they allow.
class SchemaSamples {
 public:
  explicit SchemaSamples(uint32_t seed) : random_(seed) {}

  Json schema() {
    Json schema = make(3);
    may_refer_ = false;  // a tree whose value must be a tree never ends
    const Json value = make(1);
    may_refer_ = true;
    schema["$defs"] = {
        {"tree",
         {{"type", "object"},
          {"properties",
           {{"value", value},
            {"children", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}, {"maxItems", 3}}}}},
          {"required", {"value"}},
          {"additionalProperties", false}}},
        {"a/b~c", {{"type", {"string", "null"}}}}};
    return schema;
  }

  // In the order of the schema, as in the grammar.
  Json value(const Json& schema, const Json& root, int depth = 4) {
    if (schema.is_boolean()) return any(2);
    if (schema.contains("$ref"))
      return value(root[Json::json_pointer(schema["$ref"].get<std::string>().substr(1))], root, depth - 1);
    for (const char* key : {"anyOf", "oneOf"})
      if (schema.contains(key))
        return value(schema[key][below(random_, schema[key].size())], root, depth - 1);
    if (schema.contains("allOf")) {
      Json all = value(schema["allOf"][0], root, depth - 1);
      all.update(value(schema["allOf"][1], root, depth - 1));
      return all;
    }
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("enum")) return schema["enum"][below(random_, schema["enum"].size())];
    if (!schema.contains("type")) return any(2);
    const Json& types = schema["type"];
    const std::string type =
        types.is_array() ? types[below(random_, types.size())].get<std::string>() : types.get<std::string>();
    if (type == "null") return nullptr;
    if (type == "boolean") return below(random_, 2) == 0;
    if (type == "string") return string(schema);
    if (type == "array") return array(schema, root, depth);
    if (type == "object") return object(schema, root, depth);
    return number(schema, type == "integer");
  }

  Json any(int depth) {
    switch (below(random_, depth > 0 ? 7 : 5)) {
      case 0: return nullptr;
      case 1: return true;
      case 2: return string(Json::object());
      case 3: return static_cast<int64_t>(below(random_, 2000)) - 1000;
      case 4: return static_cast<double>(below(random_, 2000)) / 16 - 50;
      case 5: {
        Json list = Json::array();
        for (size_t i = below(random_, 3); i-- > 0;) list.push_back(any(depth - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (size_t i = below(random_, 3); i-- > 0;)
          object[string(Json::object()).get<std::string>()] = any(depth - 1);
        return object;
      }
    }
  }

  Random& random() { return random_; }

 private:
  Json make(int depth) {
    static const std::vector<std::string> kNames = {"a", "id", "name", "é\"", "na", "x\\y", "日本"};
    const auto bounds = [&](Json& schema, const char* least, const char* most, size_t limit) {
      const size_t minimum = below(random_, limit);
      if (below(random_, 2)) schema[least] = minimum;
      if (below(random_, 2)) schema[most] = minimum + below(random_, limit);
    };
    Json schema = Json::object();
    switch (below(random_, depth > 0 ? 14 : 7)) {
      case 0:
        schema["type"] = "string";
        bounds(schema, "minLength", "maxLength", 40);
        break;
      case 1:
        schema["type"] = "integer";
        range(schema);
        break;
      case 2:
        schema["type"] = "number";
        range(schema);
        break;
      case 3: schema["enum"] = {"red", "green\"", 1, nullptr, Json::array({1, "x"})}; break;
      case 4: schema["type"] = {"string", "null", "boolean"}; break;
      case 5:
        schema["type"] = "string";
        schema["pattern"] = sample_patterns()[below(random_, sample_patterns().size())].first;
        break;
      case 6:
        if (!may_refer_) return make(depth);
        schema["$ref"] = below(random_, 2) ? "#/$defs/tree" : "#/$defs/a~1b~0c";
        break;
      case 7:
      case 8:
        schema["type"] = "array";
        schema["items"] = make(depth - 1);
        bounds(schema, "minItems", "maxItems", 4);
        break;
      case 9:
        schema["type"] = "array";
        schema["prefixItems"] = {make(depth - 1), make(depth - 1)};
        schema["items"] = below(random_, 2) ? Json(false) : make(0);
        if (below(random_, 2)) schema["minItems"] = below(random_, 3);
        if (schema["items"] != Json(false) && below(random_, 2)) schema["maxItems"] = 2 + below(random_, 3);
        break;
      case 10: schema["anyOf"] = {make(depth - 1), make(depth - 1)}; break;
      case 11:
        schema["oneOf"] = Json::array();
        for (const char* kind : {"circle", "square"})
          schema["oneOf"].push_back({{"type", "object"},
                                     {"properties", {{"kind", {{"const", kind}}}, {"size", make(0)}}},
                                     {"required", {"kind"}},
                                     {"additionalProperties", false}});
        break;
      default: {
        schema["type"] = "object";
        schema["properties"] = Json::object();
        schema["required"] = Json::array();
        for (size_t i = below(random_, 5); i-- > 0;) {
          const std::string& name = kNames[below(random_, kNames.size())];
          if (schema["properties"].contains(name)) continue;
          schema["properties"][name] = make(depth - 1);
          if (below(random_, 2)) schema["required"].push_back(name);
        }
        if (below(random_, 2))
          schema["additionalProperties"] = below(random_, 2) ? Json(below(random_, 2) == 0) : make(0);
      }
    }
    return schema;
  }

  void range(Json& schema) {
    if (below(random_, 3) == 0) return;
    const auto bound = [&](int64_t from) {
      const int64_t whole = from + static_cast<int64_t>(below(random_, below(random_, 2) ? 20 : 3000));
      if (below(random_, 2)) return Json(whole);
      return Json(static_cast<double>(whole) + static_cast<double>(below(random_, 64)) / 64);
    };
    const Json least = bound(below(random_, 2) ? -1500 : -10);
    if (below(random_, 3)) schema[below(random_, 2) ? "minimum" : "exclusiveMinimum"] = least;
    if (below(random_, 3))
      schema[below(random_, 2) ? "maximum" : "exclusiveMaximum"] =
          bound(static_cast<int64_t>(least.get<double>()) + 3);
  }

  Json string(const Json& schema) {
    static const std::vector<std::string> kLetters = {"a",  "b", "é", "\"",   "\\", "\n",
                                                      "日", "😀", "x", "\x01", "/",  " "};
    if (schema.contains("pattern"))
      for (const auto& [pattern, text] : sample_patterns())
        if (pattern == schema["pattern"]) return text;
    const size_t least = schema.value("minLength", size_t{0}), most = schema.value("maxLength", least + 8);
    std::string text;
    for (size_t i = least + below(random_, most - least + 1); i-- > 0;)
      text += kLetters[below(random_, kLetters.size())];
    return text;
  }

  Json number(const Json& schema, bool is_integer) {
    double least = -1e6, most = 1e6;
    for (const char* key : {"minimum", "exclusiveMinimum"}) least = schema.value(key, least);
    for (const char* key : {"maximum", "exclusiveMaximum"}) most = schema.value(key, most);
    // Below an exclusive bound not all digits of a double are written.
    const bool is_exclusive = schema.contains("exclusiveMinimum") || schema.contains("exclusiveMaximum");
    while (true) {
      const double number = std::uniform_real_distribution<>(least, most)(random_);
      Json value = is_integer                           ? Json(std::llround(number))
                   : below(random_, 2) && !is_exclusive ? Json(number)
                                                        : Json(std::round(number * 8) / 8);
      if (is_valid(schema, value, schema)) return value;
    }
  }

  Json array(const Json& schema, const Json& root, int depth) {
    const Json first = schema.value("prefixItems", Json::array());
    const Json rest = schema.value("items", Json(true));
    const size_t least = schema.value("minItems", size_t{0});
    size_t most = schema.value("maxItems", least + (depth > 0 ? 3 : 0));
    if (rest == Json(false)) most = std::min(most, first.size());
    Json list = Json::array();
    for (size_t i = depth > 0 ? least + below(random_, std::max(most, least) - least + 1) : least; i-- > 0;)
      list.push_back(value(list.size() < first.size() ? first[list.size()] : rest, root, depth - 1));
    return list;
  }

  Json object(const Json& schema, const Json& root, int depth) {
    Json made = Json::object();
    const Json required = schema.value("required", Json::array());
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, each] : properties.items())
      if (std::ranges::find(required, Json(name)) != required.end() || (depth > 0 && below(random_, 2)))
        made[name] = value(each, root, depth - 1);
    const Json additional = schema.value("additionalProperties", Json(properties.empty()));
    if (additional != Json(false) && depth > 0)
      for (size_t i = below(random_, 3); i-- > 0;) {
        const std::string name = string(Json::object()).get<std::string>();
        if (!made.contains(name) && !properties.contains(name))
          made[name] = value(additional, root, depth - 1);
      }
    return made;
  }

  Random random_;
  bool may_refer_ = true;
};

}  // namespace tessera::grammar::testing
