#include "text/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"
#include "tests/serialize/test_data.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/word_splitter.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

std::shared_ptr<const Tokenizer> vocabulary(const std::string& path) {
  auto source = open_file(path);
  REQUIRE(source.ok());
  auto file = GgufFile::open(*source);
  REQUIRE_MESSAGE(file.ok(), file.status().to_string());
  auto data = gguf_tokenizer(*file);
  REQUIRE_MESSAGE(data.ok(), data.status().to_string());
  REQUIRE(data->has_value());
  auto tokenizer = Tokenizer::create(**data);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.status().to_string());
  return *tokenizer;
}

std::vector<std::string> test_strings(const std::string& path) {
  const std::string text = read_text_file(path), separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> strings;
  size_t position = 0;
  for (size_t found; (found = text.find(separator, position)) != std::string::npos;
       position = found + separator.size()) {
    strings.push_back(text.substr(position, found - position));
  }
  return strings;
}

std::string ids_text(const std::vector<int32_t>& ids) {
  std::string text;
  for (int32_t id : ids) text.append(" ").append(std::to_string(id));
  return text;
}

// Compares every string of <vocabulary>.inp with its line of <vocabulary>.out; `round_trip` also decodes.
void check_published_ids(const std::string& path, bool round_trip) {
  auto tokenizer = vocabulary(path);
  const std::vector<std::string> strings = test_strings(path + ".inp");
  const std::vector<std::string> lines = split(read_text_file(path + ".out"), '\n');
  REQUIRE(strings.size() == 46);
  REQUIRE(lines.size() >= strings.size());
  for (size_t i = 0; i < strings.size(); ++i) {
    CAPTURE(strings[i]);
    const std::vector<int32_t> ids = *tokenizer->encode(strings[i]);
    CHECK(trim(ids_text(ids)) == trim(lines[i]));
    if (round_trip) CHECK(tokenizer->decode(ids) == strings[i]);
  }
}

TokenizerData small_sentencepiece() {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<tool>", "abab"};
  data.scores = {0, 0, 0, -3, -4, -5, -1, -2, 0, -9};
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.types[0] = TokenType::kUnknown;
  data.types[1] = data.types[2] = TokenType::kControl;
  data.types[8] = TokenType::kUserDefined;
  data.unknown = 0;
  data.bos = 1;
  data.eos = 2;
  return data;
}

TokenizerData small_byte_level() {
  TokenizerData data;
  data.kind = TokenizerKind::kByteLevelBpe;
  data.tokens = {"a", "b", "c", "Ġ", "ab", "abc", "Ġa", "<|end|>"};
  data.merges = {"a b", "ab c", "Ġ a"};
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.types[7] = TokenType::kControl;
  data.pre_tokenizer = "gpt-2";
  return data;
}

std::vector<std::string_view> pieces_of(const WordSplitter& pre_tokenizer, std::string_view text) {
  std::vector<std::string_view> pieces;
  const Status status = pre_tokenizer.split(text, [&](std::string_view piece) { pieces.push_back(piece); });
  REQUIRE(status.ok());
  return pieces;
}

}  // namespace

