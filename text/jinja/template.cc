#include "text/jinja/template.h"

#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/thread.h"
#include "graph/base/thread_stack.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/syntax_tree.h"

namespace tessera::jinja {
namespace {

// Part of a Thread's stack that StackGuard's margin covers and the caller may have used.
constexpr size_t kMostUsedStackBytes = size_t{64} << 10;

Status with_short_message(Status status) {
  constexpr size_t kMostMessageBytes = 1000;
  if (status.message().size() <= kMostMessageBytes) return status;
  return Status(status.code(), quote(status.message(), kMostMessageBytes));
}

}  // namespace

Status run_with_stack(const std::function<Status()>& body) {
  if (const auto used = used_stack_bytes(); used && *used <= kMostUsedStackBytes)
    return with_short_message(catch_status(body));
  Status status;
  Thread([&] { status = catch_status(body); }).join();
  return with_short_message(std::move(status));
}

Result<std::shared_ptr<const Template>> Template::parse(std::string_view source) {
  auto tree = std::make_shared<SyntaxTree>();
  TSR_RETURN_IF_ERROR(run_with_stack([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(*tree, jinja::parse(source));
    return {};
  }));
  return std::shared_ptr<const Template>(new Template(std::move(tree)));
}

Result<Rendering> Template::render(const std::function<Result<Variables>(Budget&)>& make_variables,
                                   size_t input_bytes, int64_t now_s) const {
  return render(make_variables, limits_for(input_bytes), now_s);
}

Result<Rendering> Template::render(const std::function<Result<Variables>(Budget&)>& make_variables,
                                   const Limits& limits, int64_t now_s) const {
  Rendering rendering;
  TSR_RETURN_IF_ERROR(run_with_stack([&]() -> Status {
    Budget budget(limits);
    TSR_ASSIGN_OR_RETURN(Variables variables, make_variables(budget));
    Evaluator evaluator(*tree_, budget, std::move(variables), now_s);
    TSR_ASSIGN_OR_RETURN(const Text text, evaluator.run());
    rendering = {std::string(text.bytes()), text.runs()};
    return {};
  }));
  return rendering;
}

bool Template::has_generation() const { return tree_->has_generation; }

}  // namespace tessera::jinja
