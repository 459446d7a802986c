// Template: a Jinja template as chat models carry them, parsed once and rendered any number of times. The language is
// that of Jinja2's immutable sandbox as transformers sets it up: trim_blocks, lstrip_blocks, `break` and `continue`,
// `{% generation %}`, raise_exception, strftime_now, tojson without HTML. What a template may take is bounded, and it
// reaches nothing but its variables. Immutable; any thread, with however little stack.
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

// Runs `body` on a thread whose stack has a known size, since templates recurse: the caller's where that is a Thread of
// this library with most of its stack free, else another one. Errors have short messages: templates choose their words.
Status run_with_stack(const std::function<Status()>& body);

struct Rendering {
  std::string text;       // UTF-8
  std::vector<Run> runs;  // origins of its bytes, without gaps
};

class Template {
 public:
  // kInvalidArgument with line and column for what is no template; kUnsupported for parts of Jinja2 that are not here.
  static Result<std::shared_ptr<const Template>> parse(std::string_view source);

  // `make_variables` makes what the template is given, within the budget. `input_bytes`: about what they take, from
  // which the limits follow. `now_s`: seconds since 1970 for strftime_now. kInvalidArgument where the template fails
  // or takes more than it may, with line and column.
  using Variables = std::vector<std::pair<std::string, Value>>;
  Result<Rendering> render(const std::function<Result<Variables>(Budget&)>& make_variables,
                           size_t input_bytes, int64_t now_s) const;
  Result<Rendering> render(const std::function<Result<Variables>(Budget&)>& make_variables,
                           const Limits& limits, int64_t now_s) const;

  bool has_generation() const;  // `{% generation %}` somewhere

 private:
  explicit Template(std::shared_ptr<const SyntaxTree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const SyntaxTree> tree_;
};

}  // namespace tessera::jinja