TEST_CASE("gpt2_vocabulary_gives_the_published_ids_and_decodes_them_back") {
  TSR_SHARED_FILE(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  check_published_ids(path, true);
}

TEST_CASE("llama_vocabulary_gives_the_published_ids_and_decodes_them_back") {
  TSR_SHARED_FILE(path, "tokenizers/ggml-vocab-llama-spm.gguf");
  check_published_ids(path, true);
}

TEST_CASE("bert_vocabulary_gives_the_published_ids") {
  TSR_SHARED_FILE(path, "tokenizers/ggml-vocab-bert-bge.gguf");
  check_published_ids(path, false);
}

TEST_CASE("every_byte_string_survives_llama_and_gpt2") {
  for (std::string name : {"tokenizers/ggml-vocab-gpt-2.gguf", "tokenizers/ggml-vocab-llama-spm.gguf"}) {
    TSR_SHARED_FILE(path, name);
    auto tokenizer = vocabulary(path);
    std::string all;
    for (int high = 0; high < 256; ++high) {
      for (int low : {0, 10, 32, 65, 128, 191, 224, 255})
        all += {static_cast<char>(high), static_cast<char>(low)};
    }
    const std::string back = tokenizer->decode(*tokenizer->encode(all));
    const auto differs = std::ranges::mismatch(back, all).in1 - back.begin();
    CAPTURE(differs);
    CHECK(back.size() == all.size());
    CHECK(back == all);
  }
}

TEST_CASE("a_line_of_a_megabyte_is_no_trouble") {
  for (std::string name : {"tokenizers/ggml-vocab-gpt-2.gguf", "tokenizers/ggml-vocab-llama-spm.gguf"}) {
    TSR_SHARED_FILE(path, name);
    auto tokenizer = vocabulary(path);
    for (const std::string& unit :
         {std::string("a"), std::string(" "), std::string("ab c"), std::string("\xff")}) {
      std::string line;
      while (line.size() < (1u << 20)) line += unit;
      CHECK(tokenizer->decode(*tokenizer->encode(line)) == line);
    }
  }
}

TEST_CASE("sentencepiece_merges_the_best_pair_first_and_the_leftmost_of_equals") {
  auto tokenizer = Tokenizer::create(small_sentencepiece());
  REQUIRE(tokenizer.ok());
  // "▁ab": the pair "ab" scores best, then "▁ab". "abab" would need "ab"+"ab", which is below "▁ab".
  CHECK(*(*tokenizer)->encode("ab") == std::vector<int32_t>{7});
  CHECK(*(*tokenizer)->encode("abab") == std::vector<int32_t>{7, 6});
  CHECK(*(*tokenizer)->encode("babab") == std::vector<int32_t>{3, 5, 9});
  CHECK(*(*tokenizer)->encode("") == std::vector<int32_t>{});
}

TEST_CASE("user_defined_tokens_are_always_found_and_control_tokens_only_on_request") {
  auto tokenizer = Tokenizer::create(small_sentencepiece());
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("a<tool>b") == std::vector<int32_t>{3, 4, 8, 3, 5});
  const std::vector<int32_t> plain = *(*tokenizer)->encode("a</s>");
  CHECK(std::ranges::find(plain, 2) == plain.end());
  CHECK(*(*tokenizer)->encode("a</s>", {.parse_special = true}) == std::vector<int32_t>{3, 4, 2});
}

TEST_CASE("no_token_is_recognised_in_a_literal_part_of_a_text") {
  auto tokenizer = Tokenizer::create(small_sentencepiece());
  REQUIRE(tokenizer.ok());
  const auto encode = [&](std::string_view text, std::vector<TextRange> literal) {
    return *(*tokenizer)->encode(text, {true, literal});
  };
  const std::string text = "a</s>b<tool>";
  CHECK(encode(text, {}) == std::vector<int32_t>{3, 4, 2, 3, 5, 8});
  CHECK(encode(text, {{0, 1}, {5, 6}}) == std::vector<int32_t>{3, 4, 2, 3, 5, 8});
  for (TextRange part : {TextRange{1, 5}, {4, 5}, {1, 2}, {0, 12}}) {
    const std::vector<int32_t> ids = encode(text, {part});
    CHECK(std::ranges::find(ids, 2) == ids.end());
    CHECK((std::ranges::find(ids, 8) == ids.end()) == (part.end == 12));
  }
  CHECK(encode("ab", {{0, 1}}) == std::vector<int32_t>{7});  // words are merged across its bounds
  CHECK(encode("a</s>", {{2, 2}}) == std::vector<int32_t>{3, 4, 2});
  for (std::vector<TextRange> wrong : {std::vector<TextRange>{{2, 1}}, {{0, 99}}, {{0, 3}, {2, 4}}})
    CHECK(!(*tokenizer)->encode(text, {true, wrong}).ok());
}

