// Models of SentencePiece with each of their settings: ids and text are those of the library sentencepiece 0.2.3; and what
// side files in a folder change, as transformers 5.24 reads them.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "serialize/export/sentencepiece_file.h"
#include "serialize/import/tokenizer_folder.h"
#include "tests/serialize/sentencepiece_writer.h"
#include "text/tokenizer/hugging_face.h"
#include "text/tokenizer/token_addition.h"

using namespace tessera;
using namespace tessera::testing;
using Ids = std::vector<int32_t>;

namespace {

constexpr int kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4;

std::string pieces() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("▁", -2, 1) +
         piece("a", -3, 1) + piece("▁a", -1, 1) + piece("b", -3, 1) + piece("▁▁", 0, 4) +
         piece("<u>", 0, 4) + piece("ab", -1.5, 1);
}

std::string bytes() {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += piece(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", -9, 6);
  return all;
}

std::shared_ptr<const Tokenizer> opened(std::map<std::string, std::string> folder) {
  const auto data = hf_folder_tokenizer(files(std::move(folder)));
  REQUIRE_MESSAGE(data.ok(), data.status().to_string());
  REQUIRE(data->has_value());
  const auto made = Tokenizer::create(**data);
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  return *made;
}

std::shared_ptr<const Tokenizer> sentencepiece(int algorithm, const std::string& all, const std::string& trainer = "",
                                               const std::string& normalizer = "") {
  return opened({{"tokenizer.model", all + field(2, number(3, algorithm) + trainer) + field(3, normalizer)}});
}

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  const auto ids = tokenizer.encode(text, {special, {}});
  REQUIRE_MESSAGE(ids.ok(), ids.status().to_string());
  return *ids;
}

struct Case {
  const char* text;
  Ids ids;
  const char* decoded;
};

void check(const Tokenizer& tokenizer, const std::vector<Case>& cases) {
  for (const Case& it : cases) {
    CAPTURE(it.text);
    CHECK(ids_of(tokenizer, it.text) == it.ids);
    CHECK(tokenizer.decode(it.ids) == it.decoded);
  }
}

}  // namespace

TEST_CASE("sentencepiece models encode and decode as their settings say") {
  const std::string byte_fallback = number(35, 1), keeps_spaces = number(4, 0), no_prefix = number(3, 0);
  check(*sentencepiece(kUnigram, pieces()), {{"a b", {5, 3, 6}, "a b"},
                                             {" a", {5}, "a"},
                                             {"x<u>ab", {3, 0, 8, 9}, " ⁇ <u>ab"},
                                             {"<s>é", {3, 0}, " ⁇ "},
                                             {"  ", {}, ""}});
  check(*sentencepiece(kUnigram, pieces(), "", keeps_spaces),
        {{" a", {7, 4}, " a"}, {"a  a", {5, 7, 4}, "a  a"}, {"  ", {3, 7}, "  "}});
  check(*sentencepiece(kUnigram, pieces() + piece("a▁", -1, 1), number(24, 1)),
        {{"a b", {10, 6, 3}, "a b "}, {"x<u>ab", {0, 8, 9, 3}, " ⁇ <u>ab "}});
  check(*sentencepiece(kUnigram, pieces() + bytes(), byte_fallback, keeps_spaces + no_prefix),
        {{" a", {5}, " a"}, {"<s>é", {70, 125, 72, 205, 179}, "<s>é"}, {"<0x41>", {70, 58, 130, 62, 59, 72}, "<0x41>"}});
  check(*sentencepiece(kBpe, pieces() + bytes(), byte_fallback, keeps_spaces),
        {{"a  a", {5, 7, 4}, "a  a"}, {"x<u>ab", {3, 130, 8, 9}, "x<u>ab"}, {"  ", {7, 3}, "  "}});
  check(*sentencepiece(kBpe, pieces() + piece(" ", -2, 1), "", keeps_spaces + number(5, 0)),
        {{"a b", {10, 4, 10, 6}, " a b"}});
  check(*sentencepiece(kWord, pieces(), "", keeps_spaces), {{"a b", {5, 0}, "a ⁇ "}, {"a  a", {5, 3, 5}, "a  a"}});
  check(*sentencepiece(kChar, pieces()), {{"a  a", {3, 4, 3, 4}, "a a"}, {"x<u>ab", {3, 0, 8, 4, 6}, " ⁇ <u>ab"}});
}

