// constrained_text: grammars as a command, which constraints.py compares with others. A line of standard input is a JSON
// object {"kind": "json_schema" | "regex" | "gbnf", "source", "texts", "walks", "seed", "tokens"}, a line of standard
// output {"accepted": [whether each text is allowed], "texts": [that random tokens gave]}, or {"error"}. tokens: a
// vocabulary besides the bytes.
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/constraint.h"
#include "text/grammar/grammar.h"
#include "text/json.h"

using namespace tessera;

namespace {

using grammar::Constraint;
using grammar::Grammar;
using grammar::MaskCache;
using grammar::TokenBytes;

Result<Grammar::Shared> make_grammar(const std::string& kind, const std::string& source) {
  if (kind == "regex") return Grammar::from_regex(source);
  if (kind == "gbnf") return Grammar::from_gbnf(source);
  return Grammar::from_json_schema(source);
}

bool is_accepted(Constraint constraint, const std::string& text) {
  for (const char each : text)
    if (!constraint.accept(static_cast<unsigned char>(each)).ok()) return false;
  return constraint.can_end();
}

// Tokens at random; after some, those that end something. Empty where the text goes on.
Result<std::string> random_text(const std::shared_ptr<MaskCache>& cache, std::mt19937& random) {
  constexpr int kMost = 3000;
  const int enough = 10 + static_cast<int>(random() % 200);
  Constraint constraint(cache);
  std::vector<uint32_t> mask(constraint.mask_words());
  std::string text;
  for (int step = 0; step < kMost; ++step) {
    TSR_RETURN_IF_ERROR(constraint.write_allowed(mask));
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < cache->tokens().vocabulary_size(); ++id)
      if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
    int32_t id = ids[std::uniform_int_distribution<size_t>(0, ids.size() - 1)(random)];
    if ((step > enough && random() % 4 != 0) || random() % 8 == 0)
      for (const int32_t closing : {256, int32_t{'"'}, int32_t{'}'}, int32_t{']'}})
        if (mask[static_cast<size_t>(closing) / 32] >> (closing % 32) & 1) {
          id = closing;
          break;
        }
    TSR_RETURN_IF_ERROR(constraint.accept(id));
    if (constraint.has_ended()) return text;
    text += cache->tokens().bytes(id);
  }
  return std::string();
}

Result<Json> answer(const std::string& line) {
  TSR_ASSIGN_OR_RETURN(const Json asked, parse_json(line, "a request"));
  TSR_ASSIGN_OR_RETURN(const Grammar::Shared made, make_grammar(asked.at("kind"), asked.at("source")));
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  vocabulary.emplace_back();  // ends the text
  for (const Json& token : asked.value("tokens", Json::array()))
    vocabulary.push_back(token.get<std::string>());
  TSR_ASSIGN_OR_RETURN(auto tokens, TokenBytes::create(std::move(vocabulary), {256}));
  const auto cache = std::make_shared<MaskCache>(made, std::move(tokens));
  Json accepted = Json::array(), texts = Json::array();
  const Json given = asked.value("texts", Json::array());
  for (const Json& text : given) accepted.push_back(is_accepted(Constraint(cache), text.get<std::string>()));
  std::mt19937 random(asked.value("seed", 0u));
  for (int i = asked.value("walks", 0); i > 0; --i) {
    TSR_ASSIGN_OR_RETURN(const std::string text, random_text(cache, random));
    if (!text.empty()) texts.push_back(text);
  }
  return Json{{"accepted", std::move(accepted)}, {"texts", std::move(texts)}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> answered = answer(line);
    std::cout << dump(answered.ok() ? answered.value() : Json{{"error", answered.status().to_string()}})
              << std::endl;
  }
  return 0;
}
