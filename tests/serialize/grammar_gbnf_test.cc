// GBNF and lists of choices: what they allow, and how others are refused.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/serialize/grammar_support.h"

namespace tessera::grammar {
namespace {

using testing::below;
using testing::Matcher;
using testing::Random;

Matcher matcher(std::string_view grammar) { return Matcher(test::ok(Grammar::from_gbnf(grammar))); }

std::string error(std::string_view grammar) {
  const auto made = Grammar::from_gbnf(grammar);
  REQUIRE_FALSE_MESSAGE(made.ok(), grammar);
  return made.status().to_string();
}

// A grammar of few rules over a, b and c, and by another way all texts of at most `most` letters that it allows: rules
// start from nothing and grow until none does.
class RandomGrammar {
 public:
  explicit RandomGrammar(Random& random) {
    for (Rule& rule : rules_)
      for (size_t i = 1 + below(random, 3); i-- > 0;) {
        std::vector<std::string> parts;
        for (size_t k = below(random, 4); k-- > 0;) {
          static const std::vector<std::string> kParts = {"\"a\"", "\"b\"", "\"c\"", "root", "r1", "r2"};
          parts.push_back(kParts[below(random, kParts.size())]);
        }
        rule.push_back(std::move(parts));
      }
  }

  std::string text() const {
    std::string text;
    for (size_t i = 0; i < 3; ++i) {
      text += std::string(kNames[i]) + " ::= ";
      for (size_t k = 0; k < rules_[i].size(); ++k) {
        if (k > 0) text += " | ";
        for (const std::string& part : rules_[i][k]) text += part + " ";
      }
      text += "\n";
    }
    return text;
  }

  std::set<std::string> texts(size_t most) const {
    std::set<std::string> of[3];
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t i = 0; i < 3; ++i)
        for (const auto& parts : rules_[i]) {
          std::set<std::string> found{""};
          for (const std::string& part : parts) {
            std::set<std::string> longer;
            const std::set<std::string> letter{part.substr(1, 1)};
            const size_t rule = part == "root" ? 0 : part == "r1" ? 1 : 2;
            for (const std::string& begin : found)
              for (const std::string& end : part[0] == '"' ? letter : of[rule])
                if (begin.size() + end.size() <= most) longer.insert(begin + end);
            found = std::move(longer);
          }
          for (const std::string& text : found) grows |= of[i].insert(text).second;
        }
    }
    return of[0];
  }

 private:
  using Rule = std::vector<std::vector<std::string>>;
  static constexpr const char* kNames[] = {"root", "r1", "r2"};
  Rule rules_[3];
};

}  // namespace

TEST_CASE("gbnf_random_grammars_allow_exactly_their_texts") {
  constexpr size_t kMost = 5;
  Random random(3);
  size_t compared = 0, recursive = 0;
  for (int i = 0; i < 1500; ++i) {
    const RandomGrammar reference(random);
    const std::string text = reference.text();
    const auto made = Grammar::from_gbnf(text);
    const std::set<std::string> expected = reference.texts(kMost);
    if (!made.ok()) {
      const std::string message = made.status().to_string();
      const bool is_left = message.find("left recursion") != std::string::npos;
      CHECK_MESSAGE((is_left || (message.find("no text matches") != std::string::npos && expected.empty())),
                    text << message);
      recursive += is_left;
      continue;
    }
    ++compared;
    const Matcher ours(*made);
    std::vector<std::string> texts{""};
    for (size_t begin = 0, size = 0; size <= kMost; ++size) {
      const size_t end = texts.size();
      for (; begin < end; ++begin) {
        CHECK_MESSAGE(ours.matches(texts[begin]) == expected.contains(texts[begin]),
                      text << "on '" << texts[begin] << "'");
        if (size < kMost)
          for (const char letter : {'a', 'b', 'c'}) texts.push_back(texts[begin] + letter);
      }
    }
  }
  CHECK(compared > 300);
  CHECK(recursive > 300);
}

