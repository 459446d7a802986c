#include "serialize/jinja/template.h"

#include <optional>

#include "graph/base/quote.h"
#include "graph/base/thread.h"
#include "serialize/jinja/evaluator.h"
#include "serialize/jinja/syntax_tree.h"

namespace tessera::jinja {
namespace {

// Templates recurse: on a thread whose stack has a known size, whatever the caller's is.
Status run_with_stack(const std::function<Status()>& body) {
  Status status;
  Thread([&] { status = catch_status(body); }).join();
  // Templates choose the words of their errors.
  constexpr size_t kMostMessageBytes = 1000;
  if (status.message().size() <= kMostMessageBytes) return status;
  return Status(status.code(), quote(status.message(), kMostMessageBytes));
}

}  // namespace

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
  Rendering rendering;
  TSR_RETURN_IF_ERROR(run_with_stack([&]() -> Status {
    Budget budget(limits_for(input_bytes));
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