TEST_CASE("tokens_begin_where_their_text_does") {
  const auto check = [](TokenizerData data, std::string_view text, std::vector<int32_t> ids,
                        std::vector<size_t> begins) {
    auto tokenizer = Tokenizer::create(std::move(data));
    REQUIRE(tokenizer.ok());
    const auto encoding = (*tokenizer)->encode_with_begins(text, {.parse_special = true});
    REQUIRE(encoding.ok());
    CHECK(encoding->ids == ids);
    CHECK(encoding->begins == begins);
  };
  check({}, "abc", {97, 98, 99}, {0, 1, 2});
  check(small_byte_level(), "ab abc<|end|> ac", {4, 3, 5, 7, 6, 2}, {0, 2, 3, 6, 13, 15});
  check(small_sentencepiece(), "ab ab</s>ba", {7, 7, 2, 3, 5, 4}, {0, 2, 5, 9, 9, 10});
  check(small_sentencepiece(), "aé b", {3, 4, 0, 3, 5}, {0, 0, 1, 3, 4});
  TokenizerData words;
  words.kind = TokenizerKind::kWordPiece;
  words.tokens = {"[UNK]", "▁ab", "c", "▁,", "[SEP]", "▁e"};
  words.types.assign(6, TokenType::kNormal);
  words.types[4] = TokenType::kControl;
  words.unknown = 0;
  check(words, " ABc,é  x[SEP]ab", {1, 2, 3, 5, 0, 4, 1}, {1, 3, 4, 5, 9, 10, 15});
}

TEST_CASE("every_end_token_ends_texts_and_so_does_the_beginning_of_one") {
  TokenizerData data = small_byte_level();
  data.bos = 0;
  data.eos = 7;
  data.end_ids = {5, 2, 5};
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->data().end_ids == std::vector<int32_t>{2, 5, 7});
  for (int32_t id = -1; id < 9; ++id)
    CHECK((*tokenizer)->ends_text(id) == (id == 0 || id == 2 || id == 5 || id == 7));
  data.end_ids = {8};
  CHECK(!Tokenizer::create(data).ok());
}

TEST_CASE("overlapping_special_tokens_prefer_the_longer") {
  TokenizerData data = small_byte_level();
  data.tokens.insert(data.tokens.end(), {"<x>", "<x><y>", "y><x>"});
  data.types.insert(data.types.end(), 3, TokenType::kUserDefined);
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("<x><y><x>a") == std::vector<int32_t>{9, 8, 0});
}

TEST_CASE("no_spelling_of_a_control_unknown_or_byte_token_becomes_it_by_merging") {
  TokenizerData data = small_sentencepiece();
  data.tokens.insert(data.tokens.end(),
                     {"<", ">", "s", "<s", "0", "x", "A", "0x", "0A", "<0x", "0A>", "<0x0A>"});
  data.scores.resize(data.tokens.size(), -1);
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  data.types.back() = TokenType::kByte;
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("<s>") == std::vector<int32_t>{3, 13, 11});
  CHECK(*(*tokenizer)->encode("<s>", {.parse_special = true}) == std::vector<int32_t>{1});
  CHECK(*(*tokenizer)->encode("<0x0A>") == std::vector<int32_t>{3, 19, 20});
  CHECK((*tokenizer)->decode(*(*tokenizer)->encode("<s><0x0A>")) == "<s><0x0A>");
  CHECK(*(*tokenizer)->encode("\n") == std::vector<int32_t>{3, 21});

  TokenizerData words = small_byte_level();  // of a family that takes whole words as they are
  words.pre_tokenizer = "llama-bpe";
  words.tokens.push_back("ca");
  words.types.push_back(TokenType::kControl);
  auto whole = Tokenizer::create(words);
  REQUIRE(whole.ok());
  CHECK(*(*whole)->encode("ca") == std::vector<int32_t>{2, 0});
  CHECK(*(*whole)->encode("ca", {.parse_special = true}) == std::vector<int32_t>{8});
}

TEST_CASE("an_unused_token_falls_apart_and_unknown_characters_that_stand_together_are_one") {
  TokenizerData data = small_sentencepiece();
  data.types[9] = TokenType::kUnused;  // "abab" of "ab" and "ab"
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("babab") == std::vector<int32_t>{3, 5, 6, 6});
  CHECK(*(*tokenizer)->encode("a漢字b") == std::vector<int32_t>{3, 4, 0, 5});
  CHECK(*(*tokenizer)->encode("漢 字") == std::vector<int32_t>{3, 0, 3, 0});
  data.tokens[3] = "c";  // no token for a space: nor for the words that it parts
  tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("漢 字a") == std::vector<int32_t>{0, 4});
}

