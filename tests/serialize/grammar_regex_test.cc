// Regular expressions: the same texts match as with PCRE2, and what is not regular is refused by name.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/serialize/grammar_support.h"
#include "tests/serialize/pcre_reference.h"

namespace tessera::grammar {
namespace {

using testing::below;
using testing::Matcher;
using testing::PcreReference;
using testing::Random;

std::string random_pattern(Random& random, int depth) {
  static const std::vector<std::string> kAtoms = {
      "a",   "b",    "c",    "1",      "é",         "日",    ".",   "\\d",    "\\w",    "\\s", "\\D",
      "\\W", "[ab]", "[^a]", "[a-c1]", "[^\\d\\s]", "\\x61", "\\.", "[é-日]", "[\\w-]", "\\S", "[^b-é]"};
  std::string pattern;
  for (size_t i = 0, parts = below(random, 4); i < parts; ++i) {
    const size_t kind = below(random, 10);
    if (kind < 7 || depth == 0) {
      pattern += kAtoms[below(random, kAtoms.size())];
    } else if (kind == 7) {
      pattern += "(?:" + random_pattern(random, depth - 1) + ")";
    } else {
      pattern += "(" + random_pattern(random, depth - 1) + "|" + random_pattern(random, depth - 1) + ")";
    }
    static const std::vector<std::string> kCounts = {"*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "*?"};
    if (below(random, 3) == 0) pattern += kCounts[below(random, kCounts.size())];
  }
  if (depth > 0 && below(random, 5) == 0) pattern += "|" + random_pattern(random, depth - 1);
  return pattern;
}

std::string random_letters(Random& random) {
  static const std::vector<std::string> kLetters = {"a", "b",  "c", "1", "é", "日",
                                                    " ", "\n", ".", "-", "_", "😀"};
  std::string text;
  for (size_t i = 0, size = below(random, 7); i < size; ++i)
    text += kLetters[below(random, below(random, 2) ? 4 : kLetters.size())];
  return text;
}

std::string error(std::string_view pattern) {
  const auto made = Grammar::from_regex(pattern);
  REQUIRE_FALSE_MESSAGE(made.ok(), pattern);
  return made.status().to_string();
}

Matcher matcher(std::string_view pattern) { return Matcher(test::ok(Grammar::from_regex(pattern))); }

}  // namespace

TEST_CASE("regex_random_patterns_match_the_same_texts_as_with_pcre2") {
  Random random(1);
  size_t matched = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string pattern = random_pattern(random, 3);
    const PcreReference reference(pattern);
    const Matcher ours = matcher(pattern);
    // Texts at random, and ones that match.
    const auto cache =
        std::make_shared<MaskCache>(test::ok(Grammar::from_regex(pattern)), testing::made_vocabulary(100, 1));
    for (int k = 0; k < 20; ++k) {
      const std::string text = k < 15 ? random_letters(random) : testing::random_text(cache, random, 4);
      const int expected = reference.matches(text);
      if (expected < 0) continue;
      matched += expected;
      CHECK_MESSAGE(ours.matches(text) == (expected == 1), pattern << " on '" << text << "'");
    }
  }
  CHECK(matched > 3000);
}

TEST_CASE("regex_counted_repetitions_match_the_same_texts_as_with_pcre2") {
  for (const char* pattern :
       {"a{100}", "a{0,100}", "(?:ab|a){70,90}b", "a{70,}", "(?:a{3,40}b){30,35}", "(?:a{30,40}){30,40}",
        "(?:\\w{50}|a{51}){3}", "a{99}b{0,99}a{1,99}", "(?:a|b){64,65}", "x(?:[^a]{80}a)*"}) {
    const PcreReference reference(pattern);
    const Matcher ours = matcher(pattern);
    Random random(2);
    std::vector<std::string> texts;
    for (size_t size = 0; size < 260; size += size < 120 ? 1 : 9) texts.push_back(std::string(size, 'a'));
    for (const size_t size : {899, 900, 901, 1560, 1600, 1601}) texts.push_back(std::string(size, 'a'));
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (size_t k = 0, runs = 1 + below(random, 60); k < runs; ++k)
        text += std::string(below(random, 45), 'a') + (below(random, 2) ? "b" : "");
      texts.push_back(text.substr(0, below(random, 2) ? 90 : text.size()));
    }
    for (const std::string& text : texts)
      if (const int expected = reference.matches(text); expected >= 0)
        CHECK_MESSAGE(ours.matches(text) == (expected == 1),
                      pattern << " on " << text.size() << " bytes " << text);
  }
}

