#include "graph/models/foreign_names.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::string_view kBlock = "block.", kAnyBlock = "block.#.", kDraft = "draft.";

// Returns `pattern` with `number` in place of each '#'.
std::string filled(std::string_view pattern, std::string_view number) {
  std::string text;
  for (const char c : pattern) {
    if (c == '#')
      text += number;
    else
      text += c;
  }
  return text;
}

// The name of a layer's tensor, behind another beginning: "model.layers.4.mlp.up_proj.weight" -> "mtp.layers.0.mlp.up_proj.weight".
std::string moved(const std::string& name, const std::string& number, std::string_view beginning) {
  const std::string layer = "." + number + ".";
  const size_t at = name.find(layer);
  return beginning.empty() || at == name.npos ? name : std::string(beginning) + name.substr(at + layer.size());
}

}  // namespace

// A rule for a layer's parameter holds for that of the draft block, unless that has one of its own.
std::optional<ForeignName> ForeignNames::find_draft(std::string_view parameter) const {
  const std::string_view leaf = parameter.substr(kDraft.size());
  const std::string number = draft_layer_ ? std::to_string(*draft_layer_) : "N", of_layer = std::string(kAnyBlock) + std::string(leaf);
  const auto part_name = [](std::string_view ours) {
    return ours.starts_with(kAnyBlock) ? std::string(kDraft) + std::string(ours.substr(kAnyBlock.size())) : std::string(ours);
  };
  for (const std::string_view pattern : {parameter, std::string_view(of_layer)}) {
    std::optional<ForeignName> name = find_rule(pattern, number, part_name);
    if (name && pattern != parameter) name->tensor = moved(name->tensor, number, draft_beginning_);
    if (name) return name;
  }
  return std::nullopt;
}

std::optional<ForeignName> ForeignNames::find(std::string_view parameter) const {
  if (parameter.starts_with(kDraft)) return find_draft(parameter);
  std::string pattern(parameter), number;
  if (parameter.starts_with(kBlock)) {
    const size_t dot = parameter.find('.', kBlock.size());
    if (dot == parameter.npos) return std::nullopt;
    number = parameter.substr(kBlock.size(), dot - kBlock.size());
    pattern = std::string(kBlock) + "#" + std::string(parameter.substr(dot));
  }
  return find_rule(pattern, number, [&number](std::string_view ours) { return filled(ours, number); });
}

std::optional<ForeignName> ForeignNames::find_rule(std::string_view pattern, const std::string& number,
                                                   const std::function<std::string(std::string_view)>& part_name) const {
  for (const std::span<const NameRule> table : tables_) {
    const auto rule = std::ranges::find(table, pattern, &NameRule::ours);
    if (rule == table.end()) continue;
    ForeignName name{filled(rule->theirs, number), rule->change, {}};
    size_t parts = 0;
    for (const NameRule& other : table)
      if (other.theirs == rule->theirs && parts < name.parts.size())
        name.parts[parts++] = part_name(other.ours);
    if (parts == 1) name.parts = {};
    return name;
  }
  return std::nullopt;
}

}  // namespace tessera
