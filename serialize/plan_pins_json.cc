#include "serialize/plan_pins_json.h"

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

Status bad(std::string what) {
  return Status(
      StatusCode::kInvalidArgument,
      format("pins: {}; an example: {\"stored\": {\"block.*.fc.weight\": \"{[tp], []}\"}, \"keep\": "
             "[\"block.*.attention\"]}",
             what));
}

Status read_table(const Json& json, const std::string& key,
                  std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object()) return bad(format("'{}' is not an object of names and texts", key));
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) return bad(format("'{}' of '{}' is not a text", key, quote(name)));
    out.emplace_back(name, value.get<std::string>());
  }
  return {};
}

Status read_list(const Json& json, const std::string& key, std::vector<std::string>& out) {
  if (!json.is_array()) return bad(format("'{}' is not a list of names", key));
  for (const Json& value : json) {
    if (!value.is_string()) return bad(format("'{}' holds something that is not a name", key));
    out.push_back(value.get<std::string>());
  }
  return {};
}

}  // namespace

Result<PlanPins> plan_pins_from_json(std::string_view text) {
  const Result<Json> read = parse_json(text, "the text");
  if (!read.ok()) return bad(std::string(read.status().message()));
  const Json& json = *read;
  if (!json.is_object()) return bad("the text is not a JSON object");
  PlanPins pins;
  for (const auto& [key, value] : json.items()) {
    if (key == "stored")
      TSR_RETURN_IF_ERROR(read_table(value, key, pins.stored));
    else if (key == "ops")
      TSR_RETURN_IF_ERROR(read_table(value, key, pins.ops));
    else if (key == "keep")
      TSR_RETURN_IF_ERROR(read_list(value, key, pins.keep));
    else if (key == "stages")
      TSR_RETURN_IF_ERROR(read_list(value, key, pins.stages));
    else
      return bad(format("unknown key '{}'; known: stored, ops, keep, stages", quote(key)));
  }
  return pins;
}

}  // namespace tessera
