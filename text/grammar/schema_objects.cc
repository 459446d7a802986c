// Objects of JSON schema.
#include <algorithm>
#include <bit>
#include <set>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/regex_language.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/string_automaton.h"

namespace tessera::grammar {
namespace {

// The conjunction of these schemas.
Json all_of(std::vector<Json> schemas) {
  std::erase(schemas, Json(true));
  if (schemas.empty()) return true;
  return schemas.size() == 1 ? schemas[0] : Json{{"allOf", Json(schemas)}};
}

// The schema of additional properties: 'additionalProperties', or with all keywords in one schema 'unevaluatedProperties'.
Json additional_of(const Json& schema) {
  for (const char* key : {"additionalProperties", "unevaluatedProperties"})
    if (const auto found = schema.find(key); found != schema.end()) return *found;
  return {};
}

bool has_patterns(const Json& schema) {
  const auto patterns = schema.find("patternProperties");
  return patterns != schema.end() && !(patterns->is_object() && patterns->empty());
}

std::string place_of_names(const std::string& where) {
  return format("JSON schema, {}: the pattern of properties", quote(where, 400));
}

}  // namespace

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

Result<std::vector<SchemaReader::Property>> SchemaReader::read_properties(const Json& schema,
                                                                          const std::string& where) {
  const auto properties = schema.find("properties");
  if (properties != schema.end() && !properties->is_object())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'properties' is {}, wanted an object of schemas", quote_json(*properties)));
  const auto patterns = schema.find("patternProperties");
  if (patterns != schema.end() && !patterns->is_object())
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'patternProperties' is {}, wanted an object of schemas", quote_json(*patterns)));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> required, read_required(schema, where));
  const std::set<std::string> must(required.begin(), required.end());
  std::vector<Property> members;
  std::set<std::string> known;
  const auto names = schema.find("propertyNames");
  const auto add = [&](const std::string& name, Json value, const std::string& place) -> Status {
    if (!known.insert(name).second) return {};
    std::vector<Json> all = {std::move(value)};
    if (patterns != schema.end())
      for (const auto& [pattern, each] : patterns->items()) {
        TSR_ASSIGN_OR_RETURN(
            const LanguageId language,
            regex_language(languages_, pattern, RegexMatch::kSearch, place_of_names(where)));
        if (languages_.contains(language, name)) all.push_back(each);
      }
    const bool is_allowed = names == schema.end() || allows(Json(name), *names) == std::optional(true);
    if (!is_allowed) all = {Json(false)};
    if (all_of(all) == Json(false) && !must.contains(name)) return {};
    TSR_ASSIGN_OR_RETURN(const ExpressionId member, read_member(name, all_of(std::move(all)), place));
    members.push_back({name, {member, must.contains(name)}});
    return {};
  };
  if (properties != schema.end())
    for (const auto& [name, value] : properties->items())
      TSR_RETURN_IF_ERROR(add(name, value, format("{}/properties{}", where, pointer_part(name))));
  // Required names without a schema follow, as additional properties; then listable names.
  const Json additional = additional_of(schema);
  const Json otherwise = additional.is_null() ? Json(true) : additional;
  for (const std::string& name : required)
    TSR_RETURN_IF_ERROR(add(name, otherwise, format("{}/required{}", where, pointer_part(name))));
  const bool is_open = !additional.is_null() || members.empty();
  if (names != schema.end() && is_open && otherwise != Json(false))
    if (const auto listed = list_values(*names, where + "/propertyNames"))
      for (const Json& name : *listed)
        if (name.is_string())
          TSR_RETURN_IF_ERROR(add(name.get<std::string>(), otherwise, where + "/additionalProperties"));
  return members;
}

Result<std::vector<ExpressionId>> SchemaReader::read_additional(const Json& schema,
                                                                const std::vector<Property>& properties,
                                                                const std::string& where) {
  constexpr size_t kMostPatterns = 16, kMostCombined = 3;
  std::vector<ExpressionId> members;
  const Json additional = additional_of(schema);
  const auto patterns = schema.find("patternProperties"), names = schema.find("propertyNames");
  const bool is_open = additional.is_null() ? properties.empty() && !has_patterns(schema) : additional != Json(false);
  if (names != schema.end() && list_values(*names, where + "/propertyNames")) return members;  // they are listed
  if (!is_open && !has_patterns(schema)) return members;
  const Json otherwise = additional.is_null() ? Json(true) : additional;
  std::vector<std::string> known;
  for (const auto* list : {"properties", "required"})
    if (const auto found = schema.find(list); found != schema.end())
      for (const auto& [key, value] : found->items()) known.push_back(found->is_array() ? value.get<std::string>() : key);
  if (scope_.place == Place::kMembers) return is_open ? read_marked_additional(otherwise, known, where) : members;
  if (!has_patterns(schema) && names == schema.end()) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId value, read_schema(otherwise, where + "/additionalProperties"));
    members.push_back(json_.member(json_.name_except(known), value));
    return members;
  }
  const bool is_verbatim = !json_.limits_texts() && patterns != schema.end() && patterns->size() == 1;
  if (is_verbatim && has_patterns(schema) && names == schema.end() && !is_open && known.empty()) {
    const auto pattern = patterns->begin();
    const auto name = read_regex(out_, pattern.key(), RegexMatch::kSearch, TextForm::kJsonString,
                                 place_of_names(where));
    if (name.ok()) {
      TSR_ASSIGN_OR_RETURN(
          const ExpressionId value,
          read_schema(pattern.value(), format("{}/patternProperties{}", where, pointer_part(pattern.key()))));
      members.push_back(json_.member(out_.sequence({out_.literal("\""), *name, out_.literal("\"")}), value));
      return members;
    }
  }
  // Names grouped by the patterns they match, without those of properties and within 'propertyNames'.
  std::vector<LanguageId> languages, excluded;
  std::vector<Json> schemas;
  if (has_patterns(schema))
    for (const auto& [pattern, each] : patterns->items()) {
      TSR_ASSIGN_OR_RETURN(const LanguageId language,
                           regex_language(languages_, pattern, RegexMatch::kSearch, place_of_names(where)));
      TSR_ASSIGN_OR_RETURN(
          const LanguageId wide,
          regex_language(languages_, pattern, RegexMatch::kSearch, place_of_names(where), true));
      languages.push_back(language);
      excluded.push_back(languages_.complement(wide));
      schemas.push_back(each);
    }
  if (languages.size() > kMostPatterns)
    return schema_error(StatusCode::kUnsupported, where,
                        format("'patternProperties' has {} patterns, wanted at most {}", languages.size(), kMostPatterns));
  std::vector<LanguageId> taken;
  for (const std::string& name : known) taken.push_back(languages_.text(name));
  LanguageId free = languages_.both(languages_.complement(languages_.choice(std::move(taken))), scope_language());
  Limits length;
  if (names != schema.end()) {
    TSR_ASSIGN_OR_RETURN(const Json flat, flatten(*names, where + "/propertyNames", 0));
    if (flat == Json(false)) return members;
    if (flat.is_object()) {
      TSR_ASSIGN_OR_RETURN(const Json plain, apply_not(flat, where + "/propertyNames"));
      const auto types = types_of_schema(plain, where + "/propertyNames");
      for (const char* key : {"anyOf", "oneOf", "enum", "const"})
        if (plain.contains(key))
          return schema_error(StatusCode::kUnsupported, where,
                              format("'propertyNames' has '{}' of names that cannot be listed", key));
      if (types.ok() && std::ranges::find(*types, "string") == types->end()) return members;
      TSR_ASSIGN_OR_RETURN(const LanguageId allowed, string_language(plain, where + "/propertyNames"));
      TSR_ASSIGN_OR_RETURN(length, read_limits(plain, "minLength", "maxLength", where + "/propertyNames"));
      free = languages_.both(free, allowed);
    }
  }
  const size_t count = languages.size();
  for (uint32_t matched = 0; matched < 1u << count; ++matched) {
    const auto bits = static_cast<size_t>(std::popcount(matched));
    if ((bits == 0 && !is_open) || (count > kMostCombined && bits > 1)) continue;
    std::vector<LanguageId> all = {free};
    std::vector<Json> values;
    for (size_t i = 0; i < count; ++i) {
      const bool is_matched = (matched >> i & 1) != 0;
      all.push_back(is_matched ? languages[i] : excluded[i]);
      if (is_matched) values.push_back(schemas[i]);
    }
    const auto automaton = StringAutomaton::of(languages_, languages_.both(std::move(all)));
    if (!automaton.ok()) return schema_error(automaton.status().code(), where, automaton.status().message());
    if (automaton->states.empty()) continue;
    const Json value = bits == 0 ? otherwise : all_of(values);
    if (value == Json(false)) continue;
    const auto name = write_automaton(out_, *automaton, json_.text_form(), length.minimum, length.maximum);
    if (!name.ok()) return schema_error(name.status().code(), where, name.status().message());
    TSR_ASSIGN_OR_RETURN(
        const ExpressionId content,
        read_schema(value, where + (bits == 0 ? "/additionalProperties" : "/patternProperties")));
    members.push_back(json_.member(json_.quoted(*name), content));
  }
  return members;
}

