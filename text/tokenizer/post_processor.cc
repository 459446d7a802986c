#include "text/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "text/tokenizer/json_members.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::string_view kKnown =
    "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence";
constexpr int kMostNested = 32;

Result<int32_t> read_id(const json& value, const JsonMembers& members, const char* name) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > INT32_MAX)
    return members.wrong(name, "the id of a token");
  return value.get<int32_t>();
}

// ["[SEP]", 102]
Result<int32_t> read_token(const JsonMembers& members, const char* name) {
  const json& pair = members.at(name);
  if (!pair.is_array() || pair.size() != 2) return members.wrong(name, "a token and its id");
  return read_id(pair[1], members, name);
}

Result<std::vector<int32_t>> read_special(const JsonMembers& members, const JsonMembers& piece) {
  TSR_ASSIGN_OR_RETURN(const std::string name, piece.text("id"));
  const JsonMembers special(members.at("special_tokens"), members.what() + " special_tokens");
  const JsonMembers token(special.at(name.c_str()), members.what() + " " + quote(name, 64));
  const json& list = token.at("ids");
  if (!list.is_array()) return token.wrong("ids", "a list of ids");
  std::vector<int32_t> ids;
  for (const json& value : list) {
    TSR_ASSIGN_OR_RETURN(const int32_t id, read_id(value, token, "ids"));
    ids.push_back(id);
  }
  return ids;
}

Result<SurroundingTokens> read_template(const JsonMembers& members) {
  const json& single = members.at("single");
  if (!single.is_array()) return members.wrong("single", "a list");
  SurroundingTokens tokens;
  int texts = 0;
  for (const json& entry : single) {
    const JsonMembers piece(entry, members.what() + " single");
    if (!piece.at("Sequence").is_null()) {
      if (++texts > 1) break;
      continue;
    }
    TSR_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        read_special(members, JsonMembers(piece.at("SpecialToken"), members.what() + " SpecialToken")));
    std::vector<int32_t>& place = texts == 0 ? tokens.before : tokens.after;
    place.insert(place.end(), ids.begin(), ids.end());
  }
  if (texts != 1) return members.wrong("single", "the text once");
  return tokens;
}

Result<SurroundingTokens> read(const json& description, int depth) {
  if (description.is_null()) return SurroundingTokens();
  if (depth > kMostNested)
    return Status(StatusCode::kInvalidArgument, format("post-processors nest deeper than {}", kMostNested));
  TSR_ASSIGN_OR_RETURN(const std::string type, type_of(description, "post_processor"));
  const JsonMembers members(description, "post_processor " + type);
  if (type == "ByteLevel") return SurroundingTokens();  // affects only offsets
  if (type == "TemplateProcessing") return read_template(members);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    TSR_ASSIGN_OR_RETURN(const int32_t first, read_token(members, "cls"));
    TSR_ASSIGN_OR_RETURN(const int32_t last, read_token(members, "sep"));
    return SurroundingTokens{{first}, {last}};
  }
  if (type != "Sequence") return unknown_type("post_processor", type, kKnown);
  const json& list = members.at("processors");
  if (!list.is_array()) return members.wrong("processors", "a list");
  SurroundingTokens tokens;
  for (const json& step : list) {
    TSR_ASSIGN_OR_RETURN(const SurroundingTokens outer, read(step, depth + 1));
    tokens.before.insert(tokens.before.begin(), outer.before.begin(), outer.before.end());
    tokens.after.insert(tokens.after.end(), outer.after.begin(), outer.after.end());
  }
  return tokens;
}

}  // namespace

Result<SurroundingTokens> read_post_processor(const json& description) { return read(description, 0); }

}  // namespace tessera
