#include "text/grammar/member_marks.h"

#include "graph/base/text.h"

namespace tessera::grammar {

std::string MemberMarks::kind_of(std::string_view type) const {
  if (type == "string") return text_kind;
  return text_kind == "true" ? "false" : std::string(type);
}

bool MemberMarks::can_write(std::string_view name) const {
  constexpr size_t kMostNameBytes = 256;
  if (quotes_names) return !name.empty();
  if (name.empty() || name.size() > kMostNameBytes || trim(name) != name) return false;
  return (std::string(name) + middle.text).find(middle.text) == name.size();
}

}  // namespace tessera::grammar
