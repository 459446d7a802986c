// Alternatives of JSON schema: anyOf, oneOf, not, and whether schemas are disjoint.
#include <algorithm>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/number_range.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/string_automaton.h"

namespace tessera::grammar {
namespace {

Json without(const Json& schema, std::string_view keyword) {
  Json rest = schema;
  rest.erase(std::string(keyword));
  return rest;
}

bool is_closed(const Json& schema) {
  const auto additional = schema.find("additionalProperties");
  return additional != schema.end() && *additional == Json(false) && !schema.contains("patternProperties");
}

Json values_of(const Json& schema) {
  if (schema.contains("const")) return Json::array({schema["const"]});
  return schema.value("enum", Json());
}

bool names_type(const Json& schema, std::string_view type) {
  const auto given = schema.find("type");
  if (given == schema.end()) return true;
  const auto is_named = [&](std::string_view name) {
    return *given == Json(name) || (given->is_array() && std::ranges::find(*given, Json(name)) != given->end());
  };
  return is_named(type) || (type == "number" && is_named("integer"));
}

// Keywords restrict only values of their own types, so only named types and listed values count.
bool allows_type(const Json& schema, std::string_view type) {
  const Json values = values_of(schema);
  if (!values.is_array()) return names_type(schema, type);
  return std::ranges::any_of(values, [&](const Json& each) { return is_of_type(each, type); });
}

// Whether the ranges of two number schemas are disjoint.
bool are_ranges_apart(const Json& a, const Json& b) {
  const auto is_above = [](const Json& high, const Json& low) {
    for (const char* least : {"minimum", "exclusiveMinimum"})
      for (const char* most : {"maximum", "exclusiveMaximum"}) {
        const auto from = high.find(least), to = low.find(most);
        if (from == high.end() || to == low.end() || !is_number(*from) || !is_number(*to)) continue;
        const int order = compare_numbers(*from, *to);
        const bool is_exclusive = least[0] == 'e' || most[0] == 'e';
        if (order > 0 || (order == 0 && is_exclusive)) return true;
      }
    return false;
  };
  return is_above(a, b) || is_above(b, a);
}

const Json* property_of(const Json& schema, const std::string& name) {
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return nullptr;
  const auto found = properties->find(name);
  return found == properties->end() ? nullptr : &*found;
}

// A number, any string, and optionally null: Pydantic's decimal, whose strings are numerals.
bool is_decimal(const std::vector<Json>& branches, size_t number, size_t string) {
  const auto is_bare = [](const Json& branch, std::string_view type) {
    return branch.is_object() && branch.value("type", Json()) == Json(type) && !has_constraints_beside(branch, {"type"});
  };
  if (number > string || branches[number].value("type", Json()) != Json("number") || !is_bare(branches[string], "string"))
    return false;
  for (size_t i = 0; i < branches.size(); ++i)
    if (i != number && i != string && !is_bare(branches[i], "null")) return false;
  return true;
}

bool is_required(const Json& schema, const std::string& name) {
  const auto list = schema.find("required");
  return list != schema.end() && list->is_array() && std::ranges::find(*list, Json(name)) != list->end();
}

// `name` by value: it may be part of the schema.
void require(Json& schema, std::string name) {
  if (is_required(schema, name)) return;
  if (!schema.contains("required")) schema["required"] = Json::array();
  schema["required"].push_back(std::move(name));
}

}  // namespace

Result<ExpressionId> SchemaReader::read_branches(const Json& schema, const char* keyword,
                                                 const std::string& where) {
  constexpr size_t kMostBranches = 256;  // pairwise comparison
  const Json& list = schema[keyword];
  if (!list.is_array() || list.empty())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'{}' is {}, wanted a list of schemas", keyword, quote_json(list)));
  const bool is_one = keyword == std::string_view("oneOf");
  if (is_one && list.size() > kMostBranches)
    return schema_error(StatusCode::kUnsupported, where,
                        format("'oneOf' has {} schemas, wanted at most {}", list.size(), kMostBranches));
  const bool is_alone = !has_constraints_beside(schema, {keyword});
  const Json common = is_alone ? Json() : without(schema, keyword);
  std::vector<Json> branches;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = format("{}/{}/{}", where, keyword, i);
    if (is_alone) {
      branches.push_back(list[i]);
      continue;
    }
    TSR_RETURN_IF_ERROR(spend(common, place));
    TSR_ASSIGN_OR_RETURN(const Json branch, flatten(list[i], place, 0));
    TSR_ASSIGN_OR_RETURN(Json merged, merge_schemas(common, close_unevaluated(branch), place));
    branches.push_back(std::move(merged));
  }
  if (!is_one) return read_any_of(branches, where);
  std::vector<Json> disjoint = branches;
  for (size_t i = 0; i < branches.size(); ++i)
    for (size_t k = 0; k < branches.size(); ++k) {
      if (i == k) continue;
      TSR_ASSIGN_OR_RETURN(const bool is_known_disjoint, is_disjoint(disjoint[i], branches[k], where, 0));
      if (is_known_disjoint) continue;
      TSR_ASSIGN_OR_RETURN(Json narrowed, separate(disjoint[i], branches[k], where));
      if (narrowed.is_null())
        return schema_error(
            StatusCode::kUnsupported, where,
            format("'oneOf' is supported where its schemas are distinguished by 'type', values, ranges, or "
                   "properties that one has and the other has not; {} and {} are not",
                   std::min(i, k), std::max(i, k)));
      disjoint[i] = std::move(narrowed);
    }
  std::vector<ExpressionId> parts;
  for (size_t i = 0; i < disjoint.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId part, read_schema(disjoint[i], format("{}/{}/{}", where, keyword, i)));
    parts.push_back(part);
  }
  return out_.choice(std::move(parts));
}

