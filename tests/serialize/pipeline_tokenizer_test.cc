// Tokenizers of Hugging Face folders: models, added tokens, what stands around texts, files in all forms, broken ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "serialize/export/gguf_vocabulary.h"
#include "serialize/export/gguf_writer.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/tokenizer_folder.h"
#include "serialize/model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/sentencepiece_writer.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"
#include "text/tokenizer/hugging_face.h"
#include "text/tokenizer/tokenizer_json.h"

using namespace tessera;
using namespace tessera::testing;
using nlohmann::json;
using Ids = std::vector<int32_t>;

namespace {

json split_words() {
  return {{"type", "Split"}, {"pattern", {{"Regex", "\\S+"}}}, {"behavior", "Removed"}, {"invert", true}};
}

json added(const char* content, int id, bool special, json more = json::object()) {
  json token = {{"content", content}, {"id", id}, {"special", special}, {"normalized", false}};
  token.update(more);
  return token;
}

json small_bpe() {
  return {{"normalizer", {{"type", "Lowercase"}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab",
             {{"a", 0}, {"b", 1}, {"c", 2}, {"Ġ", 3}, {"ab", 4}, {"abc", 5}, {"Ġa", 6}, {"Ã", 7}, {"©", 8}}},
            {"merges", {"a b", {"ab", "c"}, "Ġ a"}}}},
          {"added_tokens", {added("<s>", 9, true), added("</s>", 10, true), added("<tool>", 11, false)}}};
}

Result<std::shared_ptr<const Tokenizer>> open(const json& description, const json& config = nullptr,
                                              Ids ends = {}) {
  const std::string text = description.dump(), config_text = config.is_null() ? "" : config.dump();
  TSR_ASSIGN_OR_RETURN(TokenizerData data, hf_tokenizer({text, config_text, std::move(ends)}));
  return Tokenizer::create(std::move(data));
}

std::shared_ptr<const Tokenizer> opened(const json& description, const json& config = nullptr,
                                        Ids ends = {}) {
  auto made = open(description, config, std::move(ends));
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  return *made;
}

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool special = true) {
  const auto ids = tokenizer.encode(text, {special, {}});
  REQUIRE_MESSAGE(ids.ok(), ids.status().to_string());
  return *ids;
}

json model(json parts) { return {{"pre_tokenizer", split_words()}, {"model", std::move(parts)}}; }

void check_refused(const json& description, std::string_view words) {
  const auto made = open(description);
  CAPTURE(std::string(words));
  REQUIRE(!made.ok());
  CAPTURE(made.status().to_string());
  CHECK(made.status().message().find(words) != std::string_view::npos);
}

std::shared_ptr<const Tokenizer> opened_folder(std::map<std::string, std::string> contents) {
  auto data = hf_folder_tokenizer(files(std::move(contents)));
  REQUIRE_MESSAGE(data.ok(), data.status().to_string());
  REQUIRE(data->has_value());
  auto made = Tokenizer::create(**data);
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  return *made;
}

}  // namespace

TEST_CASE("a_tokenizer_json_encodes_and_decodes_with_its_added_tokens") {
  const auto tokenizer = opened(small_bpe());
  CHECK(tokenizer->vocabulary_size() == 12);
  CHECK(ids_of(*tokenizer, "ABC a<s>é") == Ids{5, 6, 9, 7, 8});
  CHECK(ids_of(*tokenizer, "a</s>b<tool>", false) == Ids{0, 1, 11});  // what the vocabulary lacks is dropped
  CHECK(tokenizer->decode(Ids{9, 5, 6, 7, 8, 11, 10}) == "abc aé<tool>");
  const std::string text = "abc ab<tool>a</s>";
  const TextRange literal[] = {{7, 9}};
  const auto encoding = tokenizer->encode_with_begins(text, {true, literal});
  REQUIRE(encoding.ok());
  CHECK(encoding->ids == Ids{5, 3, 4, 0, 10});
  CHECK(encoding->begins == std::vector<size_t>{0, 3, 4, 12, 13});
  CHECK(tokenizer->decode(Ids{-1, 99, INT32_MAX}) == "");
  // Bytes that are no UTF-8 are bytes.
  CHECK(ids_of(*tokenizer,
               "a\xc3"
               "a") == Ids{0, 7, 0});
}

