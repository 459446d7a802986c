// Strings, numbers and arrays of JSON schema, and which schemas are told apart.
#include <algorithm>
#include <string_view>
#include <tuple>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/grammar/number_range.h"
#include "serialize/grammar/regex.h"
#include "serialize/grammar/schema_reader.h"
#include "serialize/grammar/string_formats.h"

namespace tessera::grammar {

Result<SchemaReader::Limits> SchemaReader::read_limits(const Json& schema, const char* minimum,
                                                       const char* maximum, const std::string& where) {
  Limits limits;
  for (const auto& [key, target] :
       {std::pair(minimum, &limits.minimum), std::pair(maximum, &limits.maximum)}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (value < 0 || value > kMostRepetitions || (found->is_number_float() && !is_of_type(*found, "integer")))
      return schema_error(found->is_number() && value > kMostRepetitions ? StatusCode::kUnsupported
                                                                         : StatusCode::kInvalidArgument,
                          where,
                          format("'{}' is {}, wanted a whole number from 0 to {}", key, quote_json(*found),
                                 kMostRepetitions));
    *target = static_cast<uint32_t>(value);
  }
  return limits;
}

Result<ExpressionId> SchemaReader::read_string(const Json& schema, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const Limits length, read_limits(schema, "minLength", "maxLength", where));
  const bool has_length = length.minimum > 0 || length.maximum != kUnbounded;
  const auto pattern = schema.find("pattern"), format_name = schema.find("format");
  const bool has_pattern = pattern != schema.end(), has_format = format_name != schema.end();
  if (has_pattern + has_format + has_length > 1)
    return schema_error(
        StatusCode::kUnsupported, where,
        "'pattern', 'format' and bounds of the length are supported by themselves, not together");
  if (length.minimum > length.maximum)
    return nothing(where, format("minLength {} is above maxLength {}", length.minimum, length.maximum));
  if (!has_pattern && !has_format) return json_.string(length.minimum, length.maximum);
  const char* key = has_pattern ? "pattern" : "format";
  const Json& value = has_pattern ? *pattern : *format_name;
  if (!value.is_string())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'{}' is {}, wanted a text", key, quote_json(value)));
  std::string expression = value.get<std::string>();
  if (has_format) {
    expression = pattern_of_format(expression);
    if (expression.empty())
      return schema_error(
          StatusCode::kUnsupported, where,
          format("the format {} is not supported; known: {}", quote_json(value), kKnownFormats));
  }
  TSR_ASSIGN_OR_RETURN(
      const ExpressionId content,
      read_regex(out_, expression, has_format ? RegexMatch::kWhole : RegexMatch::kSearch,
                 TextForm::kJsonString, format("JSON schema, {}: the pattern", quote(where, 400))));
  const RuleId rule = out_.declare_rule(format("{}/{}", where, key));
  out_.define_rule(rule, out_.sequence({out_.literal("\""), content, out_.literal("\"")}));
  return out_.call(rule);
}

Result<ExpressionId> SchemaReader::read_number(const Json& schema, bool is_integer,
                                               const std::string& where) {
  if (const auto step = schema.find("multipleOf"); step != schema.end()) {
    if (!step->is_number() || step->get<double>() != 1)
      return schema_error(StatusCode::kUnsupported, where,
                          format("'multipleOf' is {}; supported is 1 alone", quote_json(*step)));
    is_integer = true;
  }
  NumberRange range;
  for (const auto& [key, is_lower, is_exclusive] :
       {std::tuple("minimum", true, false), std::tuple("exclusiveMinimum", true, true),
        std::tuple("maximum", false, false), std::tuple("exclusiveMaximum", false, true)}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!found->is_number())
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'{}' is {}, wanted a number", key, quote_json(*found)));
    const auto value = decimal_of(*found);
    if (!value.ok())
      return schema_error(value.status().code(), where, format("'{}': {}", key, value.status().message()));
    std::optional<NumberBound>& bound = is_lower ? range.lower : range.upper;
    const int order = bound ? compare(*value, bound->value) : 0;
    if (!bound || (is_lower ? order > 0 : order < 0) || (order == 0 && is_exclusive))
      bound = NumberBound{*value, is_exclusive};
  }
  if (!range.lower && !range.upper) return is_integer ? json_.integer() : json_.number();
  if (range.lower && range.upper)
    if (const int order = compare(range.lower->value, range.upper->value);
        order > 0 || (order == 0 && (range.lower->is_exclusive || range.upper->is_exclusive)))
      return nothing(where, "the least number is above the greatest");
  // Whole numbers may lie between bounds that are not: what is left is then nothing.
  return number_in_range(json_, range, !is_integer);
}

