// Grammars from anyone: mutants and deep, large or endless ones are an error or a grammar, never a crash, on a thread with
// the stack size of the library's threads.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/base/thread.h"
#include "tests/serialize/schema_samples.h"

namespace tessera::grammar {
namespace {

using testing::below;
using testing::Random;

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

// The result of a grammar: "ok", or the code of its error. Also accepts up to 8 random allowed tokens.
std::string outcome(Result<Grammar::Shared> grammar, Random& random) {
  if (!grammar.ok()) return std::string(status_code_name(grammar.status().code()));
  Constraint constraint(std::make_shared<MaskCache>(*grammar, testing::byte_vocabulary()));
  std::vector<uint32_t> mask(constraint.mask_words());
  for (int i = 0; i < 8 && !constraint.has_ended(); ++i) {
    if (const Status status = constraint.write_allowed(mask); !status.ok())
      return std::string(status_code_name(status.code()));
    const auto ids = testing::ids_of(mask);
    if (ids.empty()) return "no token";
    if (const Status status = constraint.accept(ids[below(random, ids.size())]); !status.ok())
      return "refused: " + std::string(status.message());
  }
  return "ok";
}

bool is_expected(const std::string& outcome) {
  return outcome == "ok" || outcome == "invalid_argument" || outcome == "unsupported";
}

void mutate(std::string& text, Random& random, const std::vector<std::string>& pieces) {
  for (size_t k = 1 + below(random, 4); k-- > 0;) {
    const size_t at = below(random, text.size() + 1);
    switch (below(random, 4)) {
      case 0: text.insert(at, pieces[below(random, pieces.size())]); break;
      case 1: text.erase(at, below(random, 6)); break;
      case 2: text.insert(at, text.substr(below(random, text.size() + 1), below(random, 30))); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(below(random, 256));
    }
  }
}

void on_small_stack(const std::function<void()>& body) { Thread(body).join(); }

}  // namespace

TEST_CASE("hostile_mutants_of_grammars_never_crash") {
  const std::vector<std::string> kRegexPieces = {"(",      ")",   "[",   "]",   "{", "}", "*",
                                                 "+",      "?",   "|",   "\\",  "^", "$", "-",
                                                 "{9999}", "(?:", "\\u", "\\d", "é", "[^"};
  const std::vector<std::string> kGbnfPieces = {"root", "::=",    "\n", "\"", "[",   "]", "(", ")", "*",
                                                "|",    "{2,70}", "a",  "#",  "\\x", ".", "^", "<"};
  const std::vector<std::string> kSchemaPieces = {"{}",
                                                  "[]",
                                                  "true",
                                                  "false",
                                                  "null",
                                                  "1e99",
                                                  "-1",
                                                  "\"$ref\":\"#\",",
                                                  "\"type\":\"object\",",
                                                  "\"allOf\":[",
                                                  "]",
                                                  "\"oneOf\":",
                                                  "\"minItems\":9,",
                                                  "\"required\":[\"a\"],",
                                                  "\"items\":",
                                                  "\"const\":",
                                                  ","};
  const std::vector<std::string> kGbnf = {
      "root ::= (item (\",\" ws item)*)? end\nitem ::= [a-z]+ | \"\\\"\" [^\"\\\\]{0,3} \"\\\"\" | num\nnum "
      "::= \"-\"? [0-9]{1,3}\nws ::= \" \"?\nend ::= \"!\" | .",
      "root ::= \"a\" root \"b\" | x{3,90}\nx ::= \"[\" x* \"]\" | [^é-日]"};
  Random random(11);
  size_t fine = 0;
  const auto count = [&](const std::string& source, const std::string& found) {
    CHECK_MESSAGE(is_expected(found), source << "\n" << found);
    fine += found == "ok";
  };
  for (int i = 0; i < 6000; ++i) {
    std::string pattern = "^(?:[a-z]{1,40},){1,40}(\\d|[^\\w-]*?)+$|(é|日){3}.x";
    mutate(pattern, random, kRegexPieces);
    count(pattern, outcome(Grammar::from_regex(pattern), random));
    std::string grammar = kGbnf[below(random, kGbnf.size())];
    mutate(grammar, random, kGbnfPieces);
    count(grammar, outcome(Grammar::from_gbnf(grammar), random));
  }
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::string schema = dump(testing::SchemaSamples(seed + 9000).schema());
    mutate(schema, random, kSchemaPieces);
    count(schema, outcome(Grammar::from_json_schema(schema), random));
  }
  CHECK(fine > 1000);
}

