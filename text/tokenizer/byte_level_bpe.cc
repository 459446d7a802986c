// Byte-level BPE (GPT-2): bytes are written as printable characters,
// and the pre-tokenizer's pattern splits the text into words. Within a
// word the adjacent pair with the best merge is joined, leftmost first.
#include <array>
#include <queue>
#include <unordered_map>

#include "graph/base/text.h"
#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/character.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/word_cache.h"
#include "text/tokenizer/word_splitter.h"

namespace tessera {
namespace {

class ByteLevelBpeTokenizer final : public Tokenizer {
 public:
  ByteLevelBpeTokenizer(TokenizerData data, std::unique_ptr<const WordSplitter> word_splitter)
      : Tokenizer(std::move(data)),
        types_(types_of(data_)),
        special_(data_, types_),
        word_splitter_(std::move(word_splitter)) {}

  Status build() {
    pieces_.reserve(data_.tokens.size());
    token_of_piece_.reserve(data_.tokens.size());
    for (size_t id = 0; id < data_.tokens.size(); ++id) {  // the last of equal tokens counts
      token_of_piece_[piece(data_.tokens[id])] = static_cast<int32_t>(id);
    }
    for (size_t byte = 0; byte < 256; ++byte)
      piece_of_byte_[byte] = piece(std::string(byte_character(static_cast<uint8_t>(byte))));
    merges_.reserve(data_.merges.size());
    for (size_t rank = 0; rank < data_.merges.size(); ++rank) {
      const std::string& merge = data_.merges[rank];
      const size_t space = merge.empty() ? std::string::npos : merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        return Status(StatusCode::kInvalidArgument,
                      format("merge {} is '{}'; wanted two pieces with a space between them", rank,
                             merge.substr(0, 64)));
      }
      const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
      const uint64_t key = pair_key(piece(left), piece(right));
      merges_.try_emplace(key, Merge{static_cast<uint32_t>(rank), piece(left + right)});
    }
    return {};
  }

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    Scratch scratch(options.words);
    for (const TextFragment& fragment : special_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
        continue;
      }
      TSR_RETURN_IF_ERROR(word_splitter_->split(fragment.text, [&](std::string_view word) {
        const size_t begin = fragment.begin + static_cast<size_t>(word.data() - fragment.text.data());
        const std::vector<WordToken>* known = scratch.words.find(word);
        if (known == nullptr) {
          scratch.tokens.clear();
          for (size_t done = 0; done < word.size(); done += kLongestWord)
            encode_word(word.substr(done, kLongestWord), static_cast<uint32_t>(done), scratch);
          scratch.words.keep(word, scratch.tokens);
          known = &scratch.tokens;
        }
        for (const WordToken& token : *known) out.add(token.id, begin + token.begin);
      }));
    }
    return {};
  }

  std::string decode_one(int32_t id, int32_t) const override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    const std::string_view token = data_.tokens[index];
    const TokenType type = types_[index];
    if (type == TokenType::kControl || type == TokenType::kUnknown) return {};
    if (type == TokenType::kUserDefined) return std::string(token);
    std::string text;
    for (size_t position = 0; position < token.size();) {
      const Character character = character_at(token, position);
      const int byte = byte_of_character(character.code);
      if (byte < 0) {
        text += token.substr(position, character.size);  // outside the alphabet: verbatim
      } else {
        text += static_cast<char>(byte);
      }
      position += character.size;
    }
    return text;
  }

 private:
  static constexpr size_t kLongestWord = size_t{1} << 30;  // symbols have 32-bit indices

  struct Merge {
    uint32_t rank, piece;
  };
  struct Symbol {
    uint32_t piece;
    int32_t previous, next;
    bool gone;
  };
  struct Pair {
    uint32_t rank;
    int32_t left, right;
    uint32_t left_piece, right_piece, merged;  // left_piece, right_piece: detect outdated pairs
    bool operator<(const Pair& other) const {
      return rank > other.rank || (rank == other.rank && left > other.left);
    }
  };
  struct Scratch {
    explicit Scratch(WordCache* kept) : words(kept != nullptr ? *kept : own_words) {}

    WordCache own_words;
    WordCache& words;
    std::vector<Symbol> symbols;
    std::priority_queue<Pair> queue;
    std::string word;
    std::vector<WordToken> tokens;  // of the present word
  };

  static std::vector<TokenType> types_of(const TokenizerData& data) {
    if (!data.types.empty()) return data.types;
    std::vector<TokenType> types(data.tokens.size(), TokenType::kNormal);
    for (int32_t id : {data.bos, data.eos, data.pad}) {
      if (id >= 0) types[static_cast<size_t>(id)] = TokenType::kControl;
    }
    return types;
  }

  // SpecialTokens finds special tokens; words never encode to them.
  bool is_special(int32_t id) const {
    const TokenType type = types_[static_cast<size_t>(id)];
    return type == TokenType::kControl || type == TokenType::kUnknown;
  }

  static uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  uint32_t piece(const std::string& text) {
    auto [found, fresh] = pieces_.try_emplace(text, static_cast<uint32_t>(token_of_piece_.size()));
    if (fresh) token_of_piece_.push_back(-1);
    return found->second;
  }

  // Appends the tokens of `word`, at byte `begin`, to scratch.tokens.
  void encode_word(std::string_view word, uint32_t begin, Scratch& scratch) const {
    if (word_splitter_->whole_words_first()) {
      scratch.word.clear();
      for (char byte : word) scratch.word += byte_character(static_cast<uint8_t>(byte));
      auto found = pieces_.find(scratch.word);
      if (found != pieces_.end()) {
        const int32_t id = token_of_piece_[found->second];
        if (id >= 0 && !is_special(id)) {
          scratch.tokens.push_back({id, begin});
          return;
        }
      }
    }
    std::vector<Symbol>& symbols = scratch.symbols;
    symbols.clear();
    for (char byte : word) {
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({piece_of_byte_[static_cast<uint8_t>(byte)], index - 1, index + 1, false});
    }
    symbols.back().next = -1;

    std::priority_queue<Pair>& queue = scratch.queue;
    auto try_pair = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const uint32_t a = symbols[static_cast<size_t>(left)].piece,
                     b = symbols[static_cast<size_t>(right)].piece;
      auto merge = merges_.find(pair_key(a, b));
      if (merge != merges_.end()) queue.push({merge->second.rank, left, right, a, b, merge->second.piece});
    };
    for (size_t i = 1; i < symbols.size(); ++i)
      try_pair(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!queue.empty()) {
      const Pair pair = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<size_t>(pair.left)];
      Symbol& right = symbols[static_cast<size_t>(pair.right)];
      if (left.gone || right.gone || left.piece != pair.left_piece || right.piece != pair.right_piece)
        continue;
      left.piece = pair.merged;
      left.next = right.next;
      right.gone = true;
      if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = pair.left;
      try_pair(left.previous, pair.left);
      try_pair(pair.left, left.next);
    }

    size_t position = 0;  // in `word`, for pieces without a token
    for (int32_t i = 0; i >= 0;) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      const size_t end = symbol.next < 0 ? word.size() : static_cast<size_t>(symbol.next);
      if (const int32_t id = token_of_piece_[symbol.piece]; id >= 0) {
        scratch.tokens.push_back({id, begin + static_cast<uint32_t>(position)});
      } else {
        for (; position < end; ++position) {
          const uint32_t single = piece_of_byte_[static_cast<uint8_t>(word[position])];
          const int32_t id = token_of_piece_[single] >= 0 ? token_of_piece_[single] : data_.unknown;
          // A byte without a token is dropped if there is no unknown token.
          if (id >= 0) scratch.tokens.push_back({id, begin + static_cast<uint32_t>(position)});
        }
      }
      position = end;
      i = symbol.next;
    }
  }

  std::vector<TokenType> types_;
  SpecialTokens special_;
  std::unique_ptr<const WordSplitter> word_splitter_;
  // Every possible merge result has a number, so a merge is one lookup.
  std::unordered_map<std::string, uint32_t> pieces_;
  std::vector<int32_t> token_of_piece_;  // -1: intermediate only
  std::array<uint32_t, 256> piece_of_byte_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_byte_level_bpe_tokenizer(TokenizerData data) {
  if (data.tokens.empty()) {
    return Status(StatusCode::kInvalidArgument, "a byte-level BPE tokenizer needs tokens; got none");
  }
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<const WordSplitter> word_splitter,
                       WordSplitter::create(data.pre_tokenizer));
  auto tokenizer = std::make_shared<ByteLevelBpeTokenizer>(std::move(data), std::move(word_splitter));
  TSR_RETURN_IF_ERROR(tokenizer->build());
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace tessera
