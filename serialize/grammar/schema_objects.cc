// Objects of JSON schema.
#include <algorithm>
#include <array>
#include <set>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/grammar/regex.h"
#include "serialize/grammar/schema_reader.h"

namespace tessera::grammar {

Result<std::vector<std::string>> SchemaReader::read_required(const Json& schema, const std::string& where) {
  std::vector<std::string> names;
  const auto list = schema.find("required");
  if (list == schema.end()) return names;
  const bool is_valid =
      list->is_array() && std::ranges::all_of(*list, [](const Json& each) { return each.is_string(); });
  if (!is_valid)
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'required' is {}, wanted a list of names", quote_json(*list)));
  for (const Json& name : *list) names.push_back(name.get<std::string>());
  return names;
}

Result<ExpressionId> SchemaReader::read_object(const Json& schema, const std::string& where) {
  const auto properties = schema.find("properties");
  if (properties != schema.end() && !properties->is_object())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'properties' is {}, wanted an object of schemas", quote_json(*properties)));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> required, read_required(schema, where));
  const bool has_properties = properties != schema.end() && !properties->empty();
  if (!has_properties && required.empty()) return read_map(schema, where);
  if (schema.contains("patternProperties"))
    return schema_error(
        StatusCode::kUnsupported, where,
        "'patternProperties' is supported in objects without 'properties' and 'required' alone");

  const auto additional = schema.find("additionalProperties");
  const bool has_additional = additional != schema.end() && *additional != Json(false);
  const std::set<std::string> must(required.begin(), required.end());
  std::vector<Member> members;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const Json& value, const std::string& place) -> Status {
    TSR_ASSIGN_OR_RETURN(const ExpressionId content, read_schema(value, place));
    const ExpressionId quoted = out_.literal("\"" + written(name, TextForm::kJsonString) + "\"");
    members.push_back({json_.member(quoted, content), must.contains(name)});
    names.push_back(name);
    return {};
  };
  if (has_properties)
    for (const auto& [name, value] : properties->items())
      TSR_RETURN_IF_ERROR(add(name, value, format("{}/properties{}", where, pointer_part(name))));
  // Names that are required alone follow, as what additional properties are.
  std::set<std::string> known(names.begin(), names.end());
  for (const std::string& name : required)
    if (known.insert(name).second)
      TSR_RETURN_IF_ERROR(add(name, additional == schema.end() ? Json(true) : *additional,
                              format("{}/required{}", where, pointer_part(name))));

  TSR_ASSIGN_OR_RETURN(const Limits count, read_limits(schema, "minProperties", "maxProperties", where));
  if (count.minimum > must.size() ||
      (count.maximum != kUnbounded && (count.maximum < names.size() || has_additional)))
    return schema_error(
        StatusCode::kUnsupported, where,
        "'minProperties' and 'maxProperties' are supported where 'properties' and 'required' imply them");
  if (has_additional) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId value, read_schema(*additional, where + "/additionalProperties"));
    const ExpressionId each =
        out_.shared(json_.member(json_.name_except(names), value), where + "/additionalProperties");
    const ExpressionId more = out_.repeat(out_.sequence({json_.separator(), each}), 0, kUnbounded);
    members.push_back({out_.sequence({each, more}), false});
  }
  return json_.braces(members);
}

Result<ExpressionId> SchemaReader::read_map(const Json& schema, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const Limits count, read_limits(schema, "minProperties", "maxProperties", where));
  const auto additional = schema.find("additionalProperties"), patterns = schema.find("patternProperties");
  const bool has_pattern = patterns != schema.end() && !(patterns->is_object() && patterns->empty());
  if (has_pattern && (!patterns->is_object() || patterns->size() != 1))
    return schema_error(
        StatusCode::kUnsupported, where,
        format("'patternProperties' is {}; supported is one pattern alone", quote_json(*patterns)));
  if (count.minimum > 1)  // a name may come twice, which readers count once
    return schema_error(StatusCode::kUnsupported, where,
                        format("'minProperties' is {}; supported is 1 at most", count.minimum));
  if (count.minimum > count.maximum) return nothing(where, "minProperties is above maxProperties");
  ExpressionId each = 0;
  if (has_pattern) {
    const auto pattern = patterns->begin();
    TSR_ASSIGN_OR_RETURN(const ExpressionId name,
                         read_regex(out_, pattern.key(), RegexMatch::kSearch, TextForm::kJsonString,
                                    format("JSON schema, {}: the pattern of properties", quote(where, 400))));
    TSR_ASSIGN_OR_RETURN(
        const ExpressionId value,
        read_schema(pattern.value(), format("{}/patternProperties{}", where, pointer_part(pattern.key()))));
    each = json_.member(out_.sequence({out_.literal("\""), name, out_.literal("\"")}), value);
  } else {
    if ((additional == schema.end() || *additional == Json(true)) && count.minimum == 0 &&
        count.maximum == kUnbounded)
      return json_.any_object();
    ExpressionId value = 0;
    if (additional == schema.end()) {
      value = json_.any_value();
    } else {
      TSR_ASSIGN_OR_RETURN(value, read_schema(*additional, where + "/additionalProperties"));
    }
    each = json_.member(json_.string(), value);
  }
  if (count.maximum == 0) return json_.braces({});
  each = out_.shared(each, where + "/additionalProperties");
  const ExpressionId next = out_.sequence({json_.separator(), each});
  const uint32_t most = count.maximum == kUnbounded ? kUnbounded : count.maximum - 1;
  const ExpressionId all = out_.sequence({each, out_.repeat(next, 0, most)});
  return json_.braces(std::array{Member{all, count.minimum > 0}});
}

}  // namespace tessera::grammar
