// JSON schemas: values that a schema allows are accepted, whatever follows the masks is valid, and keywords that cannot be
// obeyed are refused by name. tests/reference/constraints.py holds more against Python's jsonschema.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/serialize/schema_samples.h"

namespace tessera::grammar {
namespace {

using testing::below;
using testing::Matcher;
using testing::Random;

std::string error(std::string_view schema) {
  const auto made = Grammar::from_json_schema(schema);
  REQUIRE_FALSE_MESSAGE(made.ok(), schema);
  return made.status().to_string();
}

Matcher matcher(std::string_view schema, const JsonStyle& style = {}) {
  return Matcher(test::ok(Grammar::from_json_schema(schema, style)));
}

}  // namespace

TEST_CASE("schema_random_valid_values_are_accepted_byte_by_byte") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    testing::SchemaSamples samples(seed);
    const Json schema = samples.schema();
    const Matcher ours = matcher(dump(schema));
    for (int i = 0; i < 10; ++i) {
      const Json value = samples.value(schema, schema);
      REQUIRE_MESSAGE(testing::is_valid(schema, value, schema), dump(schema) << "\n" << dump(value));
      for (const std::string& text : {dump(value), value.dump(2), value.dump(1, '\t')})
        CHECK_MESSAGE(ours.matches(text), dump(schema) << "\n"
                                                       << text << "\naccepted: " << ours.accepted(text));
    }
  }
}

TEST_CASE("schema_texts_that_follow_the_masks_are_valid") {
  const std::vector<std::shared_ptr<const TokenBytes>> vocabularies = {
      testing::byte_vocabulary(), testing::made_vocabulary(400, 1), testing::made_vocabulary(3000, 2)};
  size_t finished = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    testing::SchemaSamples samples(seed + 1000);
    const Json schema = samples.schema();
    const auto grammar = test::ok(Grammar::from_json_schema(dump(schema)));
    for (const auto& vocabulary : vocabularies) {
      const auto cache = std::make_shared<MaskCache>(grammar, vocabulary);
      for (int i = 0; i < 3; ++i) {
        const std::string text = testing::random_text(cache, samples.random(), 30);
        if (text.empty()) continue;
        ++finished;
        const auto value = parse_json(text, "text");
        REQUIRE_MESSAGE(value.ok(), dump(schema) << "\n" << text << "\n" << value.status().to_string());
        CHECK_MESSAGE(testing::is_valid(schema, *value, schema), dump(schema) << "\n" << text);
      }
    }
  }
  CHECK(finished > 900);
}

TEST_CASE("schema_any_json_accepts_what_a_parser_does") {
  testing::SchemaSamples samples(5);
  const Matcher ours(test::ok(Grammar::json({.allow_spaces = false})));
  size_t valid = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = dump(samples.any(4));
    static const std::vector<std::string> kPieces = {"\"",      "{",    "}",    "[",       "]",
                                                     ",",       ":",    "1",    "0",       "-",
                                                     ".",       "e",    "\\",   "\\u00e9", "\\ud83d\\ude00",
                                                     "\\ud83d", "true", "\x80", "\n",      "é",
                                                     "+"};
    for (size_t k = below(samples.random(), 3); k-- > 0;) {
      const size_t at = below(samples.random(), text.size() + 1);
      text.replace(at, below(samples.random(), 2), kPieces[below(samples.random(), kPieces.size())]);
    }
    bool has_space = false, is_in_string = false;
    for (size_t k = 0; k < text.size(); ++k) {
      if (text[k] == '\\' && is_in_string)
        ++k;
      else if (text[k] == '"')
        is_in_string = !is_in_string;
      else if (!is_in_string && (text[k] == '\n' || text[k] == ' '))
        has_space = true;
    }
    if (has_space) continue;  // what white space there may be is another question
    const bool expected = Json::accept(text);
    valid += expected;
    CHECK_MESSAGE(ours.matches(text) == expected, text << " accepted: " << ours.accepted(text));
  }
  CHECK(valid > 1500);
}

