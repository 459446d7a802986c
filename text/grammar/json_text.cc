#include "text/grammar/json_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include "graph/base/text.h"
#include "text/grammar/mark_language.h"
#include "text/grammar/schema_json.h"
#include "text/grammar/source_text.h"
#include "text/grammar/string_automaton.h"

namespace tessera::grammar {
namespace {

constexpr uint32_t kMostDigits = 18;  // of an integer, so that it fits 64 bits
constexpr uint32_t kMostIndentation = 20;

bool is_escaped(uint32_t character) { return character < 0x20 || character == '"' || character == '\\'; }

std::string escape(uint32_t character) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  if (const size_t at = kNamed.find(static_cast<char>(character)); at != std::string_view::npos)
    return {'\\', kLetters[at]};
  constexpr char kHex[] = "0123456789abcdef";
  return std::string("\\u00") + kHex[character >> 4] + kHex[character & 15];
}

// Words: letters, digits, "_" and "-", of which names without quotation marks are made.
LanguageId words(Languages& languages) {
  const LanguageId first = languages.characters(CharacterSet({{'A', 'Z'}, {'a', 'z'}, {'_', '_'}}));
  const LanguageId more =
      languages.characters(CharacterSet({{'A', 'Z'}, {'a', 'z'}, {'0', '9'}, {'_', '_'}, {'-', '-'}}));
  return languages.sequence(first, languages.repeat(more, 0, kUnbounded));
}

CharacterSet unescaped() { return CharacterSet({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCharacter}}); }

CharacterSet set_of(std::string_view characters) {
  std::vector<CharacterRange> ranges;
  for (const char each : characters)
    ranges.push_back({static_cast<uint8_t>(each), static_cast<uint8_t>(each)});
  return CharacterSet(std::move(ranges));
}

}  // namespace