Result<ExpressionId> SchemaReader::read_object(const Json& schema, const std::string& where) {
  const bool has_marks = scope_.place == Place::kMembers;
  const Within inside(*this, has_marks ? scope_ : Scope());
  TSR_ASSIGN_OR_RETURN(const Limits count, read_limits(schema, "minProperties", "maxProperties", where));
  if (count.minimum > count.maximum)
    return nothing(where, format("minProperties {} is above maxProperties {}", count.minimum, count.maximum));
  const bool has_count = count.minimum > 0 || count.maximum != kUnbounded;
  TSR_ASSIGN_OR_RETURN(const std::vector<Property> properties, read_properties(schema, where));
  const Json additional = additional_of(schema);
  const bool is_any = properties.empty() && (additional.is_null() || additional == Json(true)) &&
                      !has_patterns(schema) && !schema.contains("propertyNames") && !schema.contains("required") &&
                      (!schema.contains("properties") || schema["properties"].empty());
  if (is_any && !has_count && !has_marks) return json_.any_object();
  TSR_ASSIGN_OR_RETURN(std::vector<ExpressionId> more, read_additional(schema, properties, where));
  std::optional<ExpressionId> each;
  if (!more.empty()) each = out_.shared(out_.choice(std::move(more)), where + "/additionalProperties");
  std::vector<Member> members;
  size_t required = 0;
  for (const Property& property : properties) {
    members.push_back(property.member);
    required += property.member.is_required;
  }
  const bool is_implied =
      count.minimum <= required && (count.maximum == kUnbounded || (!each && count.maximum >= members.size()));
  if (is_implied) {
    if (each) {
      const ExpressionId next = out_.sequence({separator(), *each});
      members.push_back({out_.sequence({*each, out_.repeat(next, 0, kUnbounded)}), false});
    }
    return enclosed(members);
  }
  if (count.minimum > members.size() + (each ? 1 : 0)) {
    if (!each)
      return nothing(where, format("minProperties is {}, of {} names", count.minimum, members.size()));
    return schema_error(StatusCode::kUnsupported, where,
                        format("'minProperties' is {}, supported is {}: names that are not listed may repeat",
                               count.minimum, members.size() + 1));
  }
  if (required > count.maximum)
    return nothing(where, format("maxProperties is {}, but {} are required", count.maximum, required));
  constexpr uint64_t kMostStates = uint64_t{1} << 16;
  const uint64_t counted = count.maximum == kUnbounded
                               ? count.minimum
                               : std::min<uint64_t>(count.maximum, members.size());
  if ((members.size() + 1) * (counted + 1) > kMostStates)
    return schema_error(StatusCode::kUnsupported, where,
                        format("'minProperties' and 'maxProperties' of {} properties are too large", members.size()));
  const ExpressionId counted_all = counted_members(properties, each, count);
  if (has_marks) return counted_all;
  return out_.sequence({out_.literal("{"), json_.space(), counted_all, json_.space(), out_.literal("}")});
}