TEST_CASE("schema_white_space_is_a_space_or_a_line_with_its_indentation") {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]})";
  const Matcher loose = matcher(schema), compact = matcher(schema, {.allow_spaces = false});
  for (const char* text : {"{\"a\":[1,2]}", "{ \"a\": [ 1, 2 ] }", "{\n  \"a\": [\n    1,\n    2\n  ]\n}"}) {
    CHECK(loose.matches(text));
    CHECK(compact.matches(text) == (text == std::string_view("{\"a\":[1,2]}")));
  }
  for (const char* text :
       {" {\"a\":[]}", "{\"a\" :[]}", "{\"a\":  []}", "{\"a\":[1 ,2]}", "{\"a\":[]}\n", "{\n\n\"a\":[]}"})
    CHECK_FALSE(loose.matches(text));
  CHECK_FALSE(loose.matches("{\n" + std::string(21, ' ') + "\"a\":[]}"));
}

TEST_CASE("schema_bounds_of_numbers_hold_for_every_number") {
  const double kBounds[] = {-100, -12.5, -1, -0.25, 0, 0.125, 1, 7, 10, 99, 100.75, 1234};
  for (const double least : kBounds)
    for (const double most : kBounds) {
      if (least > most) continue;
      for (const bool exclusive : {false, true})
        for (const bool integer : {false, true}) {
          const Json schema = {{"type", integer ? "integer" : "number"},
                               {exclusive ? "exclusiveMinimum" : "minimum", least},
                               {exclusive ? "exclusiveMaximum" : "maximum", most}};
          const auto grammar = Grammar::from_json_schema(dump(schema));
          bool has_any = false;
          std::vector<std::string> texts = {"1234"};
          for (int whole = -1300; whole <= 1300; whole += std::abs(whole) < 130 ? 1 : 13)
            texts.push_back(std::to_string(whole));
          if (!integer)
            for (int part = -1040; part <= 1040; part += 3)
              for (const char* more : {"", "0", "01"}) {
                std::string text = Json(part / 8.0).dump();
                texts.push_back(text + more);
              }
          const Matcher* ours = nullptr;
          std::unique_ptr<Matcher> made;
          if (grammar.ok()) ours = (made = std::make_unique<Matcher>(*grammar)).get();
          for (const std::string& text : texts) {
            if (text.starts_with("-0") && Json::parse(text).get<double>() == 0) continue;  // left out
            const bool expected = testing::is_valid(schema, Json::parse(text), schema);
            has_any |= expected;
            const bool found = ours != nullptr && ours->matches(text);
            if (found != expected) CHECK_MESSAGE(found == expected, dump(schema) << " " << text);
          }
          CHECK_MESSAGE(grammar.ok() == (has_any || (!integer && (least < most || !exclusive))),
                        dump(schema));
        }
    }
}

TEST_CASE("schema_exclusive_bounds_hold_after_rounding") {
  const Matcher ours = matcher(R"({"type":"number","exclusiveMaximum":1})");
  CHECK(ours.matches("0.99999999999999"));
  CHECK_FALSE(ours.matches("0.99999999999999999"));
}

