// A writer for each kind: byte-level BPE, SentencePiece as BPE with merges derived from scores, WordPiece. Pipelines keep
// their original description, with the vocabulary inserted.
#include "serialize/export/tokenizer_json_writer.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/base/text.h"
#include "serialize/export/wordpiece_vocabulary.h"
#include "text/json.h"
#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/word_splitter.h"

namespace tessera {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁, U+2581

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

TokenType type_of(const TokenizerData& data, size_t id) {
  if (!data.types.empty()) return data.types[id];
  constexpr size_t kBytes = 256;
  return data.kind == TokenizerKind::kBytes && id >= kBytes ? TokenType::kControl : TokenType::kNormal;
}

Json added_tokens(const TokenizerData& data) {
  Json added = Json::array();
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const auto number = static_cast<int32_t>(id);
    const bool named =
        number == data.bos || number == data.eos || number == data.pad || number == data.unknown;
    const TokenType type = type_of(data, id);
    const bool special = named || type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && type != TokenType::kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", data.tokens[id]},
                     {"single_word", false},
                     {"lstrip", std::ranges::find(data.lstrip_ids, number) != data.lstrip_ids.end()},
                     {"rstrip", std::ranges::find(data.rstrip_ids, number) != data.rstrip_ids.end()},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

// Tokens before and after a text; null: none.
Json post_processor(const std::vector<std::string>& tokens, const std::vector<int32_t>& before,
                    const std::vector<int32_t>& after) {
  if (before.empty() && after.empty()) return {};
  Json special = Json::object();
  const auto around = [&](const char* sequence, int type) {
    Json pieces = Json::array();
    const auto put = [&](const std::vector<int32_t>& ids) {
      for (const int32_t id : ids) {
        const std::string& text = tokens[static_cast<size_t>(id)];
        pieces.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
        special[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
      }
    };
    put(before);
    pieces.push_back({{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    put(after);
    return pieces;
  };
  const Json single = around("A", 0);
  Json pair = single;
  if (before.empty() || after.empty()) {
    for (const Json& piece : around("B", 1)) pair.push_back(piece);
  } else {  // BERT begins a pair once; RoBERTa puts two separators between its texts, of one type
    const bool is_roberta = tokens[static_cast<size_t>(before[0])] == "<s>";
    Json second = around("B", is_roberta ? 0 : 1);
    second.erase(second.begin(), second.begin() + std::ssize(before));
    if (is_roberta)
      for (size_t i = before.size() + 1; i < single.size(); ++i) pair.push_back(single[i]);
    for (const Json& piece : second) pair.push_back(piece);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Json post_processor(const TokenizerData& data) {
  std::vector<int32_t> before, after;
  if (data.add_bos && data.bos >= 0) before.push_back(data.bos);
  if (data.add_eos && data.eos >= 0) after.push_back(data.eos);
  return post_processor(data.tokens, before, after);
}

// The text of a token in JSON.
Result<std::string> quoted_token(const std::vector<std::string>& tokens, size_t id) {
  std::string quoted = dump(Json(tokens[id]));
  if (!Json::accept(quoted) || Json::parse(quoted).get<std::string>() != tokens[id])
    return unsupported(format("its token {} is not UTF-8", id));
  return quoted;
}

// A JSON object of all tokens, built as text, since a Json would search all earlier keys for each.
Result<std::string> vocabulary_text(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ids;
  std::string text = "{";
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto [first, is_new] = ids.emplace(tokens[id], id);
    if (!is_new) return unsupported(format("its tokens {} and {} have the same text", first->second, id));
    TSR_ASSIGN_OR_RETURN(const std::string quoted, quoted_token(tokens, id));
    text += (id == 0 ? "" : ",") + quoted + ":" + to_text(static_cast<int64_t>(id));
  }
  return text + "}";
}

Json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

// ByteLevel after a split by each pattern in turn.
Json word_splitter(const std::vector<std::string_view>& patterns) {
  Json steps = Json::array();
  for (const std::string_view pattern : patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level());
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Vocabulary and merges are long, so their texts are inserted at the end of the model, which is last.
std::string whole_text(const Json& head, const Json& model, const std::string& vocabulary,
                       const std::string& merges) {
  std::string text = dump(head), model_text = dump(model);
  text.pop_back();
  model_text.pop_back();
  return text + ",\"model\":" + model_text + ",\"vocab\":" + vocabulary +
         (merges.empty() ? "" : ",\"merges\":" + merges) + "}}\n";
}

Json head_of(Json added, Json normalizer, Json pre_tokenizer, Json post_processor, Json decoder) {
  return {{"version", "1.0"},
          {"truncation", Json()},
          {"padding", Json()},
          {"added_tokens", std::move(added)},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", std::move(post_processor)},
          {"decoder", std::move(decoder)}};
}

struct Parts {
  Json normalizer, pre_tokenizer, decoder;
  Json model = Json::object();  // without vocabulary and merges
  std::vector<std::string> tokens, merges;
};

Result<Parts> byte_level_bpe(const TokenizerData& data) {
  Parts parts;
  const std::string_view name = data.pre_tokenizer.empty() ? "default" : std::string_view(data.pre_tokenizer);
  const auto known = known_split_patterns();
  const auto found = std::ranges::find_if(known, [&](const SplitPattern& each) {
    return std::ranges::find(each.names, name) != each.names.end();
  });
  if (found == known.end()) return unsupported(format("its pre-tokenizer '{}' is not known", name));
  parts.pre_tokenizer = word_splitter({found->patterns.begin(), found->patterns.end()});
  parts.decoder = byte_level();
  parts.model["ignore_merges"] = found->whole_words_first;
  parts.tokens = data.tokens;
  parts.merges = data.merges;
  return parts;
}

// Byte tokens without merges, in byte order.
Parts bytes_alone(const TokenizerData& data) {
  Parts parts;
  parts.pre_tokenizer = byte_level();
  parts.decoder = byte_level();
  for (int byte = 0; byte < 256; ++byte)
    parts.tokens.emplace_back(byte_character(static_cast<uint8_t>(byte)));
  for (size_t id = 256; id < data.tokens.size(); ++id) parts.tokens.push_back(data.tokens[id]);
  return parts;
}

// Number of spaces in a token of spaces only; else 0.
size_t spaces_of(std::string_view token) {
  size_t count = 0;
  for (; token.starts_with(kSpace); token.remove_prefix(kSpace.size())) ++count;
  return token.empty() ? count : 0;
}

// The merges equivalent to a SentencePiece vocabulary: all pairs that join to a token, by score.
// On ties SentencePiece takes the leftmost pair, which merges cannot express; but runs of spaces
// may share a score, as in Llama: both grow them from the left if longer ones come first.
Result<std::vector<std::string>> merges_of_scores(const TokenizerData& data) {
  struct Merge {
    float score;
    size_t spaces, left, right;
  };
  const auto may_be_merged = [&](size_t id) {
    const TokenType type = type_of(data, id);
    return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
  };
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (may_be_merged(id)) ids.emplace(data.tokens[id], id);
  std::vector<Merge> merges;
  std::unordered_map<float, size_t> by_score;
  size_t runs = 0, longest_run = 0;
  bool has_equal_runs = false;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view token = data.tokens[id];
    if (!may_be_merged(id)) continue;
    const size_t before = merges.size();
    for (size_t at = 1; at < token.size(); ++at) {
      if ((static_cast<unsigned char>(token[at]) & 0xc0) == 0x80) continue;  // inside a character
      const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
      if (left != ids.end() && right != ids.end())
        merges.push_back({data.scores[id], spaces_of(token), left->second, right->second});
    }
    if (merges.size() == before) continue;
    if (type_of(data, id) == TokenType::kUnused)
      return unsupported(format("its unused token {} stands between merges, which BPE has no word for", id));
    const auto [first, is_new] = by_score.emplace(data.scores[id], id);
    const size_t spaces = spaces_of(token);
    runs += spaces > 0 ? 1 : 0;
    has_equal_runs = has_equal_runs || (!is_new && spaces > 0);
    longest_run = std::max(longest_run, spaces);
    if (!is_new && (spaces == 0 || spaces_of(data.tokens[first->second]) == 0))
      return unsupported(
          format("its tokens {} and {} have the same score, which BPE cannot rank alike", first->second, id));
  }
  if (has_equal_runs && longest_run != runs + 1)
    return unsupported(
        format("it has {} tokens of spaces, of up to {}: some between are missing", runs, longest_run));
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.spaces != b.spaces) return a.spaces > b.spaces;
    return std::pair(a.left, a.right) < std::pair(b.left, b.right);
  });
  std::vector<std::string> texts;
  texts.reserve(merges.size());
  for (const Merge& merge : merges) texts.push_back(data.tokens[merge.left] + " " + data.tokens[merge.right]);
  return texts;
}

Result<Parts> sentencepiece(const TokenizerData& data) {
  Parts parts;
  for (const std::string& token : data.tokens)
    if (token.find(' ') != std::string::npos && token.size() > 1)
      return unsupported(format("its token '{}' has a space within", token));
  TSR_ASSIGN_OR_RETURN(parts.merges, merges_of_scores(data));
  const Json to_space = {{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}};
  const Json from_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  Json steps = Json::array();
  if (data.add_space_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(from_space);
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  Json decoders = Json::array({to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (data.add_space_prefix)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  parts.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  if (data.unknown >= 0) parts.model["unk_token"] = data.tokens[static_cast<size_t>(data.unknown)];
  parts.model["fuse_unk"] = true;
  parts.model["byte_fallback"] =
      std::ranges::find(data.tokens, std::string_view("<0x00>")) != data.tokens.end();
  parts.tokens = data.tokens;
  return parts;
}

Result<Parts> parts_of(const TokenizerData& data) {
  switch (data.kind) {
    case TokenizerKind::kBytes: return bytes_alone(data);
    case TokenizerKind::kByteLevelBpe: return byte_level_bpe(data);
    case TokenizerKind::kSentencePiece: return sentencepiece(data);
    default: return unsupported("its kind has no form in a tokenizer.json that this version writes");
  }
}

// A pipeline's original description with its vocabulary.
Result<std::string> pipeline_text(const TokenizerData& data) {
  TSR_ASSIGN_OR_RETURN(Json pipeline, parse_json(data.pipeline, "the tokenizer's pipeline"));
  std::vector<bool> is_models(data.tokens.size());  // neither an added token nor an unused id
  for (size_t id = 0; id < data.tokens.size(); ++id)
    is_models[id] = type_of(data, id) != TokenType::kUnused || !data.tokens[id].empty();
  Json added = Json::array();
  for (Json token : pipeline["added_tokens"]) {
    if (!token.value("in_model", false)) is_models[token["id"].get<size_t>()] = false;
    token.erase("in_model");
    added.push_back(std::move(token));
  }
  const bool is_scored = !data.log_probabilities.empty();
  std::string vocabulary;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (!is_models[id]) continue;
    TSR_ASSIGN_OR_RETURN(const std::string quoted, quoted_token(data.tokens, id));
    vocabulary += vocabulary.empty() ? "" : ",";
    vocabulary += is_scored ? "[" + quoted + "," + dump(Json(data.log_probabilities[id])) + "]"
                            : quoted + ":" + to_text(static_cast<int64_t>(id));
  }
  // As texts, which every version reads, unless a token contains a space.
  const auto has_space = [](const std::string& token) { return token.find(' ') != std::string::npos; };
  const bool as_pairs = std::ranges::any_of(data.tokens, has_space);
  Json merges = Json::array();
  for (size_t i = 0; i + 1 < data.merge_ids.size(); i += 2) {
    const std::string &left = data.tokens[static_cast<size_t>(data.merge_ids[i])],
                      &right = data.tokens[static_cast<size_t>(data.merge_ids[i + 1])];
    merges.push_back(as_pairs ? Json::array({left, right}) : Json(left + " " + right));
  }
  const auto ids = [&](const char* key) { return pipeline.value(key, std::vector<int32_t>()); };
  const Json& model = pipeline["model"];
  const bool is_bpe = model.is_object() && model.value("type", "") == "BPE";
  return whole_text(head_of(std::move(added), pipeline["normalizer"], pipeline["pre_tokenizer"],
                            post_processor(data.tokens, ids("before"), ids("after")), pipeline["decoder"]),
                    model, is_scored ? "[" + vocabulary + "]" : "{" + vocabulary + "}",
                    is_bpe ? dump(merges) : std::string());
}

// BERT's words.
Result<std::string> wordpiece_text(const TokenizerData& data) {
  if (data.unknown < 0) return unsupported("a WordPiece vocabulary needs an unknown token; it has none");
  const std::vector<std::string> tokens = wordpiece_tokens(data);
  TSR_ASSIGN_OR_RETURN(const std::string vocabulary, vocabulary_text(tokens));
  const Json normalizer = {{"type", "BertNormalizer"},
                           {"clean_text", true},
                           {"handle_chinese_chars", true},
                           {"strip_accents", true},
                           {"lowercase", true}};
  const Json model = {{"type", "WordPiece"},
                      {"unk_token", tokens[static_cast<size_t>(data.unknown)]},
                      {"continuing_subword_prefix", "##"},
                      {"max_input_chars_per_word", 100}};
  const Json decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  return whole_text(
      head_of(added_tokens(data), normalizer, {{"type", "BertPreTokenizer"}}, post_processor(data), decoder),
      model, vocabulary, std::string());
}

}  // namespace

Result<std::string> write_tokenizer_json(const TokenizerData& data) {
  if (data.kind == TokenizerKind::kPipeline) return pipeline_text(data);
  if (data.kind == TokenizerKind::kWordPiece) return wordpiece_text(data);
  TSR_ASSIGN_OR_RETURN(Parts parts, parts_of(data));
  TSR_ASSIGN_OR_RETURN(const std::string vocabulary, vocabulary_text(parts.tokens));
  Json model = {{"type", "BPE"},
                {"dropout", Json()},
                {"unk_token", Json()},
                {"continuing_subword_prefix", Json()},
                {"end_of_word_suffix", Json()},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false}};
  model.update(parts.model);
  return whole_text(head_of(added_tokens(data), std::move(parts.normalizer), std::move(parts.pre_tokenizer),
                            post_processor(data), std::move(parts.decoder)),
                    model, vocabulary, dump(Json(parts.merges)));
}

}  // namespace tessera