namespace {

// As the algorithm is written down: of all neighbours in the whole text, those of the best score merge,
// leftmost first.
std::vector<int32_t> merged_one_by_one(const TokenizerData& data, std::string text) {
  std::vector<std::string> pieces;
  for (char byte : "_" + text) pieces.push_back(byte == ' ' || byte == '_' ? "▁" : std::string(1, byte));
  const auto token = [&](const std::string& piece) { return std::ranges::find(data.tokens, piece); };
  for (;;) {
    size_t best = 0;
    float score = -1e9f;
    for (size_t i = 1; i < pieces.size(); ++i) {
      const auto found = token(pieces[i - 1] + pieces[i]);
      if (found == data.tokens.end()) continue;
      const float candidate = data.scores[static_cast<size_t>(found - data.tokens.begin())];
      if (candidate > score) best = i, score = candidate;
    }
    if (best == 0) break;
    pieces[best - 1] += pieces[best];
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(best));
  }
  std::vector<int32_t> ids;
  for (const std::string& piece : pieces)
    ids.push_back(static_cast<int32_t>(token(piece) - data.tokens.begin()));
  return ids;
}

}  // namespace

TEST_CASE("words_that_merge_apart_are_the_whole_text_merged") {
  uint32_t state = 1;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return state / 65536 % below;
  };
  const auto drawn_of = [&](std::string_view alphabet, size_t size) {
    std::string drawn;
    while (drawn.size() < size) drawn += alphabet[draw(static_cast<uint32_t>(alphabet.size()))];
    return drawn;
  };
  for (bool spaces_within : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      TokenizerData data = small_sentencepiece();
      data.tokens = {"<unk>", "▁", "a", "b"};
      for (int i = 0; i < 14; ++i) {
        const std::string token = spaces_within && i % 2 == 0
                                      ? drawn_of("ab ", 2 + draw(3))
                                      : std::string(draw(3), ' ') + drawn_of("ab", 1 + draw(3));
        std::string escaped;
        for (char byte : token) escaped += byte == ' ' ? "▁" : std::string(1, byte);
        if (std::ranges::find(data.tokens, escaped) == data.tokens.end()) data.tokens.push_back(escaped);
      }
      data.types.assign(data.tokens.size(), TokenType::kNormal);
      data.types[0] = TokenType::kUnknown;
      data.scores.clear();
      for (size_t i = 0; i < data.tokens.size(); ++i) data.scores.push_back(-static_cast<float>(draw(6)));
      data.bos = data.eos = -1;
      auto tokenizer = Tokenizer::create(data);
      REQUIRE(tokenizer.ok());
      for (size_t size : {1, 2, 5, 30, 120}) {
        const std::string text = drawn_of("ab  ", size);
        CAPTURE(text);
        CHECK(*(*tokenizer)->encode(text) == merged_one_by_one(data, text));
      }
    }
  }
}

TEST_CASE("wordpiece_drops_what_is_no_character_of_a_text") {
  TokenizerData data;
  data.kind = TokenizerKind::kWordPiece;
  data.tokens = {"[UNK]", "▁ab", "▁a", "b"};
  data.unknown = 0;
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  for (std::string_view dropped : {"\x01", "\xC2\xAD", "\xEE\x80\x80", "\xEF\xBF\xBD", "\xCC\x81", "\xFF"}) {
    CAPTURE(dropped);
    CHECK(*(*tokenizer)->encode("a" + std::string(dropped) + "b") == std::vector<int32_t>{1});
  }
  CHECK(*(*tokenizer)->encode("a\xCD\xB8") == std::vector<int32_t>{0});  // U+0378 stands for nothing yet
}

