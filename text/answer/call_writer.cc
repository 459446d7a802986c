#include "text/answer/call_writer.h"

#include <algorithm>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/answer/marker.h"
#include "text/grammar/schema_json.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/token_bytes.h"

namespace tessera::answer {
namespace {

using grammar::CharacterSet;
using grammar::ExpressionId;
using Kind = CallStep::Kind;

constexpr size_t kMostNameBytes = 256;

bool is_payload(const CallStep& step) {
  return step.kind != Kind::kMark && step.kind != Kind::kName && step.kind != Kind::kId && step.kind != Kind::kSkip;
}

size_t find_payload(const CallForm& form) {
  return static_cast<size_t>(std::ranges::find_if(form.steps, is_payload) - form.steps.begin());
}

// The beginning of a mark that a JSON string can hold only as it is.
std::string forbidden_part(std::string_view mark) {
  const auto end = std::ranges::find_if(
      mark, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\\'; });
  return std::string(mark.begin(), end);
}

grammar::JsonStyle style_of(const CallForm& form, const MarkWriter& marks) {
  grammar::JsonStyle style;
  switch (form.steps[find_payload(form)].kind) {
    case Kind::kParameters: style.forbidden = forbidden_part(form.parameter.close); break;
    case Kind::kPython: style.has_python_words = true; break;
    case Kind::kQuoted:
      style.allow_spaces = false;
      style.has_bare_names = true;
      style.quote = form.quote;
      style.quote_bytes = marks.write(form.quote).bytes;
      break;
    default: break;
  }
  return style;
}

}  // namespace

Result<std::vector<CalledTool>> read_called_tools(const CallGrammar& wanted) {
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> names, tool_names(wanted.tools));
  std::vector<CalledTool> tools;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!wanted.name.empty() && names[i] != wanted.name) continue;
    const Json& tool = wanted.tools[i];
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    Json parameters = {{"type", "object"}, {"additionalProperties", false}};
    for (const char* key : {"parameters", "input_schema", "inputSchema"})
      if (const auto found = function.find(key); found != function.end() && !found->is_null()) {
        auto schema = grammar::parse_schema(dump(*found));
        if (!schema.ok()) return schema.status().with_context(format("tool '{}'", quote(names[i])));
        parameters = std::move(schema).value();
        break;
      }
    if (parameters == Json(true)) parameters = Json::object();
    if (!parameters.is_object())
      return Status(StatusCode::kInvalidArgument, format("tool '{}': its parameters are {}, wanted a JSON schema",
                                                         quote(names[i]), quote_json(parameters)));
    Json& type = parameters["type"];
    if (type.is_null() || type.is_array()) type = "object";
    if (type != "object")
      return Status(StatusCode::kInvalidArgument, format("tool '{}': its parameters are of type {}, wanted object",
                                                         quote(names[i]), quote_json(type)));
    tools.push_back({names[i], std::move(parameters)});
  }
  return tools;
}

MarkWriter::Written MarkWriter::write(std::string_view mark) const {
  Written made;
  for (size_t at = 0; at < mark.size();) {
    const std::string* token = nullptr;
    bool is_end = false;
    for (const auto* list : {&wanted_.control_tokens, &wanted_.end_tokens})
      for (const std::string& each : *list) {
        if (each.empty() || !mark.substr(at).starts_with(each)) continue;
        if (token != nullptr && each.size() < token->size()) continue;
        token = &each;
        is_end = list == &wanted_.end_tokens;
      }
    if (token == nullptr) {
      made.bytes += mark[at++];
      continue;
    }
    if (is_end) {
      made.is_cut = true;
      return made;
    }
    made.bytes += grammar::TokenBytes::control_bytes(*token);
    at += token->size();
  }
  return made;
}

ExpressionId write_gap(grammar::Expressions& out) {
  constexpr uint32_t kMostLines = 2, kMostIndentation = 20;
  const ExpressionId lines = out.repeat(out.literal("\n"), 1, kMostLines);
  const ExpressionId indentation =
      out.repeat(out.characters(CharacterSet({{' ', ' '}, {'\t', '\t'}})), 0, kMostIndentation);
  return out.shared(out.optional(out.choice({out.literal(" "), out.sequence({lines, indentation})})), "gap");
}

CallWriter::CallWriter(grammar::Expressions& out, const MarkWriter& marks, const CallForm& form,
                       const std::vector<CalledTool>& tools, bool is_begun)
    : out_(out),
      marks_(marks),
      form_(form),
      tools_(tools),
      is_begun_(is_begun),
      payload_(find_payload(form)),
      json_(out, style_of(form, marks)),
      gap_(write_gap(out)) {
  for (size_t i = payload_ + 1; i < form.steps.size(); ++i)
    is_cut_ = is_cut_ || marks.write(form.steps[i].mark).is_cut;
}

bool CallWriter::may_repeat() const {
  if (is_cut_ || form_.is_list) return false;
  const Kind first = form_.steps[0].kind;
  return first == Kind::kMark || (first == Kind::kObjects && !form_.section_open.empty());
}

