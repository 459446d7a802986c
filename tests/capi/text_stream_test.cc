// Stop texts in streams of tokens, against a search by definition.
#include "engine/sampling/text_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/sampling/stop_automaton.h"
#include "text/jinja/text.h"

using namespace tessera;

namespace {

// The definition: every stop text is searched in all that came so far, token by token.
struct NaiveStream {
  std::vector<std::string> stop;
  std::string all;
  size_t given = 0;
  bool stopped = false;

  // How much of the end of `all` may still become part of a stop text, or of a character.
  size_t held() const {
    size_t keep = 0;
    for (const std::string& text : stop)
      for (size_t length = 1; length < text.size() && length <= all.size(); ++length)
        if (all.ends_with(text.substr(0, length))) keep = std::max(keep, length);
    for (size_t back = 1; back <= 3 && back <= all.size(); ++back) {
      const auto byte = static_cast<unsigned char>(all[all.size() - back]);
      if (byte < 0x80) break;
      const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 0;
      if (length > 0) {
        if (length > back) keep = std::max(keep, back);
        break;
      }
    }
    return keep;
  }
  std::string add(const std::string& bytes) {
    if (stopped) return {};
    all += bytes;
    size_t first = std::string::npos;
    for (const std::string& text : stop) first = std::min(first, all.find(text));
    stopped = first != std::string::npos;
    const size_t end = std::max(given, stopped ? first : all.size() - held());
    const std::string out = all.substr(given, end - given);
    given = end;
    return out;
  }
};

std::string random_text(std::mt19937& random, size_t characters) {
  static const char* const kAlphabet[] = {"a", "b", "ab", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kAlphabet[random() % std::size(kAlphabet)];
  return text;
}

}  // namespace

TEST_CASE(
    "stops that overlap, in characters that tokens split, are found where a search by definition finds "
    "them") {
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    NaiveStream naive;
    const size_t stops = random() % 6;
    for (size_t i = 0; i < stops; ++i)
      naive.stop.push_back(random_text(random, 1 + random() % (i == 0 ? 9 : 5)));
    TextStream stream(naive.stop);
    const std::string text = random_text(random, random() % 40);
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(text.size() - at, 1 + random() % 6);
      const std::string token = text.substr(at, size), wanted = naive.add(token);
      at += size;
      REQUIRE(stream.add(token) == wanted);
      REQUIRE(stream.stopped() == naive.stopped);
    }
    found += naive.stopped ? 1 : 0;
    REQUIRE(stream.finish() == (naive.stopped ? "" : naive.all.substr(naive.given)));
  }
  CHECK(found > 500);
  CHECK(found < 2500);
}

TEST_CASE("text is held back exactly as long as a stop text may still come") {
  TextStream stream({"abcabd", "bca"});
  CHECK(stream.add("xab") == "x");
  CHECK(stream.add("c") == "");      // abc: of the first stop
  CHECK(stream.add("c") == "abcc");  // of none
  CHECK(stream.add("b") == "");
  CHECK(stream.add("cd") == "bcd");
  CHECK(stream.add("abca") == "a");  // the second stop ends here, before the first is complete
  CHECK(stream.stopped());
  TextStream ended({"ab"});
  CHECK(ended.add("a") == "");
  CHECK(ended.finish() == "a");
  CHECK(ended.add("b") == "b");  // what was given back is no part of a later stop
}

TEST_CASE("stop texts are found in the letters of hidden tokens, which are no part of the text") {
  TextStream stream({"<|a|>\n", "x<|b|>"});
  CHECK(stream.add("one") == "one");
  CHECK(stream.add_hidden("<|c|>") == "");
  CHECK(stream.add(" two") == " two");
  CHECK(stream.add_hidden("<|a|>") == "");
  CHECK(stream.add("\xf0") == "");  // not the line's end: the token is passed, the character has begun
  CHECK(stream.add_hidden("<|a|>") == "");
  CHECK(stream.add("\x9f\x98\x80x") == "\xf0\x9f\x98\x80");
  CHECK(stream.add_hidden("<|b|>") == "");
  CHECK(stream.stopped());
  CHECK(stream.finish() == "");
  TextStream before({"<|a|>"});
  CHECK(before.add("ab<|") == "ab");
  CHECK(before.add_hidden("<|a|>") == "<|");
  CHECK(before.stopped());
}

TEST_CASE("what is no character is held and replaced by its maximal parts") {
  const std::pair<const char*, const char*> cases[] = {
      {"a\xf0", "a?"},      {"a\xf0" "b", "a?b"},        {"\x80\x81z", "??z"},     {"\xf0\x9fhi", "?hi"},
      {"\xc0\xafx", "??x"}, {"\xed\xa0\x80x", "???x"}, {"\xf0\x80\x80", "???"}, {"\xf4\x90\x80", "???"},
      {"\xe2\x82", "?"},    {"\xe2\x82\xac", "\xe2\x82\xac"}};
  for (const auto& [bytes, wanted] : cases) {
    TextStream stream({});
    std::string text;
    for (const char byte : std::string(bytes)) text += tessera::jinja::valid_utf8(stream.add(std::string(1, byte)));
    text += tessera::jinja::valid_utf8(stream.finish());
    for (size_t at; (at = text.find("\xef\xbf\xbd")) != std::string::npos;) text.replace(at, 3, "?");
    CHECK(text == wanted);
  }
}

TEST_CASE("streams share an automaton, and each has a state of its own") {
  const auto stops = std::make_shared<const StopAutomaton>(std::vector<std::string>{"ab"});
  TextStream one = TextStream::sharing(stops), other = TextStream::sharing(stops),
             none = TextStream::sharing(nullptr);
  CHECK(one.add("a") == "");
  CHECK(other.add("b") == "b");
  CHECK(none.add("ab") == "ab");
  CHECK(one.add("b") == "");
  CHECK(one.stopped());
  CHECK(!other.stopped());
}

TEST_CASE("of stops that one token completes, the one that begins first ends the text") {
  TextStream stream({"bc", "abcd", "c"});
  CHECK(stream.add("xabcd") == "x");
  CHECK(stream.stopped());
}

TEST_CASE("an automaton tells the longest beginning and the longest text at every byte") {
  const StopAutomaton automaton({"he", "she", "hers", "his", "she", "\xff\x01", ""});
  StopAutomaton::State state = 0;
  std::vector<size_t> begun, found;
  for (const char byte : std::string("ushers\xff\x01")) {
    state = automaton.step(state, static_cast<unsigned char>(byte));
    begun.push_back(automaton.begun_bytes(state));
    found.push_back(automaton.found_bytes(state));
  }
  CHECK(begun == std::vector<size_t>{0, 1, 2, 3, 3, 4, 1, 2});
  CHECK(found == std::vector<size_t>{0, 0, 0, 3, 0, 4, 0, 2});
}