Result<ExpressionId> SchemaReader::read_array(const Json& schema, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const Limits length, read_limits(schema, "minItems", "maxItems", where));
  if (length.minimum > length.maximum)
    return nothing(where, format("minItems {} is above maxItems {}", length.minimum, length.maximum));
  const auto prefix = schema.find("prefixItems"), items = schema.find("items");
  if (items != schema.end() && items->is_array())
    return schema_error(StatusCode::kUnsupported, where,
                        "'items' is a list, which older schemas had; wanted 'prefixItems'");
  if (prefix != schema.end() && (!prefix->is_array() || prefix->empty()))
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'prefixItems' is {}, wanted a list of schemas", quote_json(*prefix)));
  std::vector<ExpressionId> first;
  for (size_t i = 0; prefix != schema.end() && i < std::min<size_t>(prefix->size(), length.maximum); ++i) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId item,
                         read_schema((*prefix)[i], format("{}/prefixItems/{}", where, i)));
    first.push_back(item);
  }
  if (first.empty() && items == schema.end() && length.minimum == 0 && length.maximum == kUnbounded)
    return json_.any_array();
  const auto count = static_cast<uint32_t>(first.size());
  // From the last item to the first: what may follow each. Items past `count` are alike.
  ExpressionId rest = out_.empty();
  if (length.maximum > count) {
    ExpressionId item = 0;
    if (items == schema.end()) {
      item = json_.any_value();
    } else {
      TSR_ASSIGN_OR_RETURN(item, read_schema(*items, where + "/items"));
    }
    const uint32_t least = length.minimum > count ? length.minimum - count : 0;
    const uint32_t most = length.maximum == kUnbounded ? kUnbounded : length.maximum - count;
    item = out_.shared(item, where + "/items");
    const ExpressionId next = out_.sequence({json_.separator(), item});
    if (count > 0) {
      rest = out_.repeat(next, least, most);
    } else {
      const uint32_t more = most == kUnbounded ? most : most - 1;
      rest = out_.sequence({item, out_.repeat(next, least > 0 ? least - 1 : 0, more)});
      if (least == 0) rest = out_.optional(rest);
    }
  }
  for (uint32_t i = count; i-- > 0;) {
    rest = i > 0 ? out_.sequence({json_.separator(), first[i], rest}) : out_.sequence({first[i], rest});
    if (i >= length.minimum) rest = out_.optional(rest);
  }
  return out_.sequence({out_.literal("["), json_.space(), rest, json_.space(), out_.literal("]")});
}

Result<bool> SchemaReader::is_disjoint(const Json& a, const Json& b, const std::string& where, int depth) {
  if (a == Json(false) || b == Json(false)) return true;
  if (!a.is_object() || !b.is_object()) return false;
  TSR_ASSIGN_OR_RETURN(const Json one, flatten(a, where, 0));
  TSR_ASSIGN_OR_RETURN(const Json other, flatten(b, where, 0));
  if (!one.is_object() || !other.is_object()) return one == Json(false) || other == Json(false);
  const auto values_of = [](const Json& schema) {
    if (schema.contains("const")) return Json::array({schema["const"]});
    return schema.value("enum", Json());
  };
  // Keywords limit values of their own types alone, so that only these count.
  const auto allows_type = [&](const Json& schema, const Json& values, const std::string& type) {
    if (values.is_array())
      return std::ranges::any_of(values, [&](const Json& each) { return is_of_type(each, type); });
    const auto given = schema.find("type");
    if (given == schema.end()) return true;
    const auto is_named = [&](const char* name) {
      return *given == name || (given->is_array() && std::ranges::find(*given, Json(name)) != given->end());
    };
    return is_named(type.c_str()) || (type == "number" && is_named("integer"));
  };
  const Json values = values_of(one), others = values_of(other);
  if (values.is_array() && others.is_array())
    return std::ranges::none_of(
        values, [&](const Json& each) { return std::ranges::find(others, each) != others.end(); });
  // What is written from either, which is of the types that its keywords are for, must not be allowed by the other.
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(one, where));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> other_types, types_of_schema(other, where));
  const auto is_written = [&](const std::string& type) {
    const auto has = [&](const std::vector<std::string>& list) {
      return std::ranges::find(list, type) != list.end() ||
             (type == "number" && std::ranges::find(list, "integer") != list.end());
    };
    return has(types) || has(other_types);
  };
  bool shares_object = false, shares_more = false;
  for (const char* type : {"null", "boolean", "number", "string", "array", "object"})
    if (is_written(type) && allows_type(one, values, type) && allows_type(other, others, type))
      (type == std::string_view("object") ? shares_object : shares_more) = true;
  if (shares_more) return false;
  if (!shares_object) return true;
  // Objects: by a property that both must have. One level down is deep enough.
  if (depth > 0 || !one.contains("properties") || !other.contains("properties")) return false;
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> required, read_required(one, where));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> also_required, read_required(other, where));
  for (const std::string& name : required) {
    if (std::ranges::find(also_required, name) == also_required.end()) continue;
    if (!one["properties"].contains(name) || !other["properties"].contains(name)) continue;
    TSR_ASSIGN_OR_RETURN(const bool is_apart,
                         is_disjoint(one["properties"][name], other["properties"][name], where, depth + 1));
    if (is_apart) return true;
  }
  return false;
}

}  // namespace tessera::grammar