Result<ExpressionId> SchemaReader::read_any_of(const std::vector<Json>& branches, const std::string& where) {
  std::vector<ExpressionId> parts;
  std::vector<bool> is_read(branches.size());
  // Numbers that may also be strings of numerals, as decimals are.
  const auto is_plain = [](const Json& branch, std::string_view type, std::string_view keyword) {
    return branch.is_object() && branch.contains("type") && branch["type"].is_string() && branch["type"] == Json(type) &&
           (keyword.empty() || branch.contains(std::string(keyword))) && !branch.contains("enum") &&
           !branch.contains("const") && !branch.contains("$ref") && !branch.contains("allOf") &&
           !branch.contains("anyOf") && !branch.contains("oneOf") && !branch.contains("not");
  };
  for (size_t i = 0; i < branches.size(); ++i)
    for (size_t k = 0; k < branches.size() && !is_read[i]; ++k) {
      const bool is_number = is_plain(branches[i], "number", "") || is_plain(branches[i], "integer", "");
      if (!is_number || is_read[k]) continue;
      const bool has_pattern = is_plain(branches[k], "string", "pattern");
      if (!has_pattern && !is_decimal(branches, i, k)) continue;
      const auto both = read_numerals(branches[i], branches[k], format("{}/anyOf/{}", where, i));
      if (!both.ok() || !*both) continue;
      parts.push_back(**both);
      is_read[i] = is_read[k] = true;
    }
  Status refused;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (is_read[i]) continue;
    const std::string place = format("{}/anyOf/{}", where, i);
    const size_t queued = queue_.size();
    is_pattern_refused_ = false;
    const auto part = read_schema(branches[i], place);
    if (part.ok()) {
      parts.push_back(*part);
      continue;
    }
    // Texts are generated by other branches if a pattern is unsupported.
    if (!is_pattern_refused_ || part.status().code() != StatusCode::kUnsupported) return part.status();
    if (refused.ok()) refused = part.status();
    for (; queue_.size() > queued; queue_.pop_back()) rules_.erase({queue_.back().scope, queue_.back().pointer});
  }
  if (parts.empty() && !refused.ok()) return refused;
  return out_.choice(std::move(parts));
}

