// Parts of tokenizer.json: each does what Hugging Face's library does, whose results these are.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer/decoders.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pre_tokenizers.h"

using namespace tessera;

namespace {

struct Case {
  const char *description, *text;
  std::vector<std::string> pieces;
};
struct DecoderCase {
  const char* description;
  std::vector<std::string> tokens;
  const char* text;
};

const Case kNormalizers[] = {
    {R"({"type": "NFC"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" H\303\251llo  W\303\266rld\011\342\221\240\357\254\201 "
      "\352\260\201\344\270\255x\342\200\213!\304\260 "}},
    {R"({"type": "NFD"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" He\314\201llo  Wo\314\210rld\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!I\314\207 "}},
    {R"({"type": "NFKC"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" H\303\251llo  W\303\266rld\0111fi \352\260\201\344\270\255x\342\200\213!\304\260 "}},
    {R"({"type": "NFKD"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" He\314\201llo  Wo\314\210rld\0111fi "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!I\314\207 "}},
    {R"({"type": "Lowercase"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" he\314\201llo  w\303\266rld\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!i\314\207 "}},
    {R"({"type": "Strip", "strip_left": true, "strip_right": true})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {"He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260"}},
    {R"({"type": "StripAccents"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" Hello  W\303\266rld\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 "}},
    {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" hello  world \342\221\240\357\254\201 \341\204\200\341\205\241\341\206\250 \344\270\255 x!i "}},
    {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": false, "lowercase": false})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" He\314\201llo  W\303\266rld \342\221\240\357\254\201 \341\204\200\341\205\241\341\206\250 "
      "\344\270\255 x!\304\260 "}},
    // Characters count as in the version of Unicode that each part of `tokenizers` has.
    {R"({"type": "NFD"})", "a\314\201\337\275", {"a\314\201\337\275"}},
    {R"({"type": "StripAccents"})", "\341\263\262\337\275a", {"\337\275a"}},
    {R"({"type": "Lowercase"})", "\352\237\213\360\220\265\220", {"\311\244\360\220\265\260"}},
    {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true})",
     "\341\242\205\340\242\220a",
     {"\341\242\205\340\242\220a"}},
    {R"({"type": "Replace", "pattern": {"String": "l"}, "content": "LL"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" He\314\201LLLLo  W\303\266rLLd\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 "}},
    {R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "_"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {"_He\314\201llo_W\303\266rld_\342\221\240\357\254\201_"
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260_"}},
    {R"({"type": "Prepend", "prepend": "\u2581"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {"\342\226\201 He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 "}},
    {R"({"type": "Nmt"})",
     " He\314\201llo  W\303\266rld\011\342\221\240\357\254\201 "
     "\341\204\200\341\205\241\341\206\250\344\270\255x\342\200\213!\304\260 ",
     {" He\314\201llo  W\303\266rld \342\221\240\357\254\201 "
      "\341\204\200\341\205\241\341\206\250\344\270\255x !\304\260 "}},
};
const Case kPreTokenizers[] = {
    {R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"\304\240Hello", ",", "\304\240it", "'s", "\304\240", "\304\24012", "\304\24034", "\304\212",
      "\303\244\302\270\305\203\303\246\304\270\304\251\303\243\304\244\302\253\303\243\304\245\304\254ABC",
      "\304\240x", "_", "y"}},
    {R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"\342\226\201Hello,", "\342\226\201it's", "\342\226\201", "\342\226\20112",
      "\342\226\20134\012\344\270\255\346\226\207\343\202\253\343\203\212ABC", "\342\226\201x_y"}},
    {R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,\342\226\201it'"
      "s\342\226\201\342\226\20112\342\226\20134\012\344\270\255\346\226\207\343\202\253\343\203\212ABC\342"
      "\226\201x_y"}},
    {R"({"type": "Digits", "individual_digits": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, it's  ", "12", " ", "34", "\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y"}},
    {R"({"type": "Digits", "individual_digits": true})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, it's  ", "1", "2", " ", "3", "4",
      "\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y"}},
    {R"({"type": "Punctuation", "behavior": "Isolated"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", ",", " it", "'", "s  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x", "_",
      "y"}},
    {R"({"type": "Punctuation", "behavior": "Isolated"})",
     "a\342\271\203b\341\231\255c",
     {"a\342\271\203b", "\341\231\255", "c"}},
    {R"({"type": "Digits", "individual_digits": false})",
     "a\360\220\265\200b\360\221\267\240",
     {"a", "\360\220\265\200", "b", "\360\221\267\240"}},
    {R"({"type": "Punctuation", "behavior": "MergedWithPrevious"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,", " it'", "s  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_", "y"}},
    {R"({"type": "Whitespace"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", ",", "it", "'", "s", "12", "34", "\344\270\255\346\226\207\343\202\253\343\203\212ABC",
      "x_y"}},
    {R"({"type": "WhitespaceSplit"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,", "it's", "12", "34", "\344\270\255\346\226\207\343\202\253\343\203\212ABC", "x_y"}},
    {R"({"type": "BertPreTokenizer"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", ",", "it", "'", "s", "12", "34", "\344\270\255\346\226\207\343\202\253\343\203\212ABC", "x",
      "_", "y"}},
    {R"({"type": "CharDelimiterSplit", "delimiter": "l"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"He", "o, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y"}},
    {R"({"type": "UnicodeScripts"})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", ", ", "it", "'", "s  ", "12 34\012", "\344\270\255\346\226\207\343\202\253\343\203\212",
      "ABC x", "_", "y"}},
    // For private use, and of later versions of Unicode: without a script.
    {R"({"type": "UnicodeScripts"})",
     "\356\200\200a\356\200\200b\325\240\320\261 \360\220\220\200\325\240c\360\220\214\255",
     {"a\356\200\200b\325\240", "\320\261 ", "\360\220\220\200\325\240", "c\360\220\214\255"}},
    {R"({"type": "FixedLength", "length": 7})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, ", "it's  1", "2 34\012\344\270\255\346\226\207", "\343\202\253\343\203\212ABC x", "_y"}},
    {R"({"type": "Split", "pattern": {"Regex": "\\d+"}, "behavior": "Removed", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, it's  ", " ", "\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y"}},
    {R"({"type": "Split", "pattern": {"Regex": "\\d+"}, "behavior": "Isolated", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, it's  ", "12", " ", "34", "\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y"}},
    {R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello, ", "it's ", " ", "12 ", "34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC ", "x_y"}},
    {R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,", " it's", " ", " 12", " 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC", " x_y"}},
    {R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Contiguous", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,", " ", "it's", "  ", "12", " ", "34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC",
      " ", "x_y"}},
    {R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Removed", "invert": true})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", "it", "s", "12", "34", "\344\270\255\346\226\207\343\202\253\343\203\212ABC", "x_y"}},
    {R"({"type": "Split", "pattern": {"Regex": "[a-z&&[^l]]+"}, "behavior": "Isolated", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"H", "e", "ll", "o", ", ", "it", "'", "s",
      "  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC ", "x", "_", "y"}},
    {R"({"type": "Split", "pattern": {"Regex": "[^\\S\\n]|\\h{2}"}, "behavior": "Isolated", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello,", " ", "it's", " ", " ", "12", " ", "34",
      "\012\344\270\255\346\226\207\343\202\253\343\203\212", "AB", "C", " ", "x_y"}},
    {R"({"type": "Split", "pattern": {"Regex": "\\b"}, "behavior": "Isolated", "invert": false})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"Hello", ", ", "it", "'", "s", "  ", "12", " ", "34", "\012",
      "\344\270\255\346\226\207\343\202\253\343\203\212ABC", " ", "x_y"}},
    {R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}]})",
     "Hello, it's  12 34\012\344\270\255\346\226\207\343\202\253\343\203\212ABC x_y",
     {"\342\226\201Hello", ",", "it", "'", "s", "12", "34",
      "\344\270\255\346\226\207\343\202\253\343\203\212ABC", "x", "_", "y"}},
};
const DecoderCase kDecoders[] = {
    {R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})",
     {"\303\203", "\302\251", "\304\240b"},
     "\303\251 b"},
    {R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true})",
     {"\342\226\201a\342\226\201", "\342\226\201b", "c"},
     "a bc"},
    {R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": true})",
     {"\342\226\201a", "\342\226\201b"},
     " a b"},
    {R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
     {"a", "##b", "n't", ".", " ##c"},
     "abn't.  ##c"},
    {R"({"type": "WordPiece", "prefix": "##", "cleanup": false})", {"a", "##b", "."}, "ab ."},
    {R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a</w>", "b", "c</w>"}, "a bc"},
    {R"({"type": "Fuse"})", {"a", "b"}, "ab"},
    {R"({"type": "Replace", "pattern": {"String": "b"}, "content": "x"})", {"ab", "ba"}, "axxa"},
    {R"({"type": "Strip", "content": "a", "start": 1, "stop": 1})", {"aba", "bab"}, "bbab"},
    {R"({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true})",
     {"a", "a", "<pad>", "a", "|", "b"},
     "aa b"},
    {R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
     {"\342\226\201a", "<0xC3>", "<0xA9>", "\342\226\201b"},
     "a\303\251 b"},
    {R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "ab"}, "content": "x"}, {"type": "Strip", "content": "x", "start": 0, "stop": 2}]})",
     {"a", "b", "ca", "b", "ab"},
     "xc"},
};