TEST_CASE("hostile_depth_is_an_error_on_a_small_stack") {
  on_small_stack([] {
    Random random(12);
    const auto refused = [&](Result<Grammar::Shared> grammar) {
      const std::string found = outcome(std::move(grammar), random);
      CHECK_MESSAGE((found == "unsupported" || found == "invalid_argument"), found);
    };
    for (const size_t depth : {101u, 1000u, 20000u}) {
      refused(Grammar::from_regex(repeated("(", depth) + "a" + repeated(")", depth)));
      refused(Grammar::from_gbnf("root ::= " + repeated("(", depth) + "\"a\"" + repeated(")", depth)));
      refused(Grammar::from_json_schema(repeated("{\"items\":", depth) + "true" + repeated("}", depth)));
      refused(Grammar::from_json_schema(repeated("[", depth)));
    }
    refused(Grammar::from_gbnf("root ::= \"a\"" + repeated("?", 100000)));
    CHECK(outcome(Grammar::from_gbnf("root ::= \"a\"" + repeated("{2,3}", 100000)), random) ==
          "ok");  // each repetition becomes a rule, so nesting costs no depth
    refused(Grammar::from_regex(std::string(1'000'000, '(')));
    refused(Grammar::from_gbnf(std::string(2'000'000, 'a')));
    refused(Grammar::from_json_schema("\"" + std::string(1'000'000, 'a') + "\""));
    // At the largest allowed depth.
    CHECK(outcome(Grammar::from_gbnf("root ::= \"a\"" + repeated("?", 240)), random) == "ok");
    const auto positions = [](size_t count) {
      return "{\"prefixItems\":[true" + repeated(",{}", count - 1) + "]}";
    };
    CHECK(outcome(Grammar::from_json_schema(positions(100)), random) == "ok");
    refused(Grammar::from_json_schema(positions(5000)));
    CHECK(outcome(Grammar::from_regex(repeated("(a|", 50) + "a" + repeated(")*", 50)), random) == "ok");
    CHECK(outcome(Grammar::from_json_schema(repeated("{\"items\":", 63) + "{}" + repeated("}", 63)),
                  random) == "ok");
    CHECK(outcome(Grammar::from_json_schema(repeated("{\"properties\":{\"a\":", 31) +
                                            "{\"type\":[\"null\",\"string\"]}" + repeated("}}", 31)),
                  random) == "ok");
    CHECK(outcome(Grammar::from_json_schema(repeated("{\"allOf\":[{},{\"items\":", 20) + "true" +
                                            repeated("}]}", 20)),
                  random) == "ok");
    CHECK(outcome(Grammar::from_json_schema("{\"const\":" + repeated("[", 60) + repeated("]", 60) + "}"),
                  random) == "ok");
  });
}