TEST_CASE("regex_anchors_at_the_ends_are_taken_and_others_refused") {
  CHECK(matcher("^ab$").matches("ab"));
  CHECK(matcher("^a|b$|").matches("b"));
  CHECK(matcher("").matches(""));
  CHECK(error("a^b") ==
        "unsupported: regular expression, byte 1: anchors within an expression ('^' after its beginning) are "
        "not supported");
  CHECK(error("(^a)").find("byte 1: anchors within") != std::string::npos);
  CHECK(error("a$b").find("byte 1: anchors within") != std::string::npos);
}

TEST_CASE("regex_what_is_not_regular_is_refused_by_name") {
  const std::pair<const char*, const char*> kCases[] = {{"(?=a)", "byte 0: look-ahead is not supported"},
                                                        {"a(?!b)", "byte 1: look-ahead is"},
                                                        {"(?<=a)b", "byte 0: look-behind is"},
                                                        {"(a)\\1", "byte 3: back-references are"},
                                                        {"\\ba", "byte 0: word boundaries"},
                                                        {"\\p{L}", "byte 0: classes of Unicode properties"},
                                                        {"(?>a)", "byte 0: groups other than"},
                                                        {"(?i)a", "byte 0: groups other than"},
                                                        {"a++", "byte 1: possessive"},
                                                        {"[[:alpha:]]", "byte 1: named classes"},
                                                        {"\\A", "anchors other than"}};
  for (const auto& [pattern, wanted] : kCases) {
    const std::string message = error(pattern);
    CHECK_MESSAGE(message.find(wanted) != std::string::npos, message);
    CHECK(message.starts_with("unsupported: regular expression, "));
  }
}

TEST_CASE("regex_errors_say_what_was_found_and_wanted") {
  const std::pair<const char*, const char*> kCases[] = {
      {"(a", "byte 0: found '(', wanted the ')' of the group that begins here"},
      {"a)", "byte 1: found ')', wanted '(' before this ')', or '\\)'"},
      {"[a", "byte 0: found '[', wanted the ']' of the class that begins here"},
      {"*a", "byte 0: found '*', wanted something to repeat before it, or '\\*'"},
      {"a{2", "byte 3: found the end, wanted '}' or ','"},
      {"a{3,2}", "byte 1: found '{', wanted bounds in ascending order"},
      {"a**", "byte 2: found '*', wanted no second repetition"},
      {"a{x}", "byte 2: found 'x', wanted a number of repetitions"},
      {"a{99999999}", "byte 2: found '9', wanted a number of at most 16777216"},
      {"[b-a]", "byte 1: found 'b', wanted a range in ascending order"},
      {"\\y", "byte 1: found 'y', wanted one of"},
      {"\\x6", "byte 3: found the end, wanted 2 hexadecimal digits"},
      {"\\ud800", "byte 0: found '\\', wanted both surrogates"},
      {"[]", "byte 1: found ']', wanted a character of the class"},
      {"a\xFF", "byte 1 is not UTF-8"},
      {"\\", "byte 1: found the end, wanted what is escaped"}};
  for (const auto& [pattern, wanted] : kCases) {
    CHECK_MESSAGE(error(pattern).find(wanted) != std::string::npos, error(pattern));
    CHECK(error(pattern).starts_with("invalid_argument: regular expression"));
  }
  CHECK(error("[^\\d\\D]") ==
        "invalid_argument: regular expression: no text matches: each contradicts itself or never ends");
}

TEST_CASE("regex_patterns_that_blow_up_elsewhere_do_not") {
  const std::string letters(3000, 'a');
  CHECK(matcher("(a*)*b").matches(letters + "b"));
  CHECK_FALSE(matcher("(a*)*b").matches(letters));
  CHECK(matcher("(a|aa)+").matches(letters));
  CHECK(matcher("(a|a?)+").matches(letters));
  CHECK(matcher("(a?){50}a{50}").matches(letters.substr(0, 60)));
  CHECK(matcher("(((a*)*)*)*").matches(letters));
  CHECK(matcher("((a{1,1000}){1,1000}){1,10}").matches(letters));
  CHECK(error("(a?){1,9999}").find("what may be empty is repeated 1 to 9999 times") != std::string::npos);
  CHECK(error(std::string(1'000'000, 'a')).find("it has 1000000 bytes, wanted at most 65536") !=
        std::string::npos);
  CHECK(matcher(std::string(65536, 'a')).accepted(letters) == 3000);
  CHECK(
      error(std::string(5000, '(') + std::string(5000, ')')).find("more than 50 groups within each other") !=
      std::string::npos);
  std::string nested = "a";
  for (int i = 0; i < 45; ++i) nested = "(" + nested + "){2}";
  CHECK_FALSE(Grammar::from_regex(nested + "{2000000}").ok());
}

}  // namespace tessera::grammar