TEST_CASE("user-defined pieces in literal parts of a text are its letters, unless they are white space") {
  const auto tokenizer = sentencepiece(kUnigram, pieces() + piece("<", -4, 1) + piece("u", -4, 1) + piece(">", -4, 1), "",
                                       number(4, 0));
  const TextRange all[] = {{0, 6}};
  const auto ids = tokenizer->encode("<u>  a", {true, all});
  REQUIRE(ids.ok());
  CHECK(*ids == Ids{3, 10, 11, 12, 7, 4});
  CHECK(ids_of(*tokenizer, "<u>  a") == Ids{3, 8, 7, 4});
}

TEST_CASE("side files of a tokenizer.model add tokens, names and what stands around texts") {
  const std::string model = pieces() + bytes() + field(2, number(3, kBpe) + number(35, 1)) + field(3, number(4, 0));
  const char* const config =
      R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|end|>", "add_bos_token": true})";
  const auto added = opened({{"tokenizer.model", model},
                             {"tokenizer_config.json", config},
                             {"added_tokens.json", R"({"<|start|>": 266, "<|end|>": 267})"},
                             {"generation_config.json", R"({"eos_token_id": [267, 270, 900]})"},
                             {"config.json", R"({"vocab_size": 272})"}});
  CHECK(ids_of(*added, "<|start|>a<|end|> a", true) == Ids{266, 4, 267, 5});  // a prefix at the beginning only
  CHECK(ids_of(*added, "a", true) == Ids{5});
  CHECK(ids_of(*added, " a", true) == Ids{5});
  CHECK(added->before_text()[0] == 1);
  CHECK(added->data().eos == 267);
  CHECK(added->data().end_ids == Ids{267, 270});  // a row past the vocabulary; 900 is no row
  CHECK(added->decode(Ids{1, 266, 4, 267, 5}) == "<|start|>a a");  // no file says that it is special
  const auto listed = opened(
      {{"tokenizer.model", model},
       {"tokenizer_config.json",
        R"({"legacy": true, "added_tokens_decoder": {"266": {"content": "<|x|>", "special": false, "normalized": false}}})"},
       {"special_tokens_map.json", R"({"eos_token": "<|unread|>"})"},
       {"added_tokens.json", R"({"<|y|>": 267})"}});
  CHECK(ids_of(*listed, "a<|x|>a") == Ids{5, 266, 5});
  CHECK(listed->vocabulary_size() == 267);
  CHECK(listed->before_text().empty());
  const auto refused = hf_folder_tokenizer(
      files({{"tokenizer.model", model}, {"tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})"}}));
  CHECK(refused.status().message().find("tokenizer_class 'T5Tokenizer'") != std::string_view::npos);
  // vocab.json and tokenizer.json have side files too.
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2, "</s>": 3})";
  const auto bpe = opened({{"vocab.json", vocab},
                           {"merges.txt", "a b\n"},
                           {"tokenizer_config.json", R"({"bos_token": "</s>", "add_bos_token": true})"},
                           {"special_tokens_map.json", R"({"eos_token": {"content": "<|end|>"}})"},
                           {"added_tokens.json", R"({"<|end|>": 4})"}});
  CHECK(ids_of(*bpe, "ab<|end|>", true) == Ids{2, 4});
  CHECK(bpe->data().end_ids == Ids{4});
  CHECK(bpe->before_text()[0] == 3);
}