Result<Json> SchemaReader::separate(const Json& branch, const Json& other, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(Json one, flatten(branch, where, 0));
  TSR_ASSIGN_OR_RETURN(const Json two, flatten(other, where, 0));
  if (!one.is_object() || !two.is_object()) return Json();
  if (const auto values = list_values(one, where)) {
    Json left = Json::array();
    for (const Json& value : *values) {
      const std::optional<bool> is_allowed = allows(value, two);
      if (!is_allowed) return Json();
      if (!*is_allowed) left.push_back(value);
    }
    return Json{{"enum", std::move(left)}};
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(one, where));
  if (types == std::vector<std::string>{"string"}) {
    // Texts that the other lists, or matches by simple limits.
    const auto values = list_values(two, where);
    Json excluded;
    if (values) {
      excluded = {{"enum", Json(*values)}};
    } else {
      if (has_constraints_beside(two, {"type", "pattern", "minLength", "maxLength"})) return Json();
      excluded = two;
    }
    one["not"] = one.contains("not") ? hold_together(one["not"], excluded) : excluded;
    return one;
  }
  if (types != std::vector<std::string>{"object"} || !allows_type(two, "object")) return Json();
  for (const char* keyword : {"anyOf", "oneOf", "enum", "const"})
    if (one.contains(keyword) || two.contains(keyword)) return Json();
  // Requires a property whose values differ or that the other lacks; forbids one that the other requires.
  if (const auto properties = one.find("properties"); properties != one.end() && properties->is_object())
    for (const auto& [name, value] : properties->items()) {
      const Json* const same = property_of(two, name);
      if (same == nullptr) continue;
      TSR_ASSIGN_OR_RETURN(const bool is_known_disjoint, is_disjoint(value, *same, where, 1));
      if (!is_known_disjoint) continue;
      require(one, std::string(name));
      return one;
    }
  if (const auto list = two.find("required"); list != two.end() && list->is_array())
    for (const Json& name : *list) {
      if (!name.is_string() || is_required(one, name)) continue;
      one["properties"][name.get<std::string>()] = false;
      return one;
    }
  if (const auto properties = one.find("properties"); is_closed(two) && properties != one.end())
    for (const auto& [name, value] : properties->items())
      if (property_of(two, name) == nullptr && value != Json(false)) {
        require(one, std::string(name));
        return one;
      }
  return Json();
}

Result<bool> SchemaReader::is_disjoint(const Json& a, const Json& b, const std::string& where, int depth) {
  constexpr int kMostDisjointDepth = 3;
  if (a == Json(false) || b == Json(false)) return true;
  if (!a.is_object() || !b.is_object()) return false;
  TSR_ASSIGN_OR_RETURN(const Json one, flatten(a, where, 0));
  TSR_ASSIGN_OR_RETURN(const Json other, flatten(b, where, 0));
  if (!one.is_object() || !other.is_object()) return one == Json(false) || other == Json(false);
  const Json values = values_of(one), others = values_of(other);
  if (values.is_array() && others.is_array())
    return std::ranges::none_of(values, [&](const Json& each) {
      return std::ranges::any_of(others, [&](const Json& same) { return is_same(each, same); });
    });
  const auto forbids_all = [&](const Json& schema, const Json& listed) {
    return listed.is_array() && listed.size() <= 64 &&
           std::ranges::all_of(listed, [&](const Json& each) { return allows(each, schema) == std::optional(false); });
  };
  if (forbids_all(other, values) || forbids_all(one, others)) return true;
  // Values of the keywords' types must be forbidden by the other.
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(one, where));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> other_types, types_of_schema(other, where));
  const auto is_written = [&](std::string_view type) {
    const auto has = [&](const std::vector<std::string>& list) {
      return std::ranges::find(list, type) != list.end() ||
             (type == "number" && std::ranges::find(list, "integer") != list.end());
    };
    return has(types) || has(other_types);
  };
  for (const char* name : {"null", "boolean", "number", "string", "array", "object"}) {
    const std::string_view type = name;
    if (!is_written(type) || !allows_type(one, type) || !allows_type(other, type)) continue;
    if (type == "number" && are_ranges_apart(one, other)) continue;
    if (type != "object") return false;
    // Objects: separated by a required property.
    if (depth >= kMostDisjointDepth) return false;
    bool is_known_disjoint = false;
    for (const auto& [schema, against] : {std::pair(&one, &other), std::pair(&other, &one)}) {
      TSR_ASSIGN_OR_RETURN(const std::vector<std::string> required, read_required(*schema, where));
      for (const std::string& name_of_it : required) {
        if (is_known_disjoint) break;
        const Json *own = property_of(*schema, name_of_it), *same = property_of(*against, name_of_it);
        if (same == nullptr)
          is_known_disjoint = is_closed(*against);
        else if (*same == Json(false))
          is_known_disjoint = true;
        else if (own != nullptr) {
          TSR_ASSIGN_OR_RETURN(is_known_disjoint, is_disjoint(*own, *same, where, depth + 1));
        }
      }
    }
    if (!is_known_disjoint) return false;
  }
  return true;
}