ExpressionId character_of(Expressions& out, const CharacterSet& set, TextForm form) {
  if (form == TextForm::kPlain) return out.characters(set);
  const CharacterSet plain = set.without(unescaped().complement());
  std::vector<std::string> escapes;
  for (uint32_t character = 0; character < 0x80; ++character)
    if (is_escaped(character) && set.contains(character)) escapes.push_back(escape(character));
  std::vector<ExpressionId> parts;
  if (!plain.is_empty()) parts.push_back(out.characters(plain));
  if (!escapes.empty()) parts.push_back(out.literals(std::move(escapes)));
  return out.choice(std::move(parts));
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string written(std::string_view text, TextForm form) {
  if (form == TextForm::kPlain) return std::string(text);
  std::string escaped;
  for (const char each : text) {
    if (const auto byte = static_cast<uint8_t>(each); is_escaped(byte))
      escaped += escape(byte);
    else
      escaped += each;
  }
  return escaped;
}

template <class Make>
ExpressionId JsonText::shared(const std::string& name, Make make) {
  const auto [found, is_new] = rules_.try_emplace(name, 0);
  if (is_new) {
    const RuleId rule = out_.declare_rule(name);
    found->second = rule;
    // An own sequence, since two rules never share an expression.
    const ExpressionId body = make();
    out_.define_rule(rule, out_.sequence({out_.empty(), body}));
    return out_.call(rule);
  }
  return out_.call(found->second);
}

ExpressionId JsonText::space() {
  if (!style_.allow_spaces) return out_.empty();
  return shared("space", [&] {
    const ExpressionId indentation = out_.repeat(out_.characters(set_of(" \t")), 0, kMostIndentation);
    return out_.optional(out_.choice({out_.literal(" "), out_.sequence({out_.literal("\n"), indentation})}));
  });
}

ExpressionId JsonText::separator() { return out_.sequence({out_.literal(","), space()}); }

ExpressionId JsonText::member(ExpressionId name, ExpressionId value) {
  return out_.sequence({name, out_.literal(":"), space(), value});
}

ExpressionId JsonText::braces(std::span<const Member> members) {
  if (members.empty()) return out_.sequence({out_.literal("{"), space(), out_.literal("}")});
  return out_.sequence(
      {out_.literal("{"), space(), out_.members(separator(), members), space(), out_.literal("}")});
}

ExpressionId JsonText::any_value() {
  return shared("value", [&] {
    return out_.choice(
        {any_object(), any_array(), string(), number(), boolean(), null()});
  });
}

ExpressionId JsonText::any_array() {
  return shared("array", [&] {
    const ExpressionId more = out_.repeat(out_.sequence({separator(), any_value()}), 0, kUnbounded);
    const ExpressionId items = out_.optional(out_.sequence({any_value(), more, space()}));
    return out_.sequence({out_.literal("["), space(), items, out_.literal("]")});
  });
}

ExpressionId JsonText::any_object() {
  return shared("object", [&] {
    const ExpressionId key = name_except({});
    const ExpressionId first = member(key, any_value());
    const ExpressionId more = out_.sequence({separator(), member(key, any_value())});
    const ExpressionId members = out_.sequence({first, out_.repeat(more, 0, kUnbounded)});
    return braces(std::array{Member{members, false}});
  });
}

ExpressionId JsonText::name(std::string_view name) {
  if (style_.has_bare_names && is_word(name)) return out_.literal(name);
  const std::optional<std::string> text = quoted_text(name);
  return text ? out_.literal(*text) : out_.nothing();
}

ExpressionId JsonText::null() {
  return style_.has_python_words ? out_.literals({"null", "None"}) : out_.literal("null");
}

ExpressionId JsonText::boolean() {
  if (style_.has_python_words) return out_.literals({"true", "false", "True", "False"});
  return out_.literals({"true", "false"});
}

LanguageId JsonText::allowed_texts(Languages& languages) const {
  if (!style_.quote.empty()) return texts_before(languages, style_.quote);
  return style_.forbidden.empty() ? languages.anything() : texts_without(languages, style_.forbidden);
}

ExpressionId JsonText::quoted(ExpressionId content) {
  const std::string_view mark = style_.quote.empty() ? "\"" : std::string_view(style_.quote_bytes);
  return out_.sequence({out_.literal(mark), content, out_.literal(mark)});
}

std::optional<std::string> JsonText::quoted_text(std::string_view text) const {
  if (!style_.quote.empty()) {
    const bool is_whole = (std::string(text) + style_.quote).find(style_.quote) == text.size();
    return is_whole ? std::optional(style_.quote_bytes + std::string(text) + style_.quote_bytes) : std::nullopt;
  }
  std::string content = written(text, TextForm::kJsonString);
  const std::string& forbidden = style_.forbidden;
  for (size_t at = 0; !forbidden.empty() && (at = content.find(forbidden, at)) != std::string::npos;) {
    const auto first = static_cast<uint8_t>(forbidden[0]);
    if (first >= 0x80) return std::nullopt;
    content.replace(at, 1, escape(first));
  }
  return "\"" + content + "\"";
}

ExpressionId JsonText::texts(Languages& languages, LanguageId language, TextForm form) {
  const auto automaton = StringAutomaton::of(languages, language);
  if (!automaton.ok()) return out_.nothing();
  const auto content = write_automaton(out_, *automaton, form, 0, kUnbounded);
  return content.ok() ? *content : out_.nothing();
}

ExpressionId JsonText::exactly(const Json& value) {
  if (value.is_boolean() && style_.has_python_words)
    return value.get<bool>() ? out_.literals({"true", "True"}) : out_.literals({"false", "False"});
  if (value.is_null()) return null();
  if (value.is_string()) {
    const std::optional<std::string> text = quoted_text(value.get<std::string>());
    return text ? out_.literal(*text) : out_.nothing();
  }
  if (!value.is_structured() || value.empty()) return out_.literal(json_text(value));
  std::vector<Member> members;
  for (const auto& [key, each] : value.items()) {
    const ExpressionId content = exactly(each);
    members.push_back({value.is_array() ? content : member(name(key), content), true});
  }
  const char* brackets = value.is_array() ? "[]" : "{}";
  return out_.sequence({out_.literal(std::string_view(brackets, 1)), space(),
                        out_.members(separator(), members), space(),
                        out_.literal(std::string_view(brackets + 1, 1))});
}

ExpressionId JsonText::string(uint32_t minimum, uint32_t maximum) {
  if (limits_texts())
    return shared("text", [&] {
      Languages languages;
      return quoted(texts(languages, allowed_texts(languages), text_form()));
    });
  return shared(format("string {}:{}", minimum, maximum), [&] {
    // \uXXXX, surrogates only in pairs.
    const ExpressionId hex = out_.characters(CharacterSet({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}));
    const ExpressionId zero_to_seven = out_.characters(CharacterSet({{'0', '7'}}));
    const ExpressionId after_d = out_.characters(CharacterSet({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}));
    const ExpressionId lower_half = out_.characters(CharacterSet({{'c', 'f'}, {'C', 'F'}}));
    const ExpressionId d = out_.characters(set_of("dD"));
    const ExpressionId not_d =
        out_.characters(CharacterSet({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}));
    const ExpressionId pair =
        out_.sequence({d, after_d, hex, hex, out_.literal("\\u"), d, lower_half, hex, hex});
    const ExpressionId unit = out_.choice(
        {out_.sequence({not_d, hex, hex, hex}), out_.sequence({d, zero_to_seven, hex, hex}), pair});
    const ExpressionId escape = out_.sequence(
        {out_.literal("\\"),
         out_.choice({out_.characters(set_of("\"\\/bfnrt")), out_.sequence({out_.literal("u"), unit})})});
    const ExpressionId character = out_.choice({out_.characters(unescaped()), escape});
    return out_.sequence({out_.literal("\""), out_.repeat(character, minimum, maximum), out_.literal("\"")});
  });
}

ExpressionId JsonText::digits(uint32_t minimum, uint32_t maximum) {
  return out_.repeat(out_.characters(CharacterSet({{'0', '9'}})), minimum, maximum);
}

ExpressionId JsonText::integer() {
  return shared("integer", [&] {
    const ExpressionId nonzero =
        out_.sequence({out_.characters(CharacterSet({{'1', '9'}})), digits(0, kMostDigits - 1)});
    return out_.sequence({out_.optional(out_.literal("-")), out_.choice({out_.literal("0"), nonzero})});
  });
}

ExpressionId JsonText::number() {
  return shared("number", [&] {
    const ExpressionId fraction = out_.sequence({out_.literal("."), digits(1, kMostDigits)});
    const ExpressionId exponent = out_.sequence(
        {out_.characters(set_of("eE")), out_.optional(out_.characters(set_of("+-"))), digits(1, 2)});
    return out_.sequence({integer(), out_.optional(fraction), out_.optional(exponent)});
  });
}

// A trie of the names, each node a rule: the name ends, unless it is
// excluded; follows an excluded name; or deviates, and continues freely.
ExpressionId JsonText::name_except(std::span<const std::string> names) {
  if (names.empty() && !style_.has_bare_names) return string();
  if (limits_texts() || style_.has_bare_names) {
    Languages languages;
    std::vector<LanguageId> taken;
    for (const std::string& name : names) taken.push_back(languages.text(name));
    const LanguageId free = languages.complement(languages.choice(std::move(taken)));
    if (style_.has_bare_names)
      return texts(languages, languages.both(free, words(languages)), TextForm::kPlain);
    return quoted(texts(languages, languages.both(free, allowed_texts(languages)), text_form()));
  }
  struct TrieNode {
    std::map<uint32_t, size_t> children;
    bool is_name = false;
  };
  std::vector<TrieNode> trie(1);
  for (const std::string& name : names) {
    size_t at = 0;
    auto text = SourceText::create(name, "", SourceText::Place::kByte, SIZE_MAX);
    if (!text.ok()) continue;  // such a name never occurs
    while (!text->is_at_end()) {
      const auto [child, is_new] = trie[at].children.try_emplace(text->take(), trie.size());
      at = child->second;
      if (is_new) trie.emplace_back();
    }
    trie[at].is_name = true;
  }
  const CharacterSet all({{0, kLastCharacter}});
  const ExpressionId rest_body = out_.repeat(character_of(out_, all, TextForm::kJsonString), 0, kUnbounded);
  const RuleId rest = out_.declare_rule("rest of a name");
  out_.define_rule(rest, rest_body);
  std::vector<RuleId> rules;
  for (size_t i = 0; i < trie.size(); ++i) rules.push_back(out_.declare_rule("name of another property"));
  for (size_t i = 0; i < trie.size(); ++i) {
    std::vector<ExpressionId> ways;
    std::vector<CharacterRange> known;
    for (const auto& [character, child] : trie[i].children) {
      known.push_back({character, character});
      const CharacterSet only({{character, character}});
      ways.push_back(
          out_.sequence({character_of(out_, only, TextForm::kJsonString), out_.call(rules[child])}));
    }
    const CharacterSet others = all.without(CharacterSet(std::move(known)));
    ways.push_back(out_.sequence({character_of(out_, others, TextForm::kJsonString), out_.call(rest)}));
    if (!trie[i].is_name) ways.push_back(out_.empty());
    out_.define_rule(rules[i], out_.sequence({out_.empty(), out_.choice(std::move(ways))}));
  }
  return out_.sequence({out_.literal("\""), out_.call(rules[0]), out_.literal("\"")});
}

}  // namespace tessera::grammar
