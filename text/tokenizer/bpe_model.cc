// BPE: a piece's characters are tokens; the adjacent pair with
// the best merge is joined, leftmost first, until none is left.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/tokenizer/json_members.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/models.h"
#include "text/tokenizer/pair_table.h"

namespace tessera {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // ▁, U+2581

struct BpeSettings {
  int32_t unknown = -1;
  std::string prefix, suffix;  // for characters other than the first, and for the last
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

class BpeModel final : public TokenModel {
 public:
  BpeModel(BpeSettings settings, ModelVocabulary vocabulary, PairTable merges, bool words_apart)
      : settings_(std::move(settings)), vocabulary_(std::move(vocabulary)), merges_(std::move(merges)) {
    words_apart_ = words_apart && !settings_.ignore_merges && settings_.prefix.empty() &&
                   settings_.suffix.empty() && vocabulary_.contains(kSpaceMark);
    constexpr char kHex[] = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      const char text[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
      bytes_[byte] = find({text, 6});
      const char single = static_cast<char>(byte);
      singles_[byte] = find({&single, 1});
    }
  }

  Status tokenize(std::string_view piece, ModelScratch& scratch,
                  std::vector<WordToken>& tokens) const override {
    if (settings_.ignore_merges) {
      if (const int32_t id = find(piece); id >= 0) {
        tokens.push_back({id, 0});
        return {};
      }
    }
    begin_symbols(piece, scratch);
    merge(scratch);
    for (const ModelScratch::Symbol& symbol : scratch.symbols)
      if (symbol.size > 0) tokens.push_back({symbol.id, symbol.begin});
    return {};
  }

  // Up to a space mark, if no merge crosses it.
  size_t independent_part(std::string_view piece) const override {
    if (!words_apart_) return piece.size();
    size_t begin = 0;
    while (piece.substr(begin).starts_with(kSpaceMark)) begin += kSpaceMark.size();
    return std::min(piece.find(kSpaceMark, begin), piece.size());
  }

 private:
  int32_t find(std::string_view text) const {
    const auto found = vocabulary_.find(text);
    return found == vocabulary_.end() ? -1 : found->second;
  }

  void begin_symbols(std::string_view piece, ModelScratch& scratch) const {
    scratch.symbols.clear();
    const auto add = [&](int32_t id, size_t begin, size_t size) {
      const auto index = static_cast<int32_t>(scratch.symbols.size());
      scratch.symbols.push_back(
          {id, index - 1, index + 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(size)});
    };
    const bool plain = settings_.prefix.empty() && settings_.suffix.empty();
    size_t unknown_begin = 0, unknown_size = 0;  // characters pending as one unknown token
    const auto end_unknown = [&] {
      if (unknown_size > 0) add(settings_.unknown, unknown_begin, unknown_size);
      unknown_size = 0;
    };
    for (size_t at = 0, size = 0; at < piece.size(); at += size) {
      size = first_character(piece.substr(at));
      std::string_view character = piece.substr(at, size);
      if (!plain) {
        scratch.text.clear();
        if (at > 0) scratch.text += settings_.prefix;
        scratch.text += character;
        if (at + size == piece.size()) scratch.text += settings_.suffix;
        character = scratch.text;
      }
      const int32_t id =
          character.size() == 1 ? singles_[static_cast<uint8_t>(character[0])] : find(character);
      if (id >= 0) {
        end_unknown();
        add(id, at, size);
        continue;
      }
      // As in the reference, byte fallback does not end a run of unknown characters, which follows it.
      if (settings_.byte_fallback && std::ranges::all_of(character, [&](char byte) {
            return bytes_[static_cast<uint8_t>(byte)] >= 0;
          })) {
        for (size_t i = 0; i < character.size(); ++i)
          add(bytes_[static_cast<uint8_t>(character[i])], std::min(at + i, at + size - 1), 1);
        continue;
      }
      if (settings_.unknown < 0) continue;
      if (!settings_.fuse_unknown) end_unknown();
      if (unknown_size == 0) unknown_begin = at;
      unknown_size += size;
    }
    end_unknown();
    if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
  }

