// Template: a chat model's Jinja template, parsed once and rendered any number of times. The
// language is Jinja2's immutable sandbox as configured by transformers: trim_blocks, lstrip_blocks,
// `break` and `continue`, `{% generation %}`, raise_exception, strftime_now, tojson without HTML.
// Resources are bounded, and it sees only its variables. Immutable; any thread, with a small stack.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/jinja/origin.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace tessera::jinja {

struct SyntaxTree;

// Runs `body` with a known stack size, since templates recurse: on the caller's thread if it is a library Thread
// with enough stack, else on a new one. Error messages are shortened, since templates choose their words.
Status run_with_stack(const std::function<Status()>& body);

struct Rendering {
  std::string text;       // UTF-8
  std::vector<Run> runs;  // origins of its bytes, contiguous
};

class Template {
 public:
  // kInvalidArgument with line and column for syntax errors; kUnsupported for unsupported parts of Jinja2.
  static Result<std::shared_ptr<const Template>> parse(std::string_view source);

  // `make_variables` makes the template's variables within the budget. `input_bytes`: their
  // approximate size, which determines the limits. `now_s`: seconds since 1970 for strftime_now.
  // kInvalidArgument, with line and column, if the template fails or exceeds its limits.
  using Variables = std::vector<std::pair<std::string, Value>>;
  Result<Rendering> render(const std::function<Result<Variables>(Budget&)>& make_variables,
                           size_t input_bytes, int64_t now_s) const;
  Result<Rendering> render(const std::function<Result<Variables>(Budget&)>& make_variables,
                           const Limits& limits, int64_t now_s) const;

  bool has_generation() const;  // contains `{% generation %}`

 private:
  explicit Template(std::shared_ptr<const SyntaxTree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const SyntaxTree> tree_;
};

}  // namespace tessera::jinja
