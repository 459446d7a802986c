#include "text/tokenizer/sentencepiece_settings.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::array<const char*, 4> kAlgorithms = {"unigram", "bpe", "word", "char"};

struct Flag {
  const char* name;
  bool SentencePieceSettings::*member;
};
constexpr Flag kFlags[] = {
    {"byte_fallback", &SentencePieceSettings::byte_fallback},
    {"add_dummy_prefix", &SentencePieceSettings::add_dummy_prefix},
    {"remove_extra_whitespaces", &SentencePieceSettings::remove_extra_whitespaces},
    {"escape_whitespaces", &SentencePieceSettings::escape_whitespaces},
    {"treat_whitespace_as_suffix", &SentencePieceSettings::treat_whitespace_as_suffix}};

struct Table {
  const char* name;
  std::string SentencePieceSettings::*member;
};
constexpr Table kTables[] = {{"precompiled_charsmap", &SentencePieceSettings::charsmap},
                             {"denormalizer_charsmap", &SentencePieceSettings::denormalizer_charsmap}};

}  // namespace

std::string to_json_text(const SentencePieceSettings& settings) {
  json object = {{"type", "SentencePiece"},
                 {"algorithm", kAlgorithms[static_cast<size_t>(settings.algorithm) - 1]},
                 {"dummy_prefix", settings.dummy_prefix == DummyPrefix::kFirstPart ? "first" : "each"},
                 {"prefix_unless_space", settings.prefix_unless_space},
                 {"pieces", settings.pieces},
                 {"unknown_surface", settings.unknown_surface}};
  json& added = object["added_tokens"] = json::array();
  for (const AddedToken& token : settings.added)
    added.push_back({{"content", token.content},
                     {"id", token.id},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  for (const Flag& flag : kFlags) object[flag.name] = settings.*flag.member;
  for (const Table& table : kTables)
    if (!(settings.*table.member).empty()) object[table.name] = encode_base64(settings.*table.member);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<SentencePieceSettings> read_sentencepiece_settings(std::string_view json_text) {
  TSR_ASSIGN_OR_RETURN(TokenizerJson read,
                       read_tokenizer_json(json_text, "the tokenizer's settings"));
  const JsonMembers members(read.rest, "the tokenizer's settings");
  SentencePieceSettings settings;
  TSR_ASSIGN_OR_RETURN(const std::string algorithm, members.text("algorithm"));
  const auto* const found = std::ranges::find(kAlgorithms, algorithm);
  if (found == kAlgorithms.end()) return members.wrong("algorithm", "unigram, bpe, word or char");
  settings.algorithm = static_cast<SentencePieceAlgorithm>(found - kAlgorithms.begin() + 1);
  for (const Flag& flag : kFlags) {
    TSR_ASSIGN_OR_RETURN(settings.*flag.member, members.flag(flag.name, settings.*flag.member));
  }
  for (const Table& table : kTables) {
    TSR_ASSIGN_OR_RETURN(const std::string text, members.text(table.name, ""));
    TSR_ASSIGN_OR_RETURN(settings.*table.member, decode_base64(text, table.name));
  }
  TSR_ASSIGN_OR_RETURN(const std::string prefix, members.text("dummy_prefix", "each"));
  if (prefix != "each" && prefix != "first") return members.wrong("dummy_prefix", "each or first");
  if (prefix == "first") settings.dummy_prefix = DummyPrefix::kFirstPart;
  TSR_ASSIGN_OR_RETURN(settings.prefix_unless_space, members.flag("prefix_unless_space", false));
  TSR_ASSIGN_OR_RETURN(settings.pieces, members.integer("pieces", 0));
  settings.added = std::move(read.added);
  TSR_ASSIGN_OR_RETURN(settings.unknown_surface, members.text("unknown_surface", settings.unknown_surface));
  return settings;
}

}  // namespace tessera