TEST_CASE("a_tokenizer_json_has_its_keys_once") {
  const std::string text = small_bpe().dump();
  const auto message = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return read_tokenizer_json(std::string(text).replace(at, from.size(), to), "it").status().to_string();
  };
  CHECK(message("\"vocab\":{", "\"vocab\":{\"a\":5,").find("the token 'a' stands twice, first with the id 5") !=
        std::string::npos);
  CHECK(message("\"vocab\":{", "\"vocab\":{},\"vocab\":{").find("has model.vocab twice") != std::string::npos);
  CHECK(message("\"content\":", "\"content\":\"zz\",\"content\":").find("a token has 'content' twice") !=
        std::string::npos);
  CHECK(message("\"type\":", "\"type\":\"zz\",\"type\":").find("has the key 'type' twice") != std::string::npos);
}

TEST_CASE("added_tokens_take_spaces_words_and_normalized_forms_as_their_flags_say") {
  json description = small_bpe();
  description["added_tokens"] = {
      added("<l>", 9, true, {{"lstrip", true}}), added("<r>", 10, true, {{"rstrip", true}}),
      added("ab", 4, false, {{"single_word", true}}), added("BC", 11, false, {{"normalized", true}})};
  const auto tokenizer = opened(description);
  CHECK(ids_of(*tokenizer, "a \n<l> a") == Ids{0, 9, 6});
  CHECK(ids_of(*tokenizer, "a <r> \t a") == Ids{0, 3, 10, 0});
  CHECK(ids_of(*tokenizer, "aBc") == Ids{0, 11});
  CHECK(ids_of(*tokenizer, "xbC") == Ids{11});
  CHECK(ids_of(*tokenizer, "ab") == Ids{4});
  CHECK(tokenizer->decode(Ids{11}) == "bc");  // in the form that was found
  const TextRange literal[] = {{1, 2}};
  CHECK(*tokenizer->encode("aBc", {true, literal}) ==
        Ids{5});  // of a literal part it is no token: "abc" merges
}

TEST_CASE("bpe_has_unknown_characters_bytes_prefixes_and_whole_words_as_told") {
  const auto bpe = [](json more, json vocabulary, json merges = json::array()) {
    json parts = {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}};
    if (!more.is_null()) parts.update(more);
    return opened(model(std::move(parts)));
  };
  const json letters = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"<0xC3>", 4}, {"<0xA9>", 5}};
  CHECK(ids_of(*bpe({}, letters), "axb") == Ids{1, 2});
  CHECK(ids_of(*bpe({{"unk_token", "<unk>"}}, letters), "axxb") == Ids{1, 0, 0, 2});
  CHECK(ids_of(*bpe({{"unk_token", "<unk>"}, {"fuse_unk", true}}, letters), "axxb") == Ids{1, 0, 2});
  CHECK(ids_of(*bpe({{"unk_token", "<unk>"}, {"byte_fallback", true}}, letters), "aéx") == Ids{1, 4, 5, 0});
  CHECK(ids_of(*bpe({{"ignore_merges", true}}, letters), "ab ba") == Ids{3, 2, 1});
  CHECK(ids_of(*bpe({}, letters), "ab") == Ids{1, 2});
  const json marked = {{"a", 0}, {"##b", 1}, {"a</w>", 2}, {"##b</w>", 3}, {"ab</w>", 4}};
  CHECK(ids_of(*bpe({{"continuing_subword_prefix", "##"}, {"end_of_word_suffix", "</w>"}}, marked,
                    json::array({"a ##b</w>"})),
               "ab a abb") == Ids{4, 2, 0, 1, 3});
  // The last of two equal merges counts, and merges join what stands in the list first.
  CHECK(ids_of(*bpe({}, {{"a", 0}, {"b", 1}, {"ab", 2}, {"ba", 3}}, {"b a", "a b", "b a"}), "aba") ==
        Ids{2, 0});
}

