#include "serialize/parameter_groups_json.h"

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

Status bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument,
                format("groups: {}; an example: [{\"match\": \"*.lora_b\", \"lr_factor\": 16}, {\"match\": "
                       "\"token_embedding\", \"weight_decay\": 0}]",
                       what));
}

Result<double> read_factor(const Json& value, const std::string& key) {
  if (!value.is_number() || !(value.get<double>() >= 0) || !(value.get<double>() <= 1e6))
    return bad(format("'{}' is {}, wanted a number from 0 to 1e6", key, quote_json(value)));
  return value.get<double>();
}

Result<ParameterGroup> read_group(const Json& json) {
  if (!json.is_object()) return bad(format("found {}, wanted an object", quote_json(json)));
  ParameterGroup group;
  for (const auto& [key, value] : json.items()) {
    if (key == "match") {
      if (!value.is_string() || value.get<std::string>().empty())
        return bad(
            format("'match' is {}, wanted a name, in which * stands for any characters", quote_json(value)));
      group.match = value.get<std::string>();
    } else if (key == "lr_factor") {
      TSR_ASSIGN_OR_RETURN(group.lr_factor, read_factor(value, key));
    } else if (key == "weight_decay") {
      TSR_ASSIGN_OR_RETURN(group.weight_decay, read_factor(value, key));
    } else {
      return bad(format("unknown key '{}'; known: match, lr_factor, weight_decay", quote(key)));
    }
  }
  if (group.match.empty()) return bad(format("{} has no 'match'", quote_json(json)));
  return group;
}

}  // namespace

Result<std::vector<ParameterGroup>> parameter_groups_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text, "the text");
  if (!json.ok()) return bad(std::string(json.status().message()));
  if (!json->is_array()) return bad("the text is not a JSON list");
  std::vector<ParameterGroup> groups;
  for (const Json& each : *json) {
    TSR_ASSIGN_OR_RETURN(ParameterGroup group, read_group(each));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace tessera