nlohmann::json parsed(const char* description) { return nlohmann::json::parse(description); }

// The pieces of a text; those of origins are written as they come from the text.
std::vector<std::string> pieces_of(const PreTokenizers& steps, size_t step, const PreToken& piece,
                                   std::string_view whole) {
  std::vector<std::string> pieces;
  if (piece.text.empty()) return pieces;
  if (step == steps.size()) {
    if (piece.origins)
      for (size_t i = 0; i < piece.text.size(); ++i) {
        CHECK(piece.origins[i] < whole.size());
        CHECK((i == 0 || piece.origins[i - 1] <= piece.origins[i]));
      }
    return {std::string(piece.text)};
  }
  const Status status = steps[step]->split(piece, [&](const PreToken& next) {
    for (std::string& each : pieces_of(steps, step + 1, next, whole)) pieces.push_back(std::move(each));
    return Status();
  });
  CHECK(status.ok());
  return pieces;
}

std::string decoded(const std::vector<MakeDecoderStep>& makes, const std::vector<std::string>& tokens) {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  for (const MakeDecoderStep& make : makes) steps.push_back(make());
  std::string text;
  std::function<void(size_t, DecodedPart)> pass = [&](size_t step, DecodedPart part) {
    if (step == steps.size()) {
      text += part.text;
    } else {
      steps[step]->add(std::move(part), [&, step](DecodedPart next) { pass(step + 1, std::move(next)); });
    }
  };
  for (const std::string& token : tokens) pass(0, {token, true, true});
  for (size_t i = 0; i < steps.size(); ++i)
    steps[i]->finish([&, i](DecodedPart part) { pass(i + 1, std::move(part)); });
  return text;
}

}  // namespace