Result<Json> SchemaReader::apply_not(const Json& schema, const std::string& where) {
  if (!schema.contains("not")) return schema;
  Json left = without(schema, "not");
  const auto refused = [&] {
    return schema_error(StatusCode::kUnsupported, where,
                        "'not' is supported of nothing and everything, types, listed values, required names, and of "
                        "strings' limits where only strings are left");
  };
  std::vector<Json> queue = values_together(schema["not"]);
  for (size_t i = 0; i < queue.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(const Json no, flatten(queue[i], where + "/not", 0));
    if (no == Json(false)) continue;
    if (no == Json(true) || (no.is_object() && !has_constraints_beside(no, {}))) return Json(false);
    if (!no.is_object()) return refused();
    TSR_ASSIGN_OR_RETURN(const bool is_known_disjoint, is_disjoint(left, no, where, 0));
    if (is_known_disjoint) continue;
    if (no.contains("anyOf") && no["anyOf"].is_array() && !has_constraints_beside(no, {"anyOf"})) {
      queue.insert(queue.end(), no["anyOf"].begin(), no["anyOf"].end());
      continue;
    }
    if (const auto values = list_values(left, where)) {
      Json kept = Json::array();
      for (const Json& value : *values) {
        const std::optional<bool> is_allowed = allows(value, no);
        if (!is_allowed) return refused();
        if (!*is_allowed) kept.push_back(value);
      }
      left = {{"enum", std::move(kept)}};
      continue;
    }
    if (no.contains("type") && !has_constraints_beside(no, {"type"})) {
      TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(left, where));
      TSR_ASSIGN_OR_RETURN(const std::vector<std::string> gone, types_of_schema(no, where));
      Json kept = Json::array();
      for (const std::string& type : types) {
        if (type == "number" && std::ranges::find(gone, "integer") != gone.end() &&
            std::ranges::find(gone, "number") == gone.end())
          return refused();
        const bool is_gone = std::ranges::find(gone, type) != gone.end() ||
                             (type == "integer" && std::ranges::find(gone, "number") != gone.end());
        if (!is_gone) kept.push_back(type);
      }
      left["type"] = std::move(kept);
      continue;
    }
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of_schema(left, where));
    const bool has_strings_alone = left.contains("type") && types == std::vector<std::string>{"string"};
    const auto values = list_values(no, where);
    if (has_strings_alone && (values || !has_constraints_beside(no, {"type", "pattern", "minLength", "maxLength"}))) {
      const Json excluded = values ? Json{{"enum", Json(*values)}} : no;
      left["not"] = left.contains("not") ? hold_together(left["not"], excluded) : excluded;
      continue;
    }
    const bool has_objects_alone = left.contains("type") && types == std::vector<std::string>{"object"};
    if (!has_objects_alone || !no.contains("required") || has_constraints_beside(no, {"required", "type"}))
      return refused();
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> names, read_required(no, where + "/not"));
    Json absent = Json::array();
    for (const std::string& name : names) absent.push_back({{"properties", {{name, false}}}});
    TSR_ASSIGN_OR_RETURN(left, merge_schemas(left, Json{{"anyOf", std::move(absent)}}, where));
  }
  return left;
}

}  // namespace tessera::grammar
