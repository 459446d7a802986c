#include "serialize/training_data/instruction_row.h"

#include <string>
#include <string_view>
#include <utility>

#include "graph/base/text.h"

namespace tessera {
namespace {

Status wrong(std::string_view field, const Json& found, std::string_view wanted) {
  return Status(StatusCode::kInvalidArgument,
                format("field '{}' is {}, wanted {}", field, quote_json(found), wanted));
}

bool has(const Json& row, std::string_view field) {
  const auto found = row.find(field);
  return found != row.end() && !found->is_null();
}

Json message(std::string_view role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

// Removes the field from the row; "" if absent or null.
Result<std::string> take_text(Json& row, std::string_view field) {
  const auto found = row.find(field);
  if (found == row.end()) return std::string();
  const Json value = *found;
  row.erase(found);
  if (value.is_null()) return std::string();
  if (!value.is_string()) return wrong(field, value, "a text");
  return value.get<std::string>();
}

// The field under whichever of two names the row has.
Result<std::string> take_either(Json& row, std::string_view one, std::string_view other) {
  if (has(row, one) && has(row, other))
    return Status(StatusCode::kInvalidArgument,
                  format("the row has '{}' and '{}' next to 'instruction', wanted one of them", one, other));
  return take_text(row, has(row, one) ? one : other);
}

// LLaMA-Factory's earlier turns, [[question, answer], ...], as messages.
Status take_history(Json& row, Json& messages) {
  const auto found = row.find("history");
  if (found == row.end()) return {};
  const Json history = *found;
  row.erase(found);
  if (history.is_null()) return {};
  constexpr std::string_view kWanted = "an array of pairs of texts, a question and an answer each";
  if (!history.is_array()) return wrong("history", history, kWanted);
  for (const Json& turn : history) {
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
      return wrong("history", history, kWanted);
    messages.push_back(message("user", turn[0].get<std::string>()));
    messages.push_back(message("assistant", turn[1].get<std::string>()));
  }
  return {};
}

// {"system", "messages"}: the system text becomes the first message.
Result<std::optional<Json>> with_system_message(const Json& row) {
  const std::string_view field = has(row, "messages") ? "messages" : "conversations";
  const Json& given = *row.find(field);
  if (!given.is_array()) return std::optional<Json>();  // refused with the field's name
  Json made = row;
  TSR_ASSIGN_OR_RETURN(std::string system, take_text(made, "system"));
  const bool is_sharegpt = field == "conversations";
  const std::string_view role = is_sharegpt ? "from" : "role";
  if (!given.empty() && given[0].is_object() && given[0].contains(role) &&
      given[0][std::string(role)] == "system")
    return Status(
        StatusCode::kInvalidArgument,
        format("the row has the field 'system' and a message of role system in '{}', wanted one of them",
               field));
  if (system.empty()) return std::optional(std::move(made));
  Json messages = Json::array();
  messages.push_back(is_sharegpt ? Json{{"from", "system"}, {"value", system}}
                                 : message("system", std::move(system)));
  for (const Json& each : given) messages.push_back(each);
  made[std::string(field)] = std::move(messages);
  return std::optional(std::move(made));
}

}  // namespace

Result<std::optional<Json>> instruction_as_messages(const Json& row, bool as_messages) {
  if (has(row, "system") && (has(row, "messages") || has(row, "conversations")))
    return with_system_message(row);
  if (!has(row, "instruction")) return std::optional<Json>();
  for (const char* field : {"prompt", "messages", "conversations", "completion"})
    if (has(row, field)) return std::optional<Json>();  // ambiguous: refused by name
  Json made = row, prompt = Json::array();
  const bool is_preference = has(row, "chosen") && has(row, "rejected");
  TSR_ASSIGN_OR_RETURN(const std::string system, take_text(made, "system"));
  TSR_ASSIGN_OR_RETURN(std::string question, take_text(made, "instruction"));
  TSR_ASSIGN_OR_RETURN(const std::string input, take_either(made, "input", "context"));
  if (!system.empty()) prompt.push_back(message("system", system));
  TSR_RETURN_IF_ERROR(take_history(made, prompt));
  if (!input.empty()) question += (question.empty() ? "" : "\n") + input;
  prompt.push_back(message("user", std::move(question)));
  if (is_preference) {
    for (const char* field : {"chosen", "rejected"}) {
      TSR_ASSIGN_OR_RETURN(std::string answer, take_text(made, field));
      made[field] = Json::array({message("assistant", std::move(answer))});
    }
  } else {
    if (!has(made, "output") && !has(made, "response"))
      return Status(StatusCode::kInvalidArgument,
                    "the row has 'instruction' and no answer: wanted 'output' or 'response', or 'chosen' and "
                    "'rejected'");
    TSR_ASSIGN_OR_RETURN(std::string answer, take_either(made, "output", "response"));
    Json last = message("assistant", std::move(answer));
    if (as_messages) {
      prompt.push_back(std::move(last));
      made["messages"] = std::move(prompt);
      return std::optional(std::move(made));
    }
    made["completion"] = Json::array({std::move(last)});
  }
  made["prompt"] = std::move(prompt);
  return std::optional(std::move(made));
}

}  // namespace tessera