TEST_CASE("special_tokens_are_those_that_win_among_all_that_occur") {
  uint32_t state = 7;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return state / 65536 % below;
  };
  const auto drawn = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += "ab\n"[draw(3)];
    return text;
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> tokens;
    std::vector<TokenType> types;
    for (int i = 0; i < 8; ++i) {
      tokens.push_back(i % 2 == 0 ? std::string(1 + draw(9), '\n') : drawn(1 + draw(5)));
      types.push_back(i % 3 == 0 ? TokenType::kControl : TokenType::kUserDefined);
    }
    const SpecialTokens special(tokens, types);
    for (bool parse_special : {false, true}) {
      const std::string text = drawn(60) + std::string(draw(30), '\n') + drawn(20);
      CAPTURE(text);
      // Everything that occurs, the best first, unless something better lies over it.
      using Occurrence = std::tuple<int64_t, int32_t, size_t>;  // minus the length, token, begin
      std::vector<Occurrence> all;
      for (size_t begin = 0; begin < text.size(); ++begin)
        for (size_t id = 0; id < tokens.size(); ++id)
          if ((parse_special || types[id] == TokenType::kUserDefined) &&
              text.compare(begin, tokens[id].size(), tokens[id]) == 0)
            all.emplace_back(-static_cast<int64_t>(tokens[id].size()), static_cast<int32_t>(id), begin);
      std::ranges::sort(all);
      std::vector<int32_t> owner(text.size(), -1);
      std::vector<std::pair<size_t, int32_t>> wanted, found;
      for (const auto& [size, id, begin] : all) {
        const auto from = owner.begin() + static_cast<ptrdiff_t>(begin), to = from - size;
        if (std::any_of(from, to, [](int32_t id) { return id >= 0; })) continue;
        std::fill(from, to, id);
        wanted.emplace_back(begin, id);
      }
      std::ranges::sort(wanted);
      std::string joined;
      for (const TextFragment& fragment : special.split(text, {.parse_special = parse_special})) {
        CHECK(!fragment.text.empty());
        if (fragment.token >= 0) found.emplace_back(joined.size(), fragment.token);
        joined += fragment.text;
      }
      CHECK(found == wanted);
      CHECK(joined == text);
    }
  }
}

TEST_CASE("byte_level_merges_follow_the_order_of_the_list") {
  auto tokenizer = Tokenizer::create(small_byte_level());
  REQUIRE(tokenizer.ok());
  CHECK(*(*tokenizer)->encode("abc") == std::vector<int32_t>{5});
  CHECK(*(*tokenizer)->encode(" abc") == std::vector<int32_t>{3, 5});  // "a b" stands before "Ġ a"
  CHECK(*(*tokenizer)->encode(" ac") == std::vector<int32_t>{6, 2});
  CHECK(*(*tokenizer)->encode("a<|end|>", {.parse_special = true}) == std::vector<int32_t>{0, 7});
  CHECK((*tokenizer)->decode(std::vector<int32_t>{6, 2, 7, 5}) == " acabc");
}

TEST_CASE("decoding_drops_the_dummy_space_and_survives_invalid_ids") {
  auto tokenizer = Tokenizer::create(small_sentencepiece());
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->decode(std::vector<int32_t>{1, 7, 7, 2}) == "ab ab");
  CHECK((*tokenizer)->decode(std::vector<int32_t>{7, -5, 1000000, 7}) == "ab ab");
  const std::unique_ptr<TextDecoder> decoder = (*tokenizer)->decoder();
  CHECK(decoder->add(1) == "");
  CHECK(decoder->add(7) == "ab");
  CHECK(decoder->add(7) == " ab");
  CHECK(decoder->finish() == "");
  for (TokenizerKind kind : {TokenizerKind::kBytes, TokenizerKind::kByteLevelBpe}) {
    TokenizerData data = kind == TokenizerKind::kBytes ? TokenizerData{} : small_byte_level();
    auto other = Tokenizer::create(data);
    REQUIRE(other.ok());
    CHECK((*other)->decode(std::vector<int32_t>{-1, 100000, INT32_MIN, INT32_MAX}) == "");
  }
}

TEST_CASE("plain_bytes_are_their_own_ids") {
  auto tokenizer = Tokenizer::create({});
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->vocabulary_size() == 256);
  CHECK(*(*tokenizer)->encode("A\xff") == std::vector<int32_t>{65, 255});
  CHECK((*tokenizer)->decode(std::vector<int32_t>{104, 105}) == "hi");
}