TEST_CASE("schema_formats_take_valid_texts_and_refuse_others") {
  struct Case {
    const char* format;
    std::vector<const char*> valid, invalid;
  };
  const Case kCases[] = {
      {"date",
       {"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30"},
       {"2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-1-1", "0000-01-01"}},
      {"time", {"23:59:59Z", "00:00:00.123+01:30"}, {"24:00:00Z", "12:00Z", "12:00:00"}},
      {"date-time",
       {"2024-02-29T12:00:00Z", "2024-01-01T00:00:00.5-08:00"},
       {"2024-02-30T12:00:00Z", "2024-01-01 00:00:00Z"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426614174000"},
       {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"}},
      {"email",
       {"a.b@example.com", "x_1@mail.example.org"},
       {"a@b", "@example.com", "a..b@example.com", "a b@example.com"}},
      {"hostname", {"localhost", "a-b.example.com"}, {"-a.com", "a..b", ""}},
      {"ipv4", {"0.0.0.0", "255.255.255.255", "10.1.20.3"}, {"256.1.1.1", "1.2.3", "01.2.3.4"}},
      {"uri",
       {"https://example.com/a/b?c=d#e", "http://127.0.0.1:8080/"},
       {"example.com", "http://", "http://a b"}}};
  for (const Case& each : kCases) {
    const Matcher ours = matcher(dump(Json{{"type", "string"}, {"format", each.format}}));
    for (const char* text : each.valid) CHECK_MESSAGE(ours.matches(dump(Json(text))), text);
    for (const char* text : each.invalid) CHECK_FALSE_MESSAGE(ours.matches(dump(Json(text))), text);
  }
}

TEST_CASE("schema_properties_come_in_order_and_optional_ones_may_be_left_out") {
  const Matcher ours = matcher(
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"]})");
  for (const char* text : {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"})
    CHECK(ours.matches(text));
  for (const char* text : {"{}", R"({"a":1})", R"({"b":2,"a":1})", R"({"b":2,})", R"({,"b":2})",
                           R"({"b":2,"d":1})", R"({"a":1"b":2})"})
    CHECK_FALSE(ours.matches(text));
  const Matcher open = matcher(
      R"({"properties":{"ab":{"const":1}},"required":["ab","z"],"additionalProperties":{"type":"boolean"}})");
  for (const char* text :
       {R"({"ab":1,"z":true})", R"({"ab":1,"z":true,"a":true,"abc":false,"":true,"b\"":true})"})
    CHECK(open.matches(text));
  for (const char* text : {R"({"ab":1,"z":1})", R"({"ab":1,"z":true,"ab":true})",
                           R"({"ab":1,"z":true,"\u0061b":true})", R"({"ab":1,"z":true,"c":1})"})
    CHECK_FALSE(open.matches(text));
}

TEST_CASE("schema_all_of_and_references_are_merged") {
  const Matcher ours = matcher(
      R"({"$defs":{"base":{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]}},
    "allOf":[{"$ref":"#/$defs/base"},{"properties":{"b":{"type":"boolean"},"a":{"maximum":5}},"required":["b"]}],"description":"x"})");
  CHECK(ours.matches(R"({"b":true,"a":3})") != ours.matches(R"({"a":3,"b":true})"));
  CHECK(ours.matches(R"({"a":5,"b":true})"));
  CHECK_FALSE(ours.matches(R"({"a":6,"b":true})"));
  CHECK_FALSE(ours.matches(R"({"a":2,"b":true})"));
  const Matcher either = matcher(
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"anyOf":[{"required":["a"]},{"required":["b"]}]})");
  CHECK(either.matches(R"({"a":1})"));
  CHECK(either.matches(R"({"b":2})"));
  CHECK_FALSE(either.matches("{}"));
  CHECK(
      error(
          R"({"allOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"additionalProperties":false}]})") ==
      "invalid_argument: JSON schema, #/properties/a: the schema is false; no value is allowed then");
  const Matcher separate = matcher(
      R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})");
  CHECK(separate.matches(R"({"k":1})"));
  CHECK(matcher(R"({"items":{"$ref":"#"},"type":"array"})").matches("[[],[[]]]"));
  const Matcher positions = matcher(
      R"({"type":"array","allOf":[{"prefixItems":[{"type":"integer","minimum":3}]}],"items":{"type":"integer","minimum":5}})");
  CHECK(positions.matches("[5,5]"));
  CHECK_FALSE(positions.matches("[3]"));
}

TEST_CASE("schema_what_cannot_be_obeyed_is_refused_by_name") {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"type":"object","not":{"properties":{"a":{"type":"string"}}}})", "#: 'not' is supported of nothing"},
      {R"({"if":{},"then":{}})", "#: 'if' is not supported"},
      {R"({"properties":{"a/b":{"contains":{}}}})", "#/properties/a~1b: 'contains' is not supported"},
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems' is supported where 'items' allows a few values"},
      {R"({"properties":{"a":{"items":{"type":"string"},"uniqueItems":true}}})", "#/properties/a: 'uniqueItems'"},
      {R"({"type":"number","multipleOf":0.01})", "'multipleOf': found 0.01, wanted a whole number, or halves"},
      {R"({"type":"string","pattern":"(?<!a)b"})", "#: the pattern, byte 0: look-behind is not supported"},
      {R"({"type":"string","pattern":"(?:(?!a).)*b"})", "look-ahead and anchors in long repetitions are not"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "0 and 1 are not"},
      {R"({"oneOf":[{"type":"object"},{"type":"object"}]})", "0 and 1 are not"},
      {R"({"$ref":"http://x/y"})", "wanted one within the schema such as '#/$defs/a'"},
      {R"({"type":"string","nullable":true})", "wanted \"null\" in a list of types"},
      {R"({"type":"object","minProperties":2})", "'minProperties' is 2, supported is 1"},
      {R"({"items":{"$id":"a"}})", "#/items: '$id' is supported in the whole schema alone"},
      {R"({"allOf":[{"patternProperties":{"a":{}}},{"additionalProperties":false}]})", "of another schema is not"},
      {R"({"type":"array","items":[{}]})", "wanted 'prefixItems'"},
      {R"({"type":"string","minLength":99999999})", "'minLength' is 99999999, wanted at most 16777216"},
      {R"({"type":"integer","minimum":1e50})", "'minimum' has 51 digits before the point, wanted at most 40"}};
  for (const auto& [schema, wanted] : kCases) {
    const std::string message = error(schema);
    CHECK_MESSAGE(message.find(wanted) != std::string::npos, message);
    CHECK_MESSAGE(message.starts_with("unsupported: JSON schema, #"), message);
  }
}

