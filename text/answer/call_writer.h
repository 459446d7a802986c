// CallWriter: one form of calls as expressions. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/answer/call_grammar.h"
#include "text/answer/form.h"
#include "text/grammar/json_text.h"
#include "text/grammar/member_marks.h"

namespace tessera::answer {

// CalledTool: a tool that may be called. `parameters`: the schema of an object.
struct CalledTool {
  std::string name;
  Json parameters;
};
Result<std::vector<CalledTool>> read_called_tools(const CallGrammar& wanted);

// MarkWriter: marks with control tokens in them.
class MarkWriter {
 public:
  explicit MarkWriter(const CallGrammar& wanted) : wanted_(wanted) {}

  struct Written {
    std::string bytes;
    bool is_cut = false;  // a token follows that ends the text
  };
  Written write(std::string_view mark) const;
  grammar::WrittenMark mark(const std::string& text) const { return {text, write(text).bytes}; }

 private:
  const CallGrammar& wanted_;
};

class CallWriter {
 public:
  // `is_begun`: the prompt ends with the first mark. All must outlive this.
  CallWriter(grammar::Expressions& out, const MarkWriter& marks, const CallForm& form,
             const std::vector<CalledTool>& tools, bool is_begun);

  // One call of a tool, or as many as the form may have. nullopt if a token that ends texts comes before the arguments.
  Result<std::optional<grammar::ExpressionId>> write(bool has_several);
  // The first part of a tool's schema that allows nothing, with the tool; empty: none.
  const std::string& contradiction() const { return contradiction_; }

 private:
  using ExpressionId = grammar::ExpressionId;

  Result<ExpressionId> write_call(const CalledTool& tool);
  Result<ExpressionId> write_payload(const CalledTool& tool);
  Result<ExpressionId> write_object(const CalledTool& tool);
  Result<ExpressionId> write_members(const CalledTool& tool);
  Result<ExpressionId> arguments_of(const CalledTool& tool, const grammar::MemberMarks* marks);
  Result<ExpressionId> write_listed(bool has_several);
  Result<std::optional<ExpressionId>> write_head(const CalledTool* tool);
  ExpressionId write_tail();
  ExpressionId write_filler(const std::string& filler, const std::string& name);
  ExpressionId write_id();
  Status check_name(const std::string& name) const;
  bool may_repeat() const;

  grammar::Expressions& out_;
  const MarkWriter& marks_;
  const CallForm& form_;
  const std::vector<CalledTool>& tools_;
  const bool is_begun_;
  size_t payload_ = 0;  // the step of the arguments
  bool is_cut_ = false;  // a token that ends texts is behind each call
  grammar::JsonText json_;
  ExpressionId gap_;
  std::string contradiction_;
};

// White space between marks.
grammar::ExpressionId write_gap(grammar::Expressions& out);

}  // namespace tessera::answer