TEST_CASE("words_that_a_model_takes_apart_are_the_whole_text_merged") {
  const json vocabulary = {{"▁", 0}, {"a", 1}, {"b", 2}, {"▁a", 3}, {"▁▁", 4}, {"b▁", 5}, {"ab", 6}};
  for (const bool across : {false, true}) {
    json merges = {"▁ a", "▁ ▁", "a b"};
    if (across) merges.insert(merges.begin(), "b ▁");
    const json description = {
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
    const auto tokenizer = opened(description);
    CHECK(ids_of(*tokenizer, "ab  ab a") == (across ? Ids{1, 5, 3, 5, 1} : Ids{6, 0, 3, 2, 3}));
    const auto encoding = tokenizer->encode_with_begins("ab  ab a");
    CHECK(std::ranges::is_sorted(encoding->begins));
    CHECK(encoding->begins.back() == (across ? 7 : 6));
  }
}

TEST_CASE("unigram_takes_the_likeliest_tokens_and_joins_what_it_does_not_know") {
  const json vocabulary =
      json::parse(R"([["<unk>", 0], ["a", -1], ["b", -1.5], ["ab", -2], ["abc", -4.5], ["c", -2],
                                          ["<0xC3>", -9], ["<0xA9>", -9]])");
  const auto unigram = [&](json more, json words) {
    json parts = {{"type", "Unigram"}, {"vocab", std::move(words)}, {"unk_id", 0}};
    if (!more.is_null()) parts.update(more);
    return opened(model(std::move(parts)));
  };
  CHECK(ids_of(*unigram({}, vocabulary), "abc") == Ids{3, 5});
  CHECK(ids_of(*unigram({}, vocabulary), "aéxb") == Ids{1, 0, 2});
  CHECK(ids_of(*unigram({{"byte_fallback", true}}, vocabulary), "aéb") == Ids{1, 6, 7, 2});
  CHECK(ids_of(*unigram({{"byte_fallback", true}}, vocabulary), "aéx") == Ids{1, 0});
  const auto strict = unigram({{"unk_id", nullptr}}, vocabulary);
  const auto failed = strict->encode("ax");
  REQUIRE(!failed.ok());
  CHECK(failed.status().message().find("no token for x and no unknown token") != std::string_view::npos);
  json broken = vocabulary;
  broken[1] = json::array({"a"});
  check_refused(model({{"type", "Unigram"}, {"vocab", broken}}), "not a token and its score");
  check_refused(model({{"type", "Unigram"}, {"vocab", vocabulary}, {"unk_id", 8}}), "'unk_id' is 8");
}

TEST_CASE("wordpiece_and_wordlevel_look_words_up") {
  const json pieces = {{"[UNK]", 0}, {"ab", 1}, {"##c", 2}, {"##cd", 3}, {"é", 4}};
  json parts = {{"type", "WordPiece"}, {"vocab", pieces}, {"unk_token", "[UNK]"}};
  CHECK(ids_of(*opened(model(parts)), "abcd abcx é abc") == Ids{1, 3, 0, 4, 1, 2});
  parts["max_input_chars_per_word"] = 2;
  CHECK(ids_of(*opened(model(parts)), "ab abc") == Ids{1, 0});
  parts["unk_token"] = "[NONE]";
  check_refused(model(parts), "'unk_token' is \"[NONE]\", wanted a token of the vocabulary");
  const auto words =
      opened(model({{"type", "WordLevel"}, {"vocab", {{"x", 0}, {"yes", 1}}}, {"unk_token", "<unk>"}}));
  CHECK(ids_of(*words, "yes x") == Ids{1, 0});
  CHECK(!words->encode("no").ok());
}

