#include "text/grammar/schema_reader.h"

#include <algorithm>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

int64_t count_values(const Json& value) {
  int64_t count = 1;
  if (value.is_structured())
    for (const Json& each : value) count += count_values(each);
  return count;
}

Json without(const Json& schema, std::string_view keyword) {
  Json rest = schema;
  rest.erase(std::string(keyword));
  return rest;
}

std::string_view type_of(const Json& value) {
  for (const char* type : {"null", "boolean", "string", "array", "object"})
    if (is_of_type(value, type)) return type;
  return "number";
}

}  // namespace

Result<RuleId> SchemaReader::read() {
  if (marks_ != nullptr) scope_.place = Place::kMembers;
  TSR_RETURN_IF_ERROR(call("#", "#").status());
  for (size_t i = 0; i < queue_.size(); ++i) {
    const Target target = queue_[i];
    scope_ = target.scope;
    TSR_ASSIGN_OR_RETURN(const ExpressionId body, read_schema(*target.schema, target.pointer));
    TSR_RETURN_IF_ERROR(out_.status());
    // An own sequence, since two rules never share an expression.
    out_.define_rule(target.rule, out_.sequence({out_.empty(), body}));
  }
  return queue_[0].rule;
}

Result<ExpressionId> SchemaReader::read_schema(const Json& schema, const std::string& where) {
  if (depth_ >= kMostDepth)
    return schema_error(StatusCode::kUnsupported, where, format("schemas nest deeper than {}", kMostDepth));
  ++depth_;
  auto result = read_schema_at_depth(schema, where);
  --depth_;
  return result;
}

Result<ExpressionId> SchemaReader::read_schema_at_depth(const Json& schema, const std::string& where) {
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return any_value(where);
    return nothing(where, "the schema is false");
  }
  if (!schema.is_object())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("found {}, wanted a schema: an object, true or false", quote_json(schema)));
  TSR_RETURN_IF_ERROR(check_keywords(schema, where));
  if (schema.contains("$ref") && schema["$ref"].is_string() && !has_constraints_beside(schema, {"$ref"}))
    return call(schema["$ref"].get<std::string>(), where);
  if (schema.contains("$ref") || schema.contains("allOf")) {
    TSR_ASSIGN_OR_RETURN(const Json flat, flatten(schema, where, 0));
    return read_schema(flat, where);
  }
  // 'oneOf' is merged into the branches of 'anyOf', and 'not' into the branches of both.
  for (const char* keyword : {"anyOf", "oneOf"})
    if (schema.contains(keyword)) return read_branches(schema, keyword, where);
  if (schema.contains("not")) {
    TSR_ASSIGN_OR_RETURN(const Json left, apply_not(schema, where));
    if (left == Json(false)) return nothing(where, "'not' excludes everything");
    if (!left.contains("not") || left.contains("anyOf")) return read_schema(left, where);
    // The remainder applies to strings.
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> left_types, types_of_schema(left, where));
    return left_types.empty() ? nothing(where, "no type is left") : read_string(left, where);
  }
  if (schema.contains("enum") || schema.contains("const")) return read_values(schema, where);
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(schema, where));
  if (!schema.contains("type") && !has_constraints_beside(schema, {})) return any_value(where);
  if (types.empty()) return nothing(where, "no type is left");
  std::vector<ExpressionId> parts;
  for (const std::string& type : types) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId part, read_type(schema, type, where));
    parts.push_back(part);
  }
  return out_.choice(std::move(parts));
}

Result<ExpressionId> SchemaReader::any_value(const std::string& where) {
  if (scope_.place == Place::kValue) return json_.any_value();
  if (scope_.place == Place::kMembers) return read_object(Json::object(), where);
  // Between marks all that is written is a text.
  return read_type(Json::object(), scope_.type.empty() ? "string" : scope_.type, where);
}

bool SchemaReader::is_written(std::string_view type) const {
  if (scope_.place == Place::kMembers) return type == "object";
  return scope_.type.empty() || scope_.type == (type == "integer" ? "number" : type);
}

Result<ExpressionId> SchemaReader::read_type(const Json& schema, const std::string& type,
                                             const std::string& where) {
  if (!is_written(type)) return out_.nothing();
  if (type == "null") return json_.null();
  if (type == "boolean") return json_.boolean();
  if (type == "string") return read_string(schema, where);
  if (type == "array") return read_array(schema, where);
  if (type == "object") return read_object(schema, where);
  return read_number(schema, type == "integer", where);
}

