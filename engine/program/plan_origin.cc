#include "engine/program/plan_origin.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

enum class Entry : uint8_t { kTraining, kGeneration, kReading };

// Calls `take` with each trimmed line of the plan's text.
template <class Take>
void for_each_line(std::string_view text, Take&& take) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (!take(trim(text.substr(begin, end - begin)))) return;
    begin = end + 1;
  }
}

std::optional<uint64_t> fingerprint_in(std::string_view text) {
  std::optional<uint64_t> found;
  for_each_line(text, [&](std::string_view line) {
    if (!line.starts_with("graph 0x")) return true;
    line.remove_prefix(8);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
    if (error == std::errc()) found = value;
    return false;
  });
  return found;
}

bool is_update(const OpDef* op) { return op != nullptr && op->is_update; }
bool is_cache(const OpDef* op) { return op != nullptr && op->pages.first >= 0; }

Entry entry_of(const Graph& graph) {
  Entry entry = Entry::kReading;
  for (const Node& node : graph.nodes()) {
    if (is_update(node.op)) return Entry::kTraining;
    if (is_cache(node.op)) entry = Entry::kGeneration;
  }
  return entry;
}

// Outline: the stored names ("stored 5 block.0.q: mesh 0 ...") and the ops ("node 3 %8 matmul: {...}") of a plan.
struct Outline {
  Entry entry = Entry::kReading;
  std::set<std::string, std::less<>> stored;
};

Outline outline_of(std::string_view text) {
  Outline outline;
  for_each_line(text, [&](std::string_view line) {
    const bool is_node = line.starts_with("node ");
    if (!is_node && !line.starts_with("stored ")) return true;
    const std::string_view head = line.substr(0, line.find(is_node ? ": {" : ": mesh"));
    const size_t space = head.rfind(' ');
    std::string_view word = space == head.npos ? head : head.substr(space + 1);
    const bool is_quoted = word.size() > 2 && word.starts_with('"') && word.ends_with('"');
    if (is_quoted) word = word.substr(1, word.size() - 2);
    if (!is_node)
      outline.stored.emplace(word);
    else if (is_update(find_op(word)))
      outline.entry = Entry::kTraining;
    else if (is_cache(find_op(word)) && outline.entry == Entry::kReading)
      outline.entry = Entry::kGeneration;
    return true;
  });
  return outline;
}

std::string_view noun(Entry entry) {
  switch (entry) {
    case Entry::kTraining: return "a training step";
    case Entry::kGeneration: return "generation";
    case Entry::kReading: return "an evaluation, scores or vectors";
  }
  return "";
}

std::string_view remedy(Entry wanted) {
  switch (wanted) {
    case Entry::kTraining: return "make one with `tessera plan MODEL --mode train` (tsr_plan_new, mode train)";
    case Entry::kGeneration: return "make one with `tessera plan MODEL --mode generate` (tsr_plan_new, mode generate)";
    case Entry::kReading: return "leave option plan_file (--plan) out";
  }
  return "";
}

// Whether training adds this name to a parameter of `graph`: optimizer state, adapters.
bool is_added(std::string_view name, const Graph& graph) {
  if (name.find(".lora_") != name.npos) return true;
  const size_t dot = name.rfind('.');
  return dot != name.npos && graph.find_tensor(name.substr(0, dot)).has_value();
}

// Describes how the plan's stored names differ from the graph's; "": equal.
std::string difference(const Outline& plan, const Graph& graph) {
  std::string added;
  for (const std::string& name : plan.stored)
    if (!graph.find_tensor(name)) {
      if (!is_added(name, graph))
        return format("it is of another model: it places '{}', which this one has not", quote(std::string_view(name), 80));
      if (added.empty()) added = name;
    }
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (const std::string& name = graph.tensor(id).name; !plan.stored.contains(name)) {
      if (name.find(".lora_") == name.npos)
        return format("it is of another model: it has no '{}'", quote(std::string_view(name), 80));
      if (added.empty()) return format("it is of a model without the adapter '{}'", quote(std::string_view(name), 80));
    }
  if (added.empty()) return "";
  return format("it places '{}', which these options do not have", quote(std::string_view(added), 80));
}

}  // namespace

bool is_plan_of(std::string_view text, const Graph& graph) {
  const std::optional<uint64_t> found = fingerprint_in(text);
  return found && *found == graph.fingerprint();
}

Status check_plan_graph(std::string_view text, const Graph& graph) {
  if (!fingerprint_in(text) || is_plan_of(text, graph)) return {};
  const Outline plan = outline_of(text);
  const Entry wanted = entry_of(graph);
  const auto wrong = [](std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); };
  if (plan.entry != wanted)
    return wrong(format("it is the plan of {}, wanted one of {}: {}", noun(plan.entry), noun(wanted), remedy(wanted)));
  const std::string found = difference(plan, graph);
  return wrong(format("{}: make the plan again from the same model and options (adapters, optimizer, loss, precision, weights, "
                      "what trains)",
                      found.empty() ? "it is of another step of this model, or of one with other sizes" : found));
}

}  // namespace tessera