  void merge(ModelScratch& scratch) const {
    std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
    std::vector<ModelScratch::Merge>& heap = scratch.merges;
    heap.clear();
    const auto later = [](const ModelScratch::Merge& a, const ModelScratch::Merge& b) {
      return a.rank > b.rank || (a.rank == b.rank && a.at > b.at);
    };
    const auto find_pair = [&](int32_t left) -> const PairTable::Value* {
      if (left < 0) return nullptr;
      const ModelScratch::Symbol& symbol = symbols[static_cast<size_t>(left)];
      return symbol.next < 0 ? nullptr
                             : merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto* pair = find_pair(static_cast<int32_t>(i)))
        heap.push_back({pair->rank, static_cast<int32_t>(i), pair->id});
    std::ranges::make_heap(heap, later);
    const auto push = [&](int32_t left) {
      if (const auto* pair = find_pair(left)) {
        heap.push_back({pair->rank, left, pair->id});
        std::ranges::push_heap(heap, later);
      }
    };
    while (!heap.empty()) {
      std::ranges::pop_heap(heap, later);
      const ModelScratch::Merge next = heap.back();
      heap.pop_back();
      ModelScratch::Symbol& left = symbols[static_cast<size_t>(next.at)];
      if (left.size == 0) continue;
      const auto* pair = find_pair(next.at);
      if (pair == nullptr || pair->id != next.id) continue;  // outdated
      ModelScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
      left.id = next.id;
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = next.at;
      push(left.previous);
      push(next.at);
    }
  }

  const BpeSettings settings_;
  const ModelVocabulary vocabulary_;
  const PairTable merges_;
  bool words_apart_ = false;
  std::array<int32_t, 256> bytes_{}, singles_{};  // tokens of "<0xNN>" and of single bytes, or -1
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_bpe_model(const nlohmann::json& description,
                                                         const TokenizerData& data,
                                                         const ModelVocabulary& all,
                                                         ModelVocabulary vocabulary) {
  const JsonMembers members(description, "model BPE");
  BpeSettings settings;
  const nlohmann::json& dropout = members.at("dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0))
    return Status(
        StatusCode::kUnsupported,
        format(
            "model BPE: 'dropout' is {}: merges left out at random; only 0 and null are known",
            quote(std::string_view(dropout.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)))));
  TSR_ASSIGN_OR_RETURN(settings.fuse_unknown, members.flag("fuse_unk", false));
  TSR_ASSIGN_OR_RETURN(settings.byte_fallback, members.flag("byte_fallback", false));
  TSR_ASSIGN_OR_RETURN(settings.ignore_merges, members.flag("ignore_merges", false));
  TSR_ASSIGN_OR_RETURN(settings.prefix, members.text("continuing_subword_prefix", ""));
  TSR_ASSIGN_OR_RETURN(settings.suffix, members.text("end_of_word_suffix", ""));
  TSR_ASSIGN_OR_RETURN(const std::string unknown, members.text("unk_token", ""));
  if (const auto found = all.find(unknown); !unknown.empty() && found != all.end())
    settings.unknown = found->second;
  if (data.merge_ids.size() % 2 != 0)
    return Status(StatusCode::kCorrupt,
                  format("the vocabulary has {} ids of merges, wanted two a merge", data.merge_ids.size()));
  PairTable merges(data.merge_ids.size() / 2);
  bool words_apart = true;  // no merge crosses a space mark
  std::string text;
  for (size_t i = 0; i < data.merge_ids.size(); i += 2) {
    const int32_t left = data.merge_ids[i], right = data.merge_ids[i + 1];
    for (int32_t id : {left, right})
      if (id < 0 || static_cast<size_t>(id) >= data.tokens.size())
        return Status(StatusCode::kCorrupt, format("merge {} has token {}; the vocabulary has {} tokens",
                                                   i / 2, id, data.tokens.size()));
    const std::string& second = data.tokens[static_cast<size_t>(right)];
    text = data.tokens[static_cast<size_t>(left)];
    words_apart = words_apart && (!second.starts_with(kSpaceMark) || text.ends_with(kSpaceMark));
    text += second.substr(std::min(settings.prefix.size(), second.size()));
    const auto merged = all.find(text);
    if (merged == all.end())
      return Status(StatusCode::kInvalidArgument,
                    format("merge {} of '{}' and '{}' makes {}, which is no token of the vocabulary", i / 2,
                           quote(data.tokens[static_cast<size_t>(left)], 64), quote(second, 64),
                           quote(std::string_view(text), 64)));
    if (vocabulary.contains(text)) merges.put(left, right, {static_cast<uint32_t>(i / 2), merged->second});
  }
  return std::unique_ptr<const TokenModel>(
      std::make_unique<BpeModel>(std::move(settings), std::move(vocabulary), std::move(merges), words_apart));
}

}  // namespace tessera