Result<ExpressionId> SchemaReader::read_values(const Json& schema, const std::string& where) {
  if (const auto list = schema.find("enum"); list != schema.end() && !list->is_array())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'enum' is {}, wanted a list", quote_json(*list)));
  TSR_RETURN_IF_ERROR(types_of_schema(schema, where).status());
  Json values = schema.value("enum", Json::array());
  if (const auto only = schema.find("const"); only != schema.end()) {
    const bool is_listed = !schema.contains("enum") ||
                           std::ranges::any_of(values, [&](const Json& each) { return is_same(each, *only); });
    values = Json::array();
    if (is_listed) values.push_back(*only);
  }
  if (scope_.place == Place::kMembers)
    return schema_error(StatusCode::kUnsupported, where,
                        "the object is listed as a whole, which cannot be written between marks");
  const Json limits = without(without(schema, "enum"), "const");
  std::vector<std::string> texts;
  std::vector<ExpressionId> parts;
  bool has_others = false;  // of types that are not written here
  for (const Json& value : values) {
    const std::optional<bool> is_allowed = allows(value, limits);
    if (!is_allowed)
      return schema_error(StatusCode::kUnsupported, where,
                          format("whether the other keywords allow {}, which is listed, is not plain",
                                 quote(json_text(value), 200)));
    if (!*is_allowed) continue;
    if (!is_written(type_of(value))) {
      has_others = true;
    } else if (scope_.place == Place::kMarked && value.is_string()) {
      if (languages_.contains(scope_language(), value.get<std::string>())) texts.push_back(value.get<std::string>());
    } else if (value.is_string()) {
      if (std::optional<std::string> text = json_.quoted_text(value.get<std::string>())) texts.push_back(std::move(*text));
    } else if (value.is_number() || value.is_binary()) {
      texts.push_back(json_text(value));
    } else {
      parts.push_back(json_.exactly(value));
    }
  }
  if (texts.empty() && parts.empty() && has_others) return out_.nothing();
  if (texts.empty() && parts.empty()) return nothing(where, "no value is listed that has the type");
  if (!texts.empty()) parts.push_back(out_.literals(std::move(texts)));
  return out_.choice(std::move(parts));
}

Result<Json> SchemaReader::flatten(const Json& schema, const std::string& where, int depth) {
  constexpr int kMostFlattened = 32;
  if (depth > kMostFlattened)
    return schema_error(StatusCode::kUnsupported, where,
                        "'$ref' and 'allOf' refer to each other without end, or too deeply");
  if (!schema.is_object()) {
    if (schema.is_boolean()) return schema;
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("found {}, wanted a schema: an object, true or false", quote_json(schema)));
  }
  TSR_RETURN_IF_ERROR(check_keywords(schema, where));
  if (!schema.contains("$ref") && !schema.contains("allOf") && !schema.contains("$id")) return schema;
  TSR_RETURN_IF_ERROR(spend(schema, where));
  Json flat = without(schema, "allOf");
  flat.erase("$id");
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (!reference->is_string())
      return schema_error(
          StatusCode::kInvalidArgument, where,
          format("'$ref' is {}, wanted a reference such as \"#/$defs/a\"", quote_json(*reference)));
    flat.erase("$ref");
    std::string pointer;
    TSR_ASSIGN_OR_RETURN(const Json* target, find_schema(root_, reference->get<std::string>(), where, pointer));
    TSR_ASSIGN_OR_RETURN(const Json part, flatten(*target, pointer, depth + 1));
    TSR_ASSIGN_OR_RETURN(flat, merge_schemas(flat, close_unevaluated(part), where));
  }
  if (const auto parts = schema.find("allOf"); parts != schema.end()) {
    if (!parts->is_array() || parts->empty())
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'allOf' is {}, wanted a list of schemas", quote_json(*parts)));
    for (const Json& each : *parts) {
      TSR_ASSIGN_OR_RETURN(const Json part, flatten(each, where + "/allOf", depth + 1));
      TSR_RETURN_IF_ERROR(spend(flat, where));
      TSR_ASSIGN_OR_RETURN(flat, merge_schemas(flat, close_unevaluated(part), where));
    }
  }
  return flat;
}

Status SchemaReader::spend(const Json& copied, const std::string& where) {
  merged_ += count_values(copied);
  if (merged_ <= kMostMerged) return {};
  return schema_error(StatusCode::kUnsupported, where, "'allOf' and 'anyOf' make too large a schema");
}

Result<ExpressionId> SchemaReader::call(const std::string& reference, const std::string& where) {
  std::string pointer;
  TSR_ASSIGN_OR_RETURN(const Json* target, find_schema(root_, reference, where, pointer));
  const auto [found, is_new] = rules_.try_emplace({scope_, pointer}, 0);
  if (is_new) {
    found->second = out_.declare_rule(pointer);
    queue_.push_back({scope_, pointer, target, found->second});
  }
  return out_.call(found->second);
}

ExpressionId SchemaReader::nothing(const std::string& where, const std::string& why) {
  if (contradiction_.empty()) contradiction_ = format("{}: {}", quote(where, 400), why);
  return out_.nothing();
}

}  // namespace tessera::grammar