Result<std::optional<ExpressionId>> CallWriter::write(bool has_several) {
  if (marks_.write(form_.section_open).is_cut) return std::optional<ExpressionId>();
  TSR_ASSIGN_OR_RETURN(const std::optional<ExpressionId> head, write_head(nullptr));
  if (!head) return std::optional<ExpressionId>();
  std::vector<ExpressionId> calls;
  const Kind kind = form_.steps[payload_].kind;
  if (kind == Kind::kObjects || kind == Kind::kPython) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId payload, write_listed(has_several));
    calls.push_back(out_.sequence({*head, gap_, payload, write_tail()}));
  } else {
    for (const CalledTool& tool : tools_) {
      const auto call = write_call(tool);
      if (!call.ok()) return call.status().with_context(format("tool '{}'", quote(tool.name)));
      calls.push_back(*call);
    }
  }
  const ExpressionId call = out_.shared(out_.choice(std::move(calls)), "call");
  ExpressionId all = call;
  if (has_several && may_repeat() && !is_begun_) {
    all = out_.sequence({call, out_.repeat(out_.sequence({gap_, call}), 0, grammar::kUnbounded)});
  } else if (has_several && may_repeat()) {
    // The first call lacks the mark that the prompt ends with.
    CallWriter next(out_, marks_, form_, tools_, false);
    TSR_ASSIGN_OR_RETURN(const std::optional<ExpressionId> others, next.write(true));
    if (others) all = out_.sequence({call, out_.optional(out_.sequence({gap_, *others}))});
  }
  if (form_.section_open.empty()) return std::optional(all);
  const ExpressionId close = out_.literal(marks_.write(form_.section_close).bytes);
  return std::optional(out_.sequence({out_.literal(marks_.write(form_.section_open).bytes), gap_, all, gap_, close}));
}

// The steps before the arguments, without a tool those of all tools; nullopt if a token that ends texts is among them.
Result<std::optional<ExpressionId>> CallWriter::write_head(const CalledTool* tool) {
  std::vector<ExpressionId> parts;
  for (size_t i = 0; i < payload_; ++i) {
    const CallStep& step = form_.steps[i];
    switch (step.kind) {
      case Kind::kMark: {
        if (i == 0 && is_begun_) break;
        const MarkWriter::Written written = marks_.write(step.mark);
        if (written.is_cut) return std::optional<ExpressionId>();
        if (step.has_lead && i > 0) parts.push_back(gap_);
        parts.push_back(out_.literal(written.bytes));
        if (step.has_tail) parts.push_back(gap_);
        break;
      }
      case Kind::kName:
        if (tool != nullptr) parts.push_back(out_.literal(tool->name));
        break;
      case Kind::kId: parts.push_back(write_id()); break;
      case Kind::kSkip: {
        std::vector<ExpressionId> fillers;
        for (const std::string& filler : step.fillers)
          fillers.push_back(write_filler(filler, tool != nullptr ? tool->name : ""));
        if (!fillers.empty()) parts.push_back(out_.choice(std::move(fillers)));
        break;
      }
      default: break;
    }
  }
  return std::optional(out_.sequence(std::move(parts)));
}

ExpressionId CallWriter::write_tail() {
  std::vector<ExpressionId> parts;
  for (size_t i = payload_ + 1; i < form_.steps.size(); ++i) {
    const MarkWriter::Written written = marks_.write(form_.steps[i].mark);
    if (!written.is_cut || !written.bytes.empty()) {
      parts.push_back(gap_);
      parts.push_back(out_.literal(written.bytes));
    }
    if (written.is_cut) break;
  }
  return out_.sequence(std::move(parts));
}

// Nine letters and digits, as Mistral's templates require.
ExpressionId CallWriter::write_id() {
  const ExpressionId one = out_.characters(CharacterSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}));
  return out_.repeat(one, 9, 9);
}

// A number counts calls: any is right.
ExpressionId CallWriter::write_filler(const std::string& filler, const std::string& name) {
  if (const size_t at = filler.find('\1'); at != std::string::npos)
    return out_.literal(marks_.write(std::string(filler).replace(at, 1, name)).bytes);
  const size_t digits = std::min(filler.size(), filler.find_first_not_of("0123456789"));
  const ExpressionId rest = out_.literal(marks_.write(std::string_view(filler).substr(digits)).bytes);
  return digits > 0 ? out_.sequence({json_.digits(1, 3), rest}) : rest;
}

Status CallWriter::check_name(const std::string& name) const {
  const auto step = std::ranges::find(form_.steps, Kind::kName, &CallStep::kind);
  std::string behind;
  if (step != form_.steps.end() && step + 1 != form_.steps.end()) behind = (step + 1)->mark;
  const bool is_python = form_.steps[payload_].kind == Kind::kPython;
  const auto is_allowed = [&](char c) {
    if (is_python) return grammar::is_word(std::string_view(&c, 1)) || c == '.' || (c & 0x80);
    return static_cast<unsigned char>(c) > ' ' && std::string_view("<{([\"'").find(c) == std::string_view::npos;
  };
  const bool is_free = step == form_.steps.end() && !is_python;
  const bool has_mark = !behind.empty() && (name + behind).find(behind) != name.size();
  const bool is_readable = is_free || (name.size() <= kMostNameBytes && !has_mark && std::ranges::all_of(name, is_allowed) &&
                                       !(is_python && name.ends_with(".call")));
  if (is_readable) return {};
  return Status(StatusCode::kUnsupported,
                "the template's calls cannot hold its name; wanted letters, digits, '_' and '-'");
}