TEST_CASE("normalizers_give_the_library's_text_and_say_where_it_comes_from") {
  for (const Case& each : kNormalizers) {
    CAPTURE(std::string(each.description));
    const auto normalizer = make_normalizer(parsed(each.description));
    REQUIRE(normalizer.ok());
    NormalizedText plain{each.text, {}, SIZE_MAX}, tracked{each.text, {}, SIZE_MAX};
    for (size_t i = 0; i <= tracked.text.size(); ++i) tracked.origins.push_back(i);
    REQUIRE((*normalizer)(plain).ok());
    REQUIRE((*normalizer)(tracked).ok());
    CHECK(plain.text == each.pieces[0]);
    CHECK(tracked.text == plain.text);
    REQUIRE(tracked.origins.size() == tracked.text.size() + 1);
    const std::string_view text = each.text;
    for (size_t i = 0; i < tracked.text.size(); ++i) {
      CHECK(tracked.origins[i] <= tracked.origins[i + 1]);
      // ASCII that stays what it is comes from itself.
      if (tracked.text[i] == '!') CHECK(text[tracked.origins[i]] == '!');
      if (tracked.text[i] == 'x') CHECK(text[tracked.origins[i]] == 'x');
    }
  }
}

TEST_CASE("pre_tokenizers_give_the_library's_pieces") {
  for (const Case& each : kPreTokenizers) {
    CAPTURE(std::string(each.description));
    const auto made = make_pre_tokenizers(parsed(each.description));
    REQUIRE(made.ok());
    const std::string_view text = each.text;
    std::vector<size_t> origins;
    for (size_t i = 0; i <= text.size(); ++i) origins.push_back(i);
    std::vector<std::string> wanted = each.pieces;
    if (made->bytes_last) {  // left to the caller
      for (std::string& piece : wanted) {
        const auto decoder = make_decoder_steps(parsed(R"({"type": "ByteLevel"})"));
        piece = decoded(*decoder, {piece});
      }
    }
    CHECK(pieces_of(made->steps, 0, {text, nullptr, true}, text) == wanted);
    CHECK(pieces_of(made->steps, 0, {text, origins.data(), true}, text) == wanted);
  }
}

TEST_CASE("decoders_give_the_library's_text") {
  for (const DecoderCase& each : kDecoders) {
    CAPTURE(std::string(each.description));
    const auto makes = make_decoder_steps(parsed(each.description));
    REQUIRE(makes.ok());
    CHECK(decoded(*makes, each.tokens) == each.text);
  }
  const auto none = make_decoder_steps(nlohmann::json());
  CHECK(decoded(*none, {"a", "b"}) == "a b");
}

