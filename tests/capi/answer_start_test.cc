// What a model may write before an answer that a grammar limits, by the template's marks and the tokens that they begin with.
#include "engine/serving/texts/answer_start.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "engine/sampling/chat.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

// Bytes, and control tokens behind them.
std::shared_ptr<const Tokenizer> tokenizer_with(const std::vector<std::string>& tokens, TokenType type) {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "t", "<"};
  data.types = {TokenType::kUnknown, TokenType::kNormal, TokenType::kUserDefined};
  data.unknown = 0;
  for (const std::string& token : tokens) {
    data.tokens.push_back(token);
    data.types.push_back(type);
  }
  data.scores.assign(data.tokens.size(), 0);
  return ok(Tokenizer::create(std::move(data)));
}

std::string template_of(const std::string& open, const std::string& close) {
  return "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}{# " + open + " " +
         close + " #}{% if add_generation_prompt %}<|turn>model\n{% endif %}";
}

}  // namespace

TEST_CASE("reasoning begins with the token that its mark begins with") {
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined}) {
    const auto channels = tokenizer_with({"<|chan", "<|channel>", "<channel|>", "<|turn>", "<turn|>"}, type);
    const auto chat = ok(Chat::create(template_of("<|channel>thought", "<channel|>"), channels));
    REQUIRE(chat->answer_form().reasoning.size() == 1);
    const AnswerStart open = AnswerStart::of(*chat, "<|turn>user\nHi<turn|>\n<|turn>model\n", false);
    CHECK(open.open_token == 4);  // not the shorter one before it
    CHECK(open.close == "<channel|>");
    CHECK(open.until.empty());
    const AnswerStart begun = AnswerStart::of(*chat, "<|turn>model\n<|channel>thought\n", false);
    CHECK(begun.until == "<channel|>");
    const AnswerStart off = AnswerStart::of(*chat, "<|turn>model\n<|channel>thought\n<channel|>", false);
    CHECK(off.open_token == -1);
    CHECK(off.until.empty());

    const auto whole =
        ok(Chat::create(template_of("<think>", "</think>"), tokenizer_with({"<think>", "</think>"}, type)));
    CHECK(AnswerStart::of(*whole, "<|turn>model\n", false).open_token == 3);
    // A token that is a part of no mark opens nothing.
    const auto none = ok(
        Chat::create(template_of("<think>", "</think>"), tokenizer_with({"</think>", "<thinking>"}, type)));
    CHECK(AnswerStart::of(*none, "<|turn>model\n", false).open_token == -1);
  }
}

}  // namespace tessera