// A rule for each member and number of members before it.
ExpressionId SchemaReader::counted_members(const std::vector<Property>& properties,
                                           std::optional<ExpressionId> more, const Limits& count) {
  const bool is_bounded = count.maximum != kUnbounded;
  const auto size = static_cast<uint32_t>(properties.size());
  const uint32_t most = is_bounded ? std::min(count.maximum, size) : std::max(count.minimum, 1u);
  std::vector<ExpressionId> written;
  for (const Property& property : properties)
    written.push_back(out_.shared(property.member.expression, "property " + property.name));
  // The continuations of the last member, by number of members.
  std::vector<ExpressionId> next;
  for (uint32_t before = 0; before <= most; ++before) {
    const uint32_t least = before < count.minimum ? count.minimum - before : 0;
    const uint32_t left = is_bounded ? count.maximum - before : kUnbounded;
    ExpressionId end = least == 0 ? out_.empty() : out_.nothing();
    // Readers count a repeated name once; a single one counts for the minimum.
    if (more && least <= 1 && left > 0) {
      const ExpressionId separated = out_.sequence({separator(), *more});
      const uint32_t others = left == kUnbounded ? kUnbounded : left - 1;
      const ExpressionId first = before > 0 ? separated : *more;
      const ExpressionId all = out_.sequence({first, out_.repeat(separated, 0, others)});
      end = least == 0 ? out_.optional(all) : all;
    }
    next.push_back(out_.shared(end, "properties that are not listed"));
  }
  for (uint32_t i = size; i-- > 0;) {
    std::vector<ExpressionId> here;
    for (uint32_t before = 0; before <= most; ++before) {
      std::vector<ExpressionId> parts;
      if (!properties[i].member.is_required) parts.push_back(next[before]);
      const bool has_room = !is_bounded || before < count.maximum;
      if (has_room) {
        const uint32_t after = std::min(before + 1, most);
        parts.push_back(out_.sequence({before > 0 ? separator() : out_.empty(), written[i], next[after]}));
      }
      const RuleId rule = out_.declare_rule("properties, counted");
      out_.define_rule(rule, out_.sequence({out_.empty(), out_.choice(std::move(parts))}));
      here.push_back(out_.call(rule));
    }
    next = std::move(here);
  }
  return next[0];
}

}  // namespace tessera::grammar
