// Members of objects of JSON schema, in JSON and between marks.
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/schema_reader.h"

namespace tessera::grammar {
namespace {

WrittenMark with_name(WrittenMark mark, const std::string& name) {
  for (std::string* each : {&mark.text, &mark.bytes})
    if (const size_t at = each->find('\1'); at != std::string::npos) each->replace(at, 1, name);
  return mark;
}

}  // namespace

ExpressionId SchemaReader::separator() {
  return scope_.place == Place::kMembers ? marks_->separator : json_.separator();
}

ExpressionId SchemaReader::enclosed(std::span<const Member> members) {
  if (scope_.place != Place::kMembers) return json_.braces(members);
  return members.empty() ? out_.empty() : out_.members(separator(), members);
}

Result<ExpressionId> SchemaReader::read_member(const std::string& name, const Json& schema, const std::string& where) {
  if (scope_.place != Place::kMembers) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId content, read_schema(schema, where));
    return json_.member(json_.name(name), content);
  }
  if (!marks_->can_write(name))
    return schema_error(StatusCode::kUnsupported, where,
                        format("the name '{}' cannot be told from the mark behind it, '{}'", quote(name),
                               quote(marks_->middle.text)));
  const bool is_quoted = marks_->quotes_names && !is_word(name);
  const std::string text = is_quoted ? "\"" + written(name, TextForm::kJsonString) + "\"" : name;
  return read_marked_member(out_.literal(text), with_name(marks_->close, name), schema, where);
}

Result<std::vector<ExpressionId>> SchemaReader::read_marked_additional(const Json& schema,
                                                                       const std::vector<std::string>& known,
                                                                       const std::string& where) {
  // A mark that repeats the name would have to be equal to it.
  if (marks_->close.text.find('\1') != std::string::npos) return std::vector<ExpressionId>();
  JsonText words(out_, {.has_bare_names = true});
  TSR_ASSIGN_OR_RETURN(const ExpressionId member, read_marked_member(words.name_except(known), marks_->close, schema,
                                                                     where + "/additionalProperties"));
  return std::vector<ExpressionId>{member};
}

Result<ExpressionId> SchemaReader::read_marked_member(ExpressionId name, const WrittenMark& close, const Json& schema,
                                                      const std::string& where) {
  const MemberMarks& marks = *marks_;
  Scope scope;
  if (marks.has_plain_texts) scope = {Place::kMarked, close.text, {}};
  const auto read = [&](std::string_view type) {
    scope.type = type;
    const Within inside(*this, scope);
    return read_schema(schema, where);
  };
  const ExpressionId begin = out_.sequence({out_.literal(marks.open.bytes), name, out_.literal(marks.middle.bytes)});
  const ExpressionId end = out_.literal(marks.value_tail + close.bytes);
  if (!marks.has_kind) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId value, read(""));
    return out_.sequence({begin, out_.literal(marks.value_lead), value, end});
  }
  std::vector<ExpressionId> kinds;
  for (const char* type : {"string", "number", "boolean", "null", "array", "object"}) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId value, read(type));
    kinds.push_back(out_.sequence({out_.literal(marks.kind_of(type) + marks.kind_end.bytes), value}));
  }
  return out_.sequence({begin, out_.choice(std::move(kinds)), end});
}

}  // namespace tessera::grammar