TEST_CASE("schema_errors_say_what_was_found_and_wanted") {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "JSON schema: the text is not JSON"},
      {"3", "#: found 3, wanted a schema: an object, true or false"},
      {R"({"type":"strin"})", "#: found the type \"strin\", wanted null, boolean"},
      {R"({"properties":[]})", "'properties' is [], wanted an object of schemas"},
      {R"({"required":"a"})", "'required' is \"a\", wanted a list of names"},
      {R"({"anyOf":[]})", "'anyOf' is [], wanted a list of schemas"},
      {R"({"enum":1})", "'enum' is 1, wanted a list"},
      {R"({"$ref":"#/$defs/a"})", "'$ref' is '#/$defs/a', but the schema has nothing there"},
      {R"({"type":"string","minLength":-1})", "'minLength' is -1, wanted a whole number, 0 or more"},
      {R"({"type":"integer","exclusiveMinimum":true})", "'exclusiveMinimum' is true, wanted a number"},
      {R"({"type":"string","pattern":"("})", "#: the pattern, byte 0: found '(', wanted the ')'"},
      {R"({"type":"string","minLength":3,"maxLength":2})",
       "#: minLength 3 is above maxLength 2; no value is allowed then"},
      {R"({"type":"integer","minimum":3,"maximum":2})",
       "the least number is above the greatest; no value is allowed then"},
      {R"({"type":"integer","minimum":0.2,"maximum":0.7})", "no text matches"},
      {"false", "#: the schema is false; no value is allowed then"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})",
       "#/properties/a: the schema is false; no value is allowed then"},
      {R"({"type":"string","enum":[1]})", "no value is listed that has the type"},
      {R"({"not":{}})", "#: 'not' excludes everything; no value is allowed then"},
      {R"({"type":"string","pattern":7})", "'pattern' is 7, wanted a text"},
      {R"({"type":"string","pattern":["a","b"]})", "'pattern' is [\"a\",\"b\"], wanted a text"},
      {R"({"type":"integer","multipleOf":0})", "'multipleOf': found 0, wanted a number above 0"},
      {R"({"type":"array","items":{"enum":["a","a"]},"uniqueItems":true,"minItems":2})",
       "minItems is 2, of 1 different values"},
      {R"({"type":"object","properties":{"a":{}},"additionalProperties":false,"minProperties":2})",
       "minProperties is 2, of 1 names"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "each contradicts itself or never ends"}};
  for (const auto& [schema, wanted] : kCases) {
    const std::string message = error(schema);
    CHECK_MESSAGE(message.find(wanted) != std::string::npos, message);
    CHECK_MESSAGE(message.starts_with("invalid_argument: JSON schema"), message);
  }
  CHECK(error(R"({"$ref":"#"})").find("a rule begins with itself (left recursion): '#'") !=
        std::string::npos);
  CHECK(error(R"({"allOf":[{"$ref":"#"},{}]})").find("refer to each other without end") != std::string::npos);
}


// A schema, texts that it allows, and texts that it does not.
struct SchemaCase {
  const char* schema;
  std::vector<const char*> allowed, refused;
};
void check_cases(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& each : cases) {
    const auto made = Grammar::from_json_schema(each.schema);
    REQUIRE_MESSAGE(made.ok(), each.schema, made.status().to_string());
    const Matcher ours(*made);
    INFO(each.schema);
    for (const char* text : each.allowed) CHECK_MESSAGE(ours.matches(text), text);
    for (const char* text : each.refused) CHECK_FALSE_MESSAGE(ours.matches(text), text);
  }
}

TEST_CASE("schema_limits_of_strings_hold_together") {
  check_cases({
      {R"({"type":"string","format":"email","maxLength":11})",
       {R"("ab@cd.com")"}, {R"("abcde@cd.com")", R"("ab@cd.test")"}},
      {R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})",
       {R"("https://a.b/c?d#e")"}, {R"("ftp://a.b")"}},
      {R"({"type":"string","format":"uri"})", {R"("ftp://a.b")"}, {R"("a.b")"}},
      {R"({"type":"string","format":"date","pattern":"^2024","minLength":3})",
       {R"("2024-02-29")"}, {R"("2023-02-28")"}},
      {R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":5})",
       {R"("ab")", R"("abcde")"}, {R"("a")", R"("abcdef")"}},
      {R"({"type":"string","pattern":"^(ab)*$","minLength":3,"maxLength":5})",
       {R"("abab")"}, {R"("ab")", R"("ababab")"}},
      {R"({"type":"string","pattern":"^(?=.*[A-Z])(?!.*x)[A-Za-z]+$"})", {R"("aB")"}, {R"("ab")", R"("aBx")"}},
      {R"~({"type":"string","pattern":"(^a|b$)"})~", {R"("ax")", R"("xb")"}, {R"("xa")"}},
      {R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$"}]})",
       {R"("az")", R"("a-z")"}, {R"("a")", R"("z")"}},
      {R"({"type":"string","not":{"enum":["root","admin"]}})", {R"("user")", R"("roots")"}, {R"("root")"}},
      {R"({"type":"string","format":"phone","maxLength":3})", {R"("abc")"}, {R"("abcd")"}},
      {R"({"type":"integer","format":"int64"})", {"5"}, {R"("5")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("a::b")"}, {R"("1:2")", R"("1::2::3")"}},
      {R"({"type":"string","format":"duration"})",
       {R"("P1DT2H")", R"("PT5M")", R"("P3W")"}, {R"("P")", R"("P1DT")", R"("P1Y2D")"}},
  });
}

TEST_CASE("schema_numbers_are_read_as_they_are_written") {
  check_cases({
      {R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
       {"9223372036854775807", "-9223372036854775808"}, {"9223372036854775808", "-9223372036854775809"}},
      {R"({"type":"integer","minimum":0,"maximum":18446744073709551615})",
       {"18446744073709551615"}, {"18446744073709551616", "-1"}},
      {R"({"type":"integer","exclusiveMaximum":100000000000000000000000})",
       {"99999999999999999999999"}, {"100000000000000000000000"}},
      {R"({"type":"integer","minimum":9007199254740993,"maximum":9007199254740993})",
       {"9007199254740993"}, {"9007199254740992"}},
      {R"({"type":"integer","maximum":1e308})", {"5", "999999999999999999"}, {"1e5"}},
      {R"({"type":"number","maximum":9223372036854775807})", {"9223372036854775807", "1.5"}, {"9223372036854775806.9"}},
      {R"({"enum":[18446744073709551616,-9223372036854775809]})",
       {"18446744073709551616", "-9223372036854775809"}, {"1.8446744073709552e+19"}},
      {R"({"type":"integer","multipleOf":5,"minimum":3,"maximum":21})", {"5", "20"}, {"0", "3", "25"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":0,"maximum":1})", {"0.25", "0.5", "1"}, {"0.3", "0.125"}},
      {R"({"type":"integer","allOf":[{"multipleOf":6},{"multipleOf":4}]})", {"12", "-24"}, {"6", "8"}},
  });
}

TEST_CASE("schema_decimal_numbers_are_numerals_as_numbers_and_as_strings") {
  const char* pattern = R"({"anyOf":[{"type":"number","minimum":0},{"type":"string",)"
                        R"("pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"},{"type":"null"}]})";
  check_cases({{pattern, {"1.5", R"("1.5")", "null"}, {R"("")", R"("-1")", R"("abc")", "-1", "1e5"}},
               {R"({"anyOf":[{"type":"number"},{"type":"string"}]})", {"1.5", R"("1.5")"}, {R"("abc")"}},
               {R"({"anyOf":[{"type":"string"},{"type":"number"}]})", {"1.5", R"("abc")"}, {}},
               {R"({"anyOf":[{"type":"string","pattern":"(?<=a)b"},{"type":"integer"}]})", {"4"}, {R"("b")"}}});
}

TEST_CASE("schema_objects_count_and_name_their_properties") {
  const char* few = R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},)";
  const std::string one = std::string(few) + R"("minProperties":1})", two = std::string(few) + R"("maxProperties":2})";
  check_cases({
      {one.c_str(), {R"({"a":1})", R"({"c":3})", R"({"a":1,"b":2,"c":3})"}, {"{}", R"({"d":1})"}},
      {two.c_str(), {"{}", R"({"a":1,"c":3})"}, {R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"const":0},"maxProperties":2})",
       {R"({"a":1,"x":0})", R"({"x":0,"y":0})"}, {R"({"a":1,"x":0,"y":0})"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":2})"}, {R"({"c":1})", R"({"a":1,"a":2})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^x","maxLength":3},"additionalProperties":{"const":0}})",
       {R"({"xab":0})"}, {R"({"abc":0})", R"({"xabc":0})"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"patternProperties":{"^x":{"const":2}},)"
       R"("additionalProperties":false})",
       {R"({"a":1,"xa":2})"}, {R"({"a":1,"b":2})"}},
      {R"({"patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":3}},"additionalProperties":{"const":"z"}})",
       {R"({"x":1,"xy":3,"b":"z"})"}, {R"({"xy":2})", R"({"x":"z"})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"gone":{"not":{}}}})", {R"({"a":1})"}, {R"({"gone":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"not":{"required":["b"]}})",
       {R"({"a":1})", "{}"}, {R"({"b":2})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"const":1}}}],"properties":{"b":{"const":2}},)"
       R"("unevaluatedProperties":false})",
       {R"({"b":2,"a":1})"}, {R"({"c":3})"}},
  });
}

TEST_CASE("schema_sets_hold_each_value_once") {
  const char* many = R"({"type":"array","uniqueItems":true,"minItems":1,"items":{"type":"integer","minimum":1,"maximum":12}})";
  check_cases({
      {R"({"type":"array","uniqueItems":true,"items":{"$ref":"#/$defs/c"},"maxItems":2,)"
       R"("$defs":{"c":{"enum":["r","g","b"]}}})",
       {"[]", R"(["b","r"])"}, {R"(["r","r"])", R"(["r","g","b"])"}},
      {R"({"type":"array","uniqueItems":true,"items":{"type":["boolean","null"]}})",
       {"[true,null,false]"}, {"[null,null]"}},
      {many, {"[1,2,12]", "[7]"}, {"[]", "[1,1]", "[13]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"string"},"maxItems":1})", {R"(["a"])"}, {R"(["a","b"])"}},
  });
}

TEST_CASE("schema_of_one_of_several_that_overlap_is_narrowed") {
  const char* kinds = R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"cat","default":"cat"},"n":{"const":1}}},)"
                      R"({"type":"object","properties":{"kind":{"const":"dog","default":"dog"},"n":{"const":1}}}]})";
  check_cases({
      {kinds, {R"({"kind":"cat"})", R"({"kind":"dog","n":1})"}, {"{}", R"({"n":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},)"
       R"("oneOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2})"}, {"{}", R"({"a":1,"b":2})"}},
      {R"({"oneOf":[{"enum":["a","b"]},{"enum":["b","c"]}]})", {R"("a")", R"("c")"}, {R"("b")"}},
      {R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"z$"}]})",
       {R"("ab")", R"("bz")"}, {R"("az")"}},
      {R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","minimum":7}]})", {"3", "7"}, {"5"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"null"}],"oneOf":[{"maximum":3,"type":"number"},{"type":"null"}]})",
       {"3", "null"}, {"4", "2.5"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"array",)"
       R"("items":[{"const":1},{"const":2}],"additionalItems":false})",
       {"[1,2]", "[1]"}, {"[1,2,3]"}},
  });
}

}  // namespace tessera::grammar