Result<ExpressionId> CallWriter::write_call(const CalledTool& tool) {
  TSR_RETURN_IF_ERROR(check_name(tool.name));
  TSR_ASSIGN_OR_RETURN(const std::optional<ExpressionId> head, write_head(&tool));
  TSR_ASSIGN_OR_RETURN(const ExpressionId payload, write_payload(tool));
  return out_.sequence({*head, payload, write_tail()});
}

Result<ExpressionId> CallWriter::write_payload(const CalledTool& tool) {
  switch (form_.steps[payload_].kind) {
    case Kind::kParameters: return write_members(tool);
    case Kind::kQuoted: return arguments_of(tool, nullptr);
    default: break;
  }
  TSR_ASSIGN_OR_RETURN(const ExpressionId object, arguments_of(tool, nullptr));
  return out_.sequence({gap_, object});
}

Result<ExpressionId> CallWriter::arguments_of(const CalledTool& tool, const grammar::MemberMarks* marks) {
  grammar::SchemaReader reader(json_, tool.parameters, marks);
  TSR_ASSIGN_OR_RETURN(const grammar::RuleId rule, reader.read());
  if (const std::string& why = reader.contradiction(); !why.empty() && contradiction_.empty())
    contradiction_ = format("tool '{}': JSON schema, {}", quote(tool.name), why);
  return out_.call(rule);
}

// Marked parameters, with white space around them.
Result<ExpressionId> CallWriter::write_members(const CalledTool& tool) {
  const ParameterForm& form = form_.parameter;
  grammar::MemberMarks marks;
  marks.open = marks_.mark(form.open);
  marks.middle = marks_.mark(form.middle);
  marks.close = marks_.mark(form.close);
  marks.separator = gap_;
  marks.value_lead = form.value_lead;
  marks.value_tail = form.value_tail;
  marks.has_plain_texts = true;
  marks.has_kind = form.has_kind;
  marks.text_kind = form.text_kind;
  marks.kind_end = marks_.mark(form.kind_end);
  TSR_ASSIGN_OR_RETURN(const ExpressionId members, arguments_of(tool, &marks));
  return out_.sequence({gap_, members});
}

// An object with name and arguments, or a call of Python; or a list of them.
Result<ExpressionId> CallWriter::write_listed(bool has_several) {
  const bool is_python = form_.steps[payload_].kind == Kind::kPython;
  std::vector<ExpressionId> calls;
  for (const CalledTool& tool : tools_) {
    const auto write = [&]() -> Result<ExpressionId> {
      TSR_RETURN_IF_ERROR(check_name(tool.name));
      if (!is_python) return write_object(tool);
      grammar::MemberMarks marks;
      marks.middle = {"=", "="};
      marks.separator = json_.separator();
      marks.quotes_names = true;
      TSR_ASSIGN_OR_RETURN(const ExpressionId members, arguments_of(tool, &marks));
      return out_.sequence({out_.literal(tool.name + "("), json_.space(), members, json_.space(), out_.literal(")")});
    };
    const auto call = write();
    if (!call.ok()) return call.status().with_context(format("tool '{}'", quote(tool.name)));
    calls.push_back(*call);
  }
  const ExpressionId one = out_.shared(out_.choice(std::move(calls)), "listed call");
  if (!form_.is_list) return one;
  const ExpressionId more = out_.sequence({json_.separator(), one});
  const ExpressionId all = has_several ? out_.sequence({one, out_.repeat(more, 0, grammar::kUnbounded)}) : one;
  return out_.sequence({out_.literal("["), json_.space(), all, json_.space(), out_.literal("]")});
}

Result<ExpressionId> CallWriter::write_object(const CalledTool& tool) {
  const auto member = [&](std::string_view name, ExpressionId value) {
    return grammar::Member{json_.member(json_.name(name), value), true};
  };
  TSR_ASSIGN_OR_RETURN(const ExpressionId arguments, arguments_of(tool, nullptr));
  if (form_.is_keyed_by_name) return json_.braces(std::vector{member(tool.name, arguments)});
  std::vector<std::string> keys = form_.keys;
  if (keys.empty()) keys = {form_.name_key, form_.arguments_key};
  std::vector<grammar::Member> members;
  for (const std::string& key : keys) {
    if (key == form_.name_key)
      members.push_back(member(key, json_.exactly(Json(tool.name))));
    else if (key == form_.arguments_key)
      members.push_back(member(key, arguments));
    else
      members.push_back(member(key, out_.sequence({out_.literal("\""), write_id(), out_.literal("\"")})));
  }
  const ExpressionId object = json_.braces(members);
  if (!form_.has_function) return object;
  return json_.braces(std::vector{member("type", json_.exactly(Json("function"))), member("function", object)});
}

}  // namespace tessera::answer
