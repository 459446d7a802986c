// Strings of JSON schema: the conjunction of lengths, patterns, formats and exclusions.
#include <algorithm>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/mark_language.h"
#include "text/grammar/regex.h"
#include "text/grammar/regex_language.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/string_automaton.h"
#include "text/grammar/string_formats.h"

namespace tessera::grammar {
namespace {

Result<std::vector<std::string>> texts_of(const Json& schema, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  const auto found = schema.find(key);
  if (found == schema.end()) return texts;
  for (const Json& value : values_together(*found)) {
    if (!value.is_string())
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'{}' is {}, wanted a text", key, quote_json(value)));
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

// Pydantic writes URL classes, most of which require http or
// https, as "uri" with a minimum length; others write only "uri".
std::string known_name(const std::string& name, const Json& schema) {
  return name == "uri" && schema.contains("minLength") ? std::string(kWebFormat) : name;
}

Result<std::vector<StringFormat>> formats_of(const Json& schema, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> names, texts_of(schema, "format", where));
  std::vector<StringFormat> formats;
  for (const std::string& name : names)
    if (StringFormat form = format_of(known_name(name, schema)); !form.pattern.empty())
      formats.push_back(std::move(form));
  return formats;
}

std::string place_of_pattern(const std::string& where, const char* key) {
  return format("JSON schema, {}: the {}", quote(where, 400), key);
}

}  // namespace

Result<ExpressionId> SchemaReader::read_string(const Json& schema, const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const Limits length, read_limits(schema, "minLength", "maxLength", where));
  if (!is_written("string")) return out_.nothing();
  if (length.minimum > length.maximum)
    return nothing(where, format("minLength {} is above maxLength {}", length.minimum, length.maximum));
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, texts_of(schema, "pattern", where));
  TSR_ASSIGN_OR_RETURN(const std::vector<StringFormat> formats, formats_of(schema, where));
  const bool has_not = schema.contains("not");
  const bool is_marked = scope_.place == Place::kMarked, is_limited = is_marked || json_.limits_texts();
  if (patterns.empty() && formats.empty() && !has_not && !is_limited)
    return json_.string(length.minimum, length.maximum);
  std::string key;
  for (const char* name : {"minLength", "maxLength", "pattern", "format", "not"})
    if (schema.contains(name)) key += format("{} {}\n", name, dump(schema[name]));
  if (const auto known = strings_.find({scope_, key}); known != strings_.end()) return known->second;

  const auto read = [&]() -> Result<ExpressionId> {
    if (patterns.size() + formats.size() == 1 && !has_not && !is_limited) {
      // One whose own lengths are within the limits is used verbatim.
      const bool is_pattern = formats.empty();
      const std::string& source = is_pattern ? patterns[0] : formats[0].pattern;
      const RegexMatch match = is_pattern ? RegexMatch::kSearch : RegexMatch::kWhole;
      const std::string what = place_of_pattern(where, is_pattern ? "pattern" : "format");
      TSR_ASSIGN_OR_RETURN(const RegexShape shape, shape_of_regex(source, match, what));
      const bool is_within = length.minimum <= shape.shortest && length.maximum >= shape.longest;
      if (shape.is_simple && is_within) return read_regex(out_, source, match, TextForm::kJsonString, what);
    }
    TSR_ASSIGN_OR_RETURN(const LanguageId language, string_language(schema, where));
    const auto automaton = StringAutomaton::of(languages_, languages_.both(language, scope_language()));
    if (!automaton.ok()) return schema_error(automaton.status().code(), where, automaton.status().message());
    if (automaton->states.empty()) return nothing(where, "no text is allowed by all of its limits");
    const auto written =
        write_automaton(out_, *automaton, is_marked ? TextForm::kPlain : json_.text_form(), length.minimum, length.maximum);
    if (!written.ok()) return schema_error(written.status().code(), where, written.status().message());
    return written;
  };
  const auto content = read();
  is_pattern_refused_ = !content.ok() && content.status().code() == StatusCode::kUnsupported;
  TSR_RETURN_IF_ERROR(content.status());
  const RuleId rule = out_.declare_rule(format("{}/string", where));
  out_.define_rule(rule, is_marked ? out_.sequence({out_.empty(), *content}) : json_.quoted(*content));
  const ExpressionId call = out_.call(rule);
  strings_.emplace(std::pair(scope_, std::move(key)), call);
  return call;
}

LanguageId SchemaReader::scope_language() {
  if (scope_.place != Place::kMarked) return json_.allowed_texts(languages_);
  // XML's quotation is read as such.
  const LanguageId quotation = languages_.sequence(languages_.text("<![CDATA["), languages_.anything());
  return languages_.without(texts_before(languages_, scope_.close), quotation);
}

// Without lengths, which automata count.
Result<LanguageId> SchemaReader::string_language(const Json& schema, const std::string& where,
                                                 bool is_excluded) {
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, texts_of(schema, "pattern", where));
  TSR_ASSIGN_OR_RETURN(const std::vector<StringFormat> formats, formats_of(schema, where));
  std::vector<LanguageId> all;
  for (const std::string& pattern : patterns) {
    TSR_ASSIGN_OR_RETURN(const LanguageId language,
                         regex_language(languages_, pattern, RegexMatch::kSearch,
                                        place_of_pattern(where, "pattern"), is_excluded));
    all.push_back(language);
  }
  for (const StringFormat& form : formats) {
    TSR_ASSIGN_OR_RETURN(const LanguageId language, regex_language(languages_, form.unbounded, RegexMatch::kWhole,
                                                                   place_of_pattern(where, "format")));
    all.push_back(language);
  }
  if (const auto excluded = schema.find("not"); excluded != schema.end())
    for (const Json& each : values_together(*excluded)) {
      std::vector<LanguageId> texts;
      for (const Json& value : each.value("enum", Json::array()))
        if (value.is_string()) texts.push_back(languages_.text(value.get<std::string>()));
      if (!each.contains("enum")) {
        TSR_ASSIGN_OR_RETURN(LanguageId language, string_language(each, where + "/not", !is_excluded));
        TSR_ASSIGN_OR_RETURN(const Limits length, read_limits(each, "minLength", "maxLength", where + "/not"));
        const LanguageId any = languages_.characters(CharacterSet({{0, kLastCharacter}}));
        language = languages_.both(language, languages_.repeat(any, length.minimum, length.maximum));
        texts.push_back(language);
      }
      all.push_back(languages_.complement(languages_.choice(std::move(texts))));
    }
  return languages_.both(std::move(all));
}

}  // namespace tessera::grammar