TEST_CASE("what_stands_around_a_text_and_what_ends_it_come_from_the_folder") {
  json description = small_bpe();
  description["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
         {"special_tokens", {{"<s>", {{"ids", {9}}}}}}}}}};
  const json names = {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}, {"pad_token", "<tool>"}};
  auto tokenizer = opened(description, names, {10, 11, 500});
  CHECK(Ids(tokenizer->before_text().begin(), tokenizer->before_text().end()) == Ids{9});
  CHECK(tokenizer->after_text().empty());
  const TokenizerData& data = tokenizer->data();
  CHECK(data.add_bos);
  CHECK(data.bos == 9);
  CHECK(data.eos == 10);
  CHECK(data.pad == 11);
  CHECK(data.end_ids == Ids{10, 11});
  json more = names;
  more["add_bos_token"] = false;
  more["add_eos_token"] = true;
  more["added_tokens_decoder"] = {{"12", {{"content", "<more>"}, {"special", true}, {"normalized", false}}}};
  tokenizer = opened(description, more);
  // A tokenizer.json says itself what stands around texts.
  CHECK(Ids(tokenizer->before_text().begin(), tokenizer->before_text().end()) == Ids{9});
  CHECK(tokenizer->after_text().empty());
  CHECK(ids_of(*tokenizer, "<more>") == Ids{12});
  description["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 9}}, {"sep", {"</s>", 10}}};
  tokenizer = opened(description);
  CHECK(tokenizer->before_text()[0] == 9);
  CHECK(tokenizer->after_text()[0] == 10);
  CHECK(tokenizer->data().end_ids == Ids{10});
  description["post_processor"]["cls"][1] = 99;
  check_refused(description, "post_processor has the token 99");
}

TEST_CASE("folders_without_tokenizer_json_have_their_tokenizer_too") {
  const auto gpt2 = opened_folder({{"vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})"},
                                   {"merges.txt", "#version: 0.2\na b\n"},
                                   {"tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})"},
                                   {"config.json", R"({"eos_token_id": 3})"}});
  CHECK(ids_of(*gpt2, "ab<|endoftext|>ba") == Ids{2, 3, 1, 0});
  CHECK(gpt2->data().end_ids == Ids{3});
  const auto bert = opened_folder({{"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n##s\n,\n"}});
  CHECK(ids_of(*bert, "Hellos, [SEP] Wörld") == Ids{4, 5, 6, 3, 1});
  CHECK(bert->before_text()[0] == 2);
  CHECK(bert->after_text()[0] == 3);
  const std::string bpe = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                          piece("▁", -3, 1) + piece("a", -4, 1) + piece("▁a", -1, 1) + field(2, "\x18\x02") +
                          field(3, std::string("\x20\0", 2));
  const auto llama =
      opened_folder({{"tokenizer.model", bpe}, {"generation_config.json", R"({"eos_token_id": [2, 1]})"}});
  CHECK(ids_of(*llama, "a a</s>") == Ids{5, 5, 2});
  CHECK(llama->data().end_ids == Ids{1, 2});
  CHECK(llama->data().kind == TokenizerKind::kSentencePieceModel);  // without bytes
  const std::string unigram = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                              piece("▁a", -1, 1) + piece("▁", -2, 1) + piece("b", -2, 1) +
                              field(2, "\x18\x01");
  const auto t5 = opened_folder({{"tokenizer.model", unigram}});
  CHECK(ids_of(*t5, "a  b a ") == Ids{3, 4, 5, 3});
  CHECK(t5->decode(Ids{3, 4, 5, 3}) == "a b a");
  CHECK(!hf_folder_tokenizer(files({{"tokenizer.model", bpe.substr(0, bpe.size() - 1)}})).ok());
  CHECK(!hf_folder_tokenizer(files({{"tokenizer.model", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}}))
             .ok());
  CHECK(!hf_folder_tokenizer(files({{"vocab.json", "{}"}})).ok());
  CHECK(!hf_folder_tokenizer(files({{"config.json", "{}"}}))->has_value());
}