TEST_CASE(
    "SentencePiece's file is read under its other names, in the order of the class that the folder names") {
  const std::string model = pieces() + field(2, number(3, kUnigram)) + field(3, number(4, 0));
  for (const char* const name :
       {"spiece.model", "sentencepiece.bpe.model", "spm.model", "sentencepiece.model"}) {
    CHECK(ids_of(*opened({{name, model}}), "a  a") == ids_of(*opened({{"tokenizer.model", model}}), "a  a"));
    for (const char* const type : {"t5", "albert", "xlnet", "mbart", "camembert"}) {
      const auto refused = hf_folder_tokenizer(
          files({{name, model}, {"config.json", std::string(R"({"model_type": ")") + type + "\"}"}}));
      CHECK(refused.status().message().find("with tokenizer_class '") != std::string_view::npos);
    }
  }
  // <s> 0, <pad> 1, </s> 2, <unk> 3, the other pieces one further on, <mask> last.
  for (const auto& [side, text] :
       {std::pair("config.json", R"({"model_type": "xlm-roberta"})"),
        std::pair("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizerFast"})")}) {
    const auto shifted = opened({{"sentencepiece.bpe.model", model}, {side, text}});
    CHECK(ids_of(*shifted, "a  ab x<mask>", true) == Ids{6, 4, 10, 4, 3, 11});
    CHECK(shifted->vocabulary_size() == 12);
    CHECK(shifted->before_text()[0] == 0);
    CHECK(shifted->after_text()[0] == 2);
    CHECK(shifted->data().pad == 1);
    CHECK(shifted->decode(Ids{0, 6, 4, 10, 2}) == "a ab");
  }
  const auto other = hf_folder_tokenizer(files(
      {{"spiece.model", piece("a", 0, 1) + model}, {"config.json", R"({"model_type": "xlm-roberta"})"}}));
  CHECK(other.status().message().find("XLMRobertaTokenizer") != std::string_view::npos);
}

TEST_CASE("a sentencepiece model goes to its own file and back") {
  const std::string model = pieces() + bytes() + field(2, number(3, kUnigram) + number(35, 1)) + field(3, number(4, 0));
  for (const char* const config : {"", R"({"legacy": false, "eos_token": "<|end|>", "add_eos_token": true})"}) {
    std::map<std::string, std::string> folder = {{"tokenizer.model", model}};
    if (*config) folder["tokenizer_config.json"] = config;
    const auto tokenizer = opened(folder);
    const auto file = write_sentencepiece_file(tokenizer->data());
    const auto side = sentencepiece_side_file(tokenizer->data());
    REQUIRE(file.ok());
    REQUIRE(side.ok());
    CHECK(side->empty() == !*config);
    folder = {{"tokenizer.model", *file}};
    if (!side->empty()) folder["tokenizer_config.json"] = side->dump();
    const auto again = opened(folder);
    CHECK(again->data().tokens == tokenizer->data().tokens);
    CHECK(again->data().pipeline == tokenizer->data().pipeline);
    CHECK(again->data().eos == tokenizer->data().eos);
    CHECK(again->after_text().size() == tokenizer->after_text().size());
  }
}

TEST_CASE("tokens are added with the next ids, in every kind") {
  const std::vector<std::string> texts = {"<|x|>", "<|y|>"};
  const auto added = [&](const Tokenizer& to, bool special = true) {
    const auto data = with_added_tokens(to.data(), texts, special);
    REQUIRE_MESSAGE(data.ok(), data.status().to_string());
    const auto made = Tokenizer::create(*data);
    REQUIRE_MESSAGE(made.ok(), made.status().to_string());
    return *made;
  };
  const auto model = added(*sentencepiece(kUnigram, pieces()));
  CHECK(ids_of(*model, "a<|x|>", true) == Ids{5, 10});
  CHECK(model->decode(Ids{5, 10, 11}) == "a");
  const auto text = added(*sentencepiece(kBpe, pieces(), "", number(4, 0)), false);
  CHECK(ids_of(*text, "a<|y|>") == Ids{5, 11});
  CHECK(text->decode(Ids{5, 11}) == "a<|y|>");
  const auto plain = added(**Tokenizer::create(TokenizerData{}));
  CHECK(ids_of(*plain, "a<|x|>", true) == Ids{'a', 256});
  const auto bpe = added(*opened({{"vocab.json", R"({"a": 0, "b": 1, "ab": 2})"}, {"merges.txt", "a b\n"}}));
  CHECK(ids_of(*bpe, "ab<|y|>", true) == Ids{2, 4});
  const auto known = with_added_tokens(bpe->data(), std::vector<std::string>{"ab"}, true);
  CHECK(known.status().message().find("has the token ab already, with id 2") != std::string_view::npos);
}
