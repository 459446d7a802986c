// Word lookup models: WordPiece, the longest tokens from the left, and WordLevel, whole words.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/tokenizer/character.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/models.h"

namespace tessera {
namespace {

constexpr int64_t kMostWordCharacters = 10'000;

class WordPieceModel final : public TokenModel {
 public:
  WordPieceModel(ModelVocabulary vocabulary, int32_t unknown, std::string prefix, size_t most_characters)
      : vocabulary_(std::move(vocabulary)),
        unknown_(unknown),
        prefix_(std::move(prefix)),
        most_(most_characters) {
    for (const auto& [token, id] : vocabulary_) longest_ = std::max(longest_, token.size());
  }

  Status tokenize(std::string_view piece, ModelScratch& scratch,
                  std::vector<WordToken>& tokens) const override {
    size_t characters = 0;
    for (size_t at = 0; at < piece.size() && characters <= most_; ++characters)
      at += character_at(piece, at).size;
    const size_t before = tokens.size();
    if (characters <= most_) {
      size_t begin = 0;
      while (begin < piece.size()) {
        const size_t size = put_longest(piece.substr(begin), begin, scratch, tokens);
        if (size == 0) break;
        begin += size;
      }
      if (begin == piece.size()) return {};
    }
    tokens.resize(before);
    tokens.push_back({unknown_, 0});
    return {};
  }

 private:
  // Bytes of `rest` covered by the longest token; 0: none.
  size_t put_longest(std::string_view rest, size_t begin, ModelScratch& scratch,
                     std::vector<WordToken>& tokens) const {
    scratch.text.assign(begin > 0 ? prefix_ : std::string());
    const size_t before = scratch.text.size();
    scratch.text += rest.substr(0, longest_);
    for (size_t size = scratch.text.size() - before; size > 0;) {
      const auto found = vocabulary_.find(std::string_view(scratch.text).substr(0, before + size));
      if (found != vocabulary_.end()) {
        tokens.push_back({found->second, static_cast<uint32_t>(begin)});
        return size;
      }
      size -= std::min(size, character_before(std::string_view(scratch.text).substr(before), size).size);
    }
    return 0;
  }

  const ModelVocabulary vocabulary_;
  const int32_t unknown_;
  const std::string prefix_;
  const size_t most_;  // longer words are unknown
  size_t longest_ = 0;
};

class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(ModelVocabulary vocabulary, int32_t unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}
  Status tokenize(std::string_view piece, ModelScratch&, std::vector<WordToken>& tokens) const override {
    const auto found = vocabulary_.find(piece);
    const int32_t id = found == vocabulary_.end() ? unknown_ : found->second;
    if (id < 0)
      return Status(StatusCode::kInvalidArgument,
                    format("the vocabulary has no token for {} and no unknown token", quote(piece)));
    tokens.push_back({id, 0});
    return {};
  }

 private:
  const ModelVocabulary vocabulary_;
  const int32_t unknown_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_wordpiece_model(const nlohmann::json& description,
                                                               const ModelVocabulary& all,
                                                               ModelVocabulary vocabulary) {
  const JsonMembers members(description, "model WordPiece");
  TSR_ASSIGN_OR_RETURN(std::string prefix, members.text("continuing_subword_prefix", "##"));
  TSR_ASSIGN_OR_RETURN(const int64_t most, members.integer("max_input_chars_per_word", 100));
  if (most < 0 || most > kMostWordCharacters)
    return members.wrong("max_input_chars_per_word", format("0 to {}", kMostWordCharacters));
  TSR_ASSIGN_OR_RETURN(const std::string unknown, members.text("unk_token", "[UNK]"));
  const auto found = all.find(unknown);
  if (found == all.end()) return members.wrong("unk_token", "a token of the vocabulary");
  return std::unique_ptr<const TokenModel>(std::make_unique<WordPieceModel>(
      std::move(vocabulary), found->second, std::move(prefix), static_cast<size_t>(most)));
}

Result<std::unique_ptr<const TokenModel>> make_wordlevel_model(const nlohmann::json& description,
                                                               const ModelVocabulary& all,
                                                               ModelVocabulary vocabulary) {
  const JsonMembers members(description, "model WordLevel");
  TSR_ASSIGN_OR_RETURN(const std::string unknown, members.text("unk_token", "<unk>"));
  const auto found = all.find(unknown);
  return std::unique_ptr<const TokenModel>(
      std::make_unique<WordLevelModel>(std::move(vocabulary), found == all.end() ? -1 : found->second));
}

Result<std::unique_ptr<const TokenModel>> make_token_model(const nlohmann::json& description,
                                                           const TokenizerData& data,
                                                           const std::vector<bool>& in_model) {
  if (data.types.size() != data.tokens.size())
    return Status(StatusCode::kCorrupt, format("the vocabulary has {} token types for {} tokens",
                                               data.types.size(), data.tokens.size()));
  TSR_ASSIGN_OR_RETURN(const std::string type, type_of(description, "model"));
  if (type == "Unigram") return make_unigram_model(description, data, in_model);
  ModelVocabulary all, vocabulary;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (!in_model[id] || data.types[id] == TokenType::kUnused) continue;
    all[data.tokens[id]] = static_cast<int32_t>(id);
    if (data.types[id] != TokenType::kControl) vocabulary[data.tokens[id]] = static_cast<int32_t>(id);
  }
  if (type == "BPE") return make_bpe_model(description, data, all, std::move(vocabulary));
  if (type == "WordPiece") return make_wordpiece_model(description, all, std::move(vocabulary));
  if (type == "WordLevel") return make_wordlevel_model(description, all, std::move(vocabulary));
  return unknown_type("model", type, "BPE, Unigram, WordPiece, WordLevel");
}

}  // namespace tessera