TEST_CASE("hostile_text_nests_as_deep_as_it_likes") {
  on_small_stack([] {
    const auto cache = std::make_shared<MaskCache>(test::ok(Grammar::json()), testing::byte_vocabulary());
    Constraint constraint(cache);
    for (int i = 0; i < 100'000; ++i) REQUIRE(constraint.accept('[').ok());
    CHECK(testing::mask_of(constraint) != std::vector<uint32_t>(constraint.mask_words()));
    for (int i = 0; i < 100'000; ++i) REQUIRE(constraint.accept(']').ok());
    CHECK(constraint.must_end());
    // Recursion at a rule's end takes no stack at all.
    Constraint list(std::make_shared<MaskCache>(test::ok(Grammar::from_gbnf("root ::= \"a\" root | \"\"")),
                                                testing::byte_vocabulary()));
    for (int i = 0; i < 100'000; ++i) REQUIRE(list.accept('a').ok());
    CHECK(list.can_end());
  });
}

TEST_CASE("hostile_grammars_of_many_rules_are_linear") {
  Random random(13);
  std::string chain = "root ::= r0\n", backwards = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i) chain += format("r{} ::= r{}? \"a\"?\n", i, i + 1);
  for (int i = 20000; i-- > 0;) backwards += format("r{} ::= r{} | \"a\"\n", i, i + 1);
  CHECK(outcome(Grammar::from_gbnf(chain + "r20000 ::= \"b\""), random) ==
        "unsupported");  // ambiguous: 20000 rules at once
  CHECK(outcome(Grammar::from_gbnf(backwards + "r20000 ::= \"b\" r20000 | \"\""), random) == "unsupported");
  std::string loop = "root ::= r0 \"x\"\n";
  for (int i = 0; i < 20000; ++i) loop += format("r{} ::= r{} \"b\" | \"a\"\n", i, (i + 1) % 20000);
  CHECK(outcome(Grammar::from_gbnf(loop), random) == "unsupported");
  std::string endless = "root ::= \"a\" r0\n";
  for (int i = 0; i < 20000; ++i) endless += format("r{} ::= \"b\" r{}\n", i, (i + 1) % 20000);
  CHECK(outcome(Grammar::from_gbnf(endless), random) == "invalid_argument");
  CHECK(outcome(Grammar::from_gbnf("root ::= \"\""), random) == "ok");
  // Each level refers to the next twice. As separate rules (anyOf) this is linear; merged (allOf) it is
  // exponential and refused.
  std::string doubling = "{\"$ref\":\"#/$defs/0\",\"$defs\":{",
              merged = "{\"$ref\":\"#/$defs/0\",\"$defs\":{";
  for (int i = 0; i < 30; ++i) {
    doubling +=
        format("\"{}\":{\"items\":{\"anyOf\":[{\"$ref\":\"#/$defs/{}\"},{\"$ref\":\"#/$defs/{}\"}]}},", i,
               i + 1, i + 1);
    merged +=
        format("\"{}\":{\"allOf\":[{\"$ref\":\"#/$defs/{}\"},{\"$ref\":\"#/$defs/{}\"}]},", i, i + 1, i + 1);
  }
  CHECK(outcome(Grammar::from_json_schema(doubling + "\"30\":{}}}"), random) == "ok");
  CHECK(outcome(Grammar::from_json_schema(merged + "\"30\":{}}}"), random) == "unsupported");
  std::string properties = "{\"properties\":{";
  for (int i = 0; i < 5000; ++i) properties += format("\"p{}\":{},", i, "{\"type\":\"string\"}");
  CHECK(outcome(Grammar::from_json_schema(properties + "\"z\":{}},\"additionalProperties\":true}"), random) ==
        "ok");
}

TEST_CASE("hostile_grammars_may_not_count_without_end") {
  Random random(14);
  CHECK(outcome(Grammar::from_json_schema(R"({"type":"string","minLength":16000000,"maxLength":16000001})"),
                random) == "ok");
  CHECK(outcome(Grammar::from_regex("((a{1000}){1000}){1000}"), random) == "ok");
  CHECK(outcome(Grammar::from_regex(repeated("(", 12) + "ab?c" + repeated("){2}", 12)), random) == "ok");
  CHECK(outcome(Grammar::from_regex("(.*a.*){200}"), random) == "ok");
  CHECK(outcome(Grammar::from_regex(repeated(".*a", 2000)), random) == "ok");
}

}  // namespace tessera::grammar