TEST_CASE("gbnf_has_the_parts_of_the_language") {
  const Matcher ours = matcher(R"(# lists of llama.cpp's examples
root ::= (
    item
    ("," ws item)*
  )? end  # the end
item ::= [a-z]+ | "\"" [^"\\\n]{0,3} "\"" | num
  | "\u00e9" "\x41"{2}
num ::= "-"? [0-9]{1,3} ("." [0-9]{2,})?
ws ::= " "?
end ::= "!" | "\U0001F600" . )");
  for (const char* text :
       {"!", "abc!", "a, b,c!", "\"\"!", "\"日本x\"!", "-12!", "1.25!", "éAA!", "😀\n", "a😀日"})
    CHECK_MESSAGE(ours.matches(text), text);
  for (const char* text : {"", "a", "a,!", "\"abcd\"!", "1234!", "1.2!", "éA!", "😀", "!!", "\"\n\"!"})
    CHECK_FALSE_MESSAGE(ours.matches(text), text);
  CHECK(matcher("root ::= \"\"").matches(""));
  CHECK(matcher("root ::= a\na ::= b b\nb ::= [\\]\\[a-]*").matches("]a-["));
  CHECK(matcher("root ::= \"a\" root \"b\" | \"\"").matches("aaabbb"));
  CHECK_FALSE(matcher("root ::= \"a\" root \"b\" | \"\"").matches("aaabb"));
}

TEST_CASE("gbnf_errors_name_line_and_column") {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "found no rule 'root'"},
      {"a ::= \"x\"", "found no rule 'root'"},
      {"root ::= b", "line 1, column 10: rule 'b' is not defined"},
      {"root ::= \"x", "line 1, column 10: found '\"', wanted the '\"' of the text"},
      {"root ::= \"x\n\"", "line 1, column 12: found the end of the line, wanted no end of line here"},
      {"root ::= \"x\" )", "line 1, column 14: found ')', wanted the end of the line"},
      {"root ::= (\"x\"\n", "line 1, column 10: found '(', wanted the ')'"},
      {"root ::= (\"x\"\na ::= \"b\"", "line 2, column 1: found 'a', wanted ')' before the next rule"},
      {"root = \"x\"", "line 1, column 6: found '=', wanted '::='"},
      {"root ::= [b-a]", "line 1, column 11: found 'b', wanted a range"},
      {"root ::= [a", "wanted the ']' of the class"},
      {"root ::= \"a\"{3,1}", "wanted bounds in ascending order"},
      {"root ::= \"\\q\"", "wanted one of \\t"},
      {"root ::= \"\\uD800\"", "wanted the number of a character"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: found 'r', wanted one definition of rule 'root'"},
      {"root ::= \"\xC3\"", "byte 10 is not UTF-8"},
      {"root ::= \"a\" root", "no text matches"}};
  for (const auto& [grammar, wanted] : kCases) {
    CHECK_MESSAGE(error(grammar).find(wanted) != std::string::npos, error(grammar));
    CHECK_MESSAGE(error(grammar).starts_with("invalid_argument: GBNF grammar"), error(grammar));
  }
  CHECK(error("root ::= <think>")
            .find("unsupported: GBNF grammar, line 1, column 10: tokens in grammars are not supported") == 0);
  CHECK(error("root ::= a \"x\"\na ::= b? c\nb ::= \"b\"\nc ::= root | \"c\"") ==
        "unsupported: GBNF grammar: a rule begins with itself (left recursion): 'a', then 'c', then 'root'; "
        "wanted one that matches something first, such "
        "as a repetition");
}

TEST_CASE("choices_are_the_texts_themselves") {
  const std::vector<std::string> choices = {"yes", "no", "yes, but", "日本", "no"};
  const Matcher ours(test::ok(Grammar::from_choices(choices)));
  for (const std::string& choice : choices) CHECK(ours.matches(choice));
  for (const char* text : {"", "y", "yes,", "nope", "日"}) CHECK_FALSE(ours.matches(text));
  const auto error = [](std::vector<std::string> texts) {
    return Grammar::from_choices(texts).status().to_string();
  };
  CHECK(error({}) == "invalid_argument: choices: found none, wanted at least one text");
  CHECK(error({"a", ""}) == "invalid_argument: choices: text 1 is empty");
  CHECK(error({"a", "b\xC3"}) == "invalid_argument: choices: byte 1 of text 1 is not UTF-8");
  CHECK(error({std::string(2'000'000, 'a')}).find("they have 2000000 bytes, wanted at most 1048576") !=
        std::string::npos);
  std::vector<std::string> many;
  for (int i = 0; i < 50000; ++i) many.push_back(std::to_string(i * 7919));
  CHECK(Matcher(test::ok(Grammar::from_choices(many))).matches("7919"));
}

}  // namespace tessera::grammar