TEST_CASE("a_pipeline_is_the_same_after_it_was_stored") {
  json description = small_bpe();
  description["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 9}}, {"sep", {"</s>", 10}}};
  const auto tokenizer = opened(description, nullptr, {10});
  Model model;
  model.tokenizer = tokenizer->data();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pipeline_" + std::to_string(getpid()))).string();
  REQUIRE(save_model(model, path).ok());
  const auto loaded = load_model(path);
  std::filesystem::remove(path);
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
  const auto again = Tokenizer::create(*loaded->tokenizer);
  REQUIRE(again.ok());
  CHECK(ids_of(**again, "ABC a<s>é</s>") == ids_of(*tokenizer, "ABC a<s>é</s>"));
  CHECK((*again)->before_text()[0] == 9);
  CHECK((*again)->data().end_ids == Ids{10});
}

TEST_CASE("gguf_vocabularies_that_are_no_own_kind_become_pipelines") {
  const auto tokenizer_of = [](GgufBuilder& writer) {
    const std::string file = writer.finish();
    const auto opened = GgufFile::open(source_of(file));
    REQUIRE(opened.ok());
    const auto data = gguf_tokenizer(*opened);
    REQUIRE_MESSAGE(data.ok(), data.status().to_string());
    const auto made = Tokenizer::create(**data);
    REQUIRE_MESSAGE(made.ok(), made.status().to_string());
    return *made;
  };
  GgufBuilder t5;
  t5.text("tokenizer.ggml.model", "t5")
      .texts("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "▁a", "▁", "b"});
  t5.numbers("tokenizer.ggml.scores", 6, std::vector<float>{0, 0, 0, -1, -2, -2});
  t5.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{3, 3, 2, 1, 1, 1});
  t5.flag("tokenizer.ggml.remove_extra_whitespaces", true);
  const auto unigram = tokenizer_of(t5);
  CHECK(ids_of(*unigram, "  a  b x</s>") == Ids{3, 4, 5, 4, 2, 1});
  CHECK(unigram->after_text()[0] == 1);
  CHECK(unigram->before_text().empty());
  GgufBuilder gemma;
  gemma.text("tokenizer.ggml.model", "gemma4");
  gemma.texts("tokenizer.ggml.tokens",
              {"<bos>", "<turn|>", "▁", "a", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>"});
  gemma.texts("tokenizer.ggml.merges", {"▁ a", "\n \n"});
  gemma.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{3, 3, 1, 1, 1, 1, 1, 6, 6});
  gemma.u32("tokenizer.ggml.bos_token_id", 0);
  const auto raw = tokenizer_of(gemma);
  CHECK(ids_of(*raw, "a a\n\né<turn|>") == Ids{3, 4, 6, 7, 8, 1});
  CHECK(raw->decode(Ids{0, 3, 4, 6, 7, 8, 1}) == "a a\n\né");
  CHECK(raw->data().end_ids == Ids{1});
  CHECK(raw->before_text()[0] == 0);
  GgufWriter written;  // and back
  REQUIRE(write_gguf_vocabulary(raw->data(), 9, written).ok());
  const auto file = written.finish({});
  REQUIRE(file.ok());
  const auto opened = GgufFile::open(source_of(file->header));
  REQUIRE(opened.ok());
  CHECK(*opened->text("tokenizer.ggml.model") == "gemma4");
  const auto again = gguf_tokenizer(*opened);
  REQUIRE_MESSAGE(again.ok(), again.status().to_string());
  const auto same = Tokenizer::create(**again);
  REQUIRE(same.ok());
  CHECK(ids_of(**same, "a a\n\né<turn|>") == Ids{3, 4, 6, 7, 8, 1});
  CHECK((*same)->decode(Ids{0, 3, 4, 6, 7, 8, 1}) == "a a\n\né");
  CHECK((*same)->before_text()[0] == 0);
  GgufBuilder rwkv;
  rwkv.text("tokenizer.ggml.model", "rwkv");
  rwkv.texts("tokenizer.ggml.tokens", {"<s>", "a", "ab", "\\n", "\\xff", "\\\\"});
  rwkv.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{3, 1, 1, 1, 1, 1});
  const auto bytes = tokenizer_of(rwkv);
  CHECK(ids_of(*bytes, "aba\n\xff\\<s>") == Ids{2, 1, 3, 4, 5, 0});
  CHECK(bytes->decode(Ids{2, 1, 3, 4, 5}) == "aba\n\xff\\");
}

TEST_CASE("tokens_that_strip_spaces_do_so_in_every_kind") {
  TokenizerData data;
  data.tokens.resize(256, "x");
  data.tokens.insert(data.tokens.end(), {"<l>", "<r>"});
  data.lstrip_ids = {256};
  data.rstrip_ids = {257};
  data.kind = TokenizerKind::kByteLevelBpe;
  data.types.assign(258, TokenType::kNormal);
  data.types[256] = data.types[257] = TokenType::kControl;
  data.tokens[0] = "a";
  data.tokens[1] = "Ġ";
  data.pre_tokenizer = "gpt-2";
  const auto made = Tokenizer::create(data);
  REQUIRE(made.ok());
  CHECK(ids_of(**made, "a \n<l> a<r>\t a") == Ids{0, 256, 1, 0, 257, 0});
  data.rstrip_ids = {258};
  CHECK(!Tokenizer::create(data).ok());
}

TEST_CASE("broken_tokenizer_files_are_refused_with_what_is_wrong") {
  json description = small_bpe();
  const auto with = [&](const char* path, json value) {
    json changed = description;
    changed[json::json_pointer(path)] = std::move(value);
    return changed;
  };
  check_refused(with("/model/merges", {"a z"}), "z is no token of model.vocab");
  check_refused(with("/model/merges", {"b c"}), "makes bc, which is no token");
  check_refused(with("/model/merges", {"a b c"}), "not two tokens with a space");
  check_refused(with("/model/merges", json::array({json::array({"a"})})), "not two tokens");
  check_refused(with("/model/vocab/c", 1), "have the id 1");
  check_refused(with("/model/vocab/c", -1), "the id of c is -1");
  check_refused(with("/model/vocab/c", 1.5), "the id of c is 1.5");
  check_refused(with("/model/vocab/c", 2000000000), "farther apart");
  check_refused(with("/model/dropout", 0.1), "'dropout' is 0.1");
  check_refused(with("/model/type", "Trie"), "model 'Trie' is not known");
  check_refused(with("/added_tokens/0/id", 3), "the added token <s> has id 3; the vocabulary gives it 9");
  check_refused(with("/added_tokens/0/content", std::string(5000, 'x')), "at most 1024 are known");
  check_refused(with("/added_tokens/0/special", 1), "'special' is not true or false");
  check_refused(with("/decoder", {{"type", "Morse"}}), "decoder 'Morse' is not known");
  check_refused(json::array(), "no object");
  const auto corrupt = hf_tokenizer({R"({"model": )", "", {}});
  CHECK(corrupt.status().message().find("the text is not JSON") != std::string_view::npos);
  std::string deep = R"({"model": )";
  for (int i = 0; i < 10000; ++i) deep += R"({"normalizer": [)";
  CHECK(hf_tokenizer({deep, "", {}}).status().message().find("nests deeper than 64") !=
        std::string_view::npos);
  TokenizerData data = opened(description)->data();
  data.merge_ids.push_back(1);
  CHECK(!Tokenizer::create(data).ok());
  data = opened(description)->data();
  data.merge_ids[0] = 77;
  CHECK(!Tokenizer::create(data).ok());
  data = opened(description)->data();
  data.tokens.resize(10);
  data.types.resize(10);
  CHECK(!Tokenizer::create(data).ok());
}

TEST_CASE("a_pattern_that_backtracks_without_end_is_an_error_of_encode") {
  json description = small_bpe();
  description["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+b"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = opened(description);
  CHECK(ids_of(*tokenizer, "aab") == Ids{0, 4});
  const auto failed = tokenizer->encode(std::string(200, 'a') + "cb");
  REQUIRE(!failed.ok());
  CHECK(failed.status().message().find("(a+)+b") != std::string_view::npos);
  // One that looks ahead to the end of the text from every place.
  description["pre_tokenizer"]["pattern"]["Regex"] = R"(\d{1,3}(?=(?:\d{3})*(?!\d)))";
  const auto digits = opened(description);
  CHECK(!digits->encode(std::string(size_t{1} << 20, '7')).ok());
}

TEST_CASE("a_hundred_thousand_added_tokens_that_overlap_are_no_trouble") {
  json description = small_bpe();
  json& list = description["added_tokens"] = json::array();
  std::string content = "a";
  for (int i = 0; i < 1000; ++i) list.push_back(added((content += "b").c_str(), 9 + i - (i > 0), false));
  list[0]["id"] = 4;  // "ab" is the model's
  for (int i = 0; i < 100000; ++i)
    list.push_back(added(("aab" + std::to_string(i)).c_str(), 1008 + i, i % 2 == 0));
  const auto tokenizer = opened(description);
  const std::string text = "a" + std::string(1000, 'b') + "aab77777" + std::string(20000, 'a');
  const Ids ids = ids_of(*tokenizer, text);
  CHECK(ids[0] == 1007);
  CHECK(ids[1] == 1008 + 77777);
}