TEST_CASE("parts_that_are_not_known_or_not_whole_are_named") {
  const auto reason = [](const auto& made) {
    return made.ok() ? std::string() : std::string(made.status().message());
  };
  const auto has = [&](const std::string& message, const char* words) {
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
  };
  has(reason(make_normalizer(parsed(R"({"type": "Upper"})"))), "normalizer 'Upper' is not known; known: NFC");
  has(reason(make_normalizer(parsed(R"({"type": "Prepend"})"))), "'prepend' is null, wanted a text");
  has(reason(make_normalizer(parsed(R"({"type": "Sequence"})"))), "wanted a list");
  has(reason(make_normalizer(parsed(R"({"type": "Precompiled", "precompiled_charsmap": "/////w=="})"))),
      "do not fit");
  has(reason(make_normalizer(parsed("[]"))), "'type' is null");
  has(reason(make_pre_tokenizers(parsed(R"({"type": "Split", "behavior": "Apart"})"))),
      "wanted Removed, Isolated");
  has(reason(make_pre_tokenizers(parsed(R"({"type": "Metaspace", "replacement": "ab"})"))),
      "wanted one character");
  has(reason(make_pre_tokenizers(parsed(R"({"type": "FixedLength", "length": 0})"))), "wanted 1 or more");
  has(reason(make_pre_tokenizers(
          parsed(R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "a(b"}})"))),
      "the pattern a(b cannot be run");
  has(reason(make_decoder_steps(parsed(R"({"type": "Strip", "content": " "})"))), "'start' is null");
  has(reason(make_decoder_steps(parsed(R"({"type": "Rot13"})"))), "decoder 'Rot13' is not known");
  nlohmann::json nested = nullptr;
  for (int i = 0; i < 40; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  has(reason(make_normalizer(nested)), "nest deeper than 32");
}

TEST_CASE("oniguruma's_expressions_mean_in_pcre_what_they_meant") {
  const auto matches = [](const char* expression, std::string_view text) {
    const auto pattern = Pattern::create(expression);
    CAPTURE(std::string(expression));
    REQUIRE_MESSAGE(pattern.ok(), pattern.status().to_string());
    std::vector<std::string> found;
    PatternSearch search(*pattern, text);
    while (search.next()) found.emplace_back(text.substr(search.begin(), search.end() - search.begin()));
    CHECK(search.status().ok());
    return found;
  };
  using Found = std::vector<std::string>;
  CHECK(matches(R"(\s+)", "a\xe1\xa0\x8e b\xe3\x80\x80") == Found{" ", "\xe3\x80\x80"});  // not U+180E
  CHECK(matches(R"([^\S\n]+)", "a \n b") == Found{" ", " "});
  CHECK(matches(R"(\h+)", "xyzab09 g") == Found{"ab09"});
  CHECK(matches(R"(a\vb)",
                "a\x0b"
                "b a\nb") == Found{"a\x0b"
                                   "b"});
  CHECK(matches(R"((?m:a.b))", "a\nb") == Found{"a\nb"});
  CHECK(matches(R"(a.b)", "a\nb") == Found{});
  CHECK(matches(R"(^b$)", "a\nb\nc") == Found{"b"});
  CHECK(matches(R"([a-z&&[^aeiou]]+)", "hello") == Found{"h", "ll"});
  CHECK(matches(R"([^a-z&&[b-y]]+)", "abyz1") == Found{"a", "z1"});
  CHECK(matches(R"([a[0-9]b]+)", "xa1b2c") == Found{"a1b2"});
  CHECK(matches(R"([]a]+)", "]a[") == Found{"]a"});
  CHECK(matches(R"([^\W_]+)", "ab_c!") == Found{"ab", "c"});
  CHECK(matches(R"(\p{^L}+)", "ab12") == Found{"12"});
  CHECK(matches(R"(\p{Letter}\p{Han})", "a\xe4\xb8\xad") == Found{"a\xe4\xb8\xad"});
  CHECK(matches(R"(\u0041{,2})", "AAA") == Found{"AA", "A"});
  CHECK(matches(R"((?=(\d{3})+(?!\d)))", "12345") == Found{""});
  CHECK(matches(R"(\w+)", "\xc3\xa9\xcc\x81\xe2\x91\xa0") == Found{"\xc3\xa9\xcc\x81"});
  CHECK(!Pattern::create(R"(a{1,2}+)").ok());
  CHECK(!Pattern::create("[a").ok());
  CHECK(!Pattern::create(std::string(1000, '(')).ok());
  CHECK(!Pattern::create("a\\").ok());
}

TEST_CASE("a_pattern_that_tries_too_many_ways_is_an_error") {
  for (const char* expression : {"(a+)+b", "(a|a)*b", "(a|aa)+$", "(?:a*)*c"}) {
    CAPTURE(std::string(expression));
    const auto pattern = Pattern::create(expression);
    REQUIRE(pattern.ok());
    std::string text(5000, 'a');
    text.back() = '!';
    PatternSearch search(*pattern, text);
    while (search.next()) continue;
    if (!search.status().ok()) CHECK(search.status().message().find(expression) != std::string_view::npos);
  }
  const auto pattern = Pattern::create("(a+)+b");
  std::string text(100, 'a');
  text += "cb";
  PatternSearch search(*pattern, text);
  CHECK(!search.next());
  CHECK(search.status().code() == StatusCode::kInvalidArgument);
}