TEST_CASE("white_space_is_what_unicode_says_it_is") {
  const auto pre_tokenizer = WordSplitter::create("gpt-2");
  REQUIRE(pre_tokenizer.ok());
  const auto pieces = [&](std::string_view text) { return pieces_of(**pre_tokenizer, text); };
  using Pieces = std::vector<std::string_view>;
  CHECK(pieces("a \xE1\xA0\x8E") == Pieces{"a", " \xE1\xA0\x8E"});  // U+180E is none
  for (std::string_view space :
       {"\t", "\v", "\xC2\x85", "\xC2\xA0", "\xE2\x80\x80", "\xE2\x80\xA8", "\xE3\x80\x80"}) {
    const std::string text = "a " + std::string(space) + "b";
    CHECK(pieces(text) == Pieces{"a", " ", space, "b"});
  }
}

TEST_CASE("an_unknown_word_splitter_is_refused_with_the_names_that_are_known") {
  TokenizerData data = small_byte_level();
  data.pre_tokenizer = "gpt-9";
  auto tokenizer = Tokenizer::create(data);
  REQUIRE(!tokenizer.ok());
  CHECK(tokenizer.status().code() == StatusCode::kUnsupported);
  for (const char* name : {"gpt-9", "gpt-2", "llama-bpe", "qwen2"}) {
    CHECK(tokenizer.status().message().find(name) != std::string_view::npos);
  }
}

TEST_CASE("every_known_pattern_compiles_and_loses_no_byte") {
  const std::string text = "I'll  pay 12345 €!\r\n\t(möre)  \xff\xfe\n\n 日本語한국 ﬁ<x>`` '\0 end ";
  for (const SplitPattern& split : known_split_patterns()) {
    for (std::string_view name : split.names) {
      CAPTURE(name);
      auto pre_tokenizer = WordSplitter::create(name);
      REQUIRE(pre_tokenizer.ok());
      std::string joined;
      for (std::string_view piece : pieces_of(**pre_tokenizer, text)) {
        CHECK(!piece.empty());
        joined += piece;
      }
      CHECK(joined == text);
    }
  }
}

TEST_CASE("patterns_differ_where_the_families_do") {
  auto count = [](std::string_view name, std::string_view text) {
    auto pre_tokenizer = WordSplitter::create(name);
    REQUIRE(pre_tokenizer.ok());
    return pieces_of(**pre_tokenizer, text).size();
  };
  CHECK(count("gpt-2", "1234567") == 1);
  CHECK(count("llama-bpe", "1234567") == 3);
  CHECK(count("qwen2", "1234567") == 7);
  CHECK(count("starcoder", "1234567") == 7);
  CHECK(count("gpt-2", "don'T") == 3);
  CHECK(count("llama-bpe", "don'T") == 2);
  CHECK(count("gpt-2", "a   b") == 3);
}

TEST_CASE("broken_vocabularies_are_refused_with_a_reason") {
  auto refused = [](TokenizerData data) {
    auto tokenizer = Tokenizer::create(std::move(data));
    return !tokenizer.ok() && !tokenizer.status().message().empty();
  };
  TokenizerData data = small_sentencepiece();
  data.scores.pop_back();
  CHECK(refused(data));
  data = small_sentencepiece();
  data.scores[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused(data));
  data = small_sentencepiece();
  data.bos = 10;
  CHECK(refused(data));
  data = small_sentencepiece();
  data.eos = -2;
  CHECK(refused(data));
  data = small_sentencepiece();
  data.types.pop_back();
  CHECK(refused(data));
  data = small_sentencepiece();
  data.types[0] = static_cast<TokenType>(9);
  CHECK(refused(data));
  data = small_sentencepiece();
  data.unknown = -1;  // and no byte tokens
  CHECK(refused(data));
  data = small_byte_level();
  data.merges.push_back("nospace");
  CHECK(refused(data));
  data = small_byte_level();
  data.kind = static_cast<TokenizerKind>(7);
  CHECK(refused(data));
  data = {};
  data.tokens = {"a"};
  CHECK(refused(data));
  data = {};
  data.kind = TokenizerKind::kWordPiece;
  data.tokens = {"▁a"};
  CHECK(refused(data));
}
