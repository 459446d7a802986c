// Every reader of JSON, given text that is deep, long, or both: an error whose message is short.
#include "text/json.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "serialize/cluster_json.h"
#include "serialize/device_profile_json.h"
#include "serialize/plan_pins_json.h"
#include "text/python_json.h"
#include "text/repeated_keys.h"

namespace tessera {
namespace {

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

// The same mistakes, wherever they may be.
std::vector<std::string> hostile_texts() {
  constexpr size_t kDeep = 80000, kLong = size_t{2} << 20;
  const std::string deep_list = repeated("[", kDeep) + repeated("]", kDeep),
                    deep_object = repeated("{\"a\":", kDeep) + "1" + repeated("}", kDeep), name(kLong, 'n'),
                    text = "\"" + name + "\"";
  std::vector<std::string> texts = {
      deep_list,         deep_object, repeated("[", kDeep), text, name, "[" + repeated("1,", kLong) + "1]",
      "{" + text + ":1}"};
  for (const char* key : {"format", "version", "kinds", "devices", "link", "strategy", "graph_fingerprint",
                          "stages", "nodes", "schedule", "stored", "ops", "keep", "checksum", "content"})
    for (const std::string& value : {deep_list, text, "{" + text + ":" + text + "}", "[" + text + "]"})
      texts.push_back("{\"" + std::string(key) + "\":" + value + "}");
  return texts;
}

void check_refused(const Status& status) {
  CHECK_FALSE(status.ok());
  CHECK(status.code() != StatusCode::kInternal);
  CHECK(status.message().size() <= 2000);
}

}  // namespace

TEST_CASE("every_reader_of_json_refuses_deep_and_long_texts_in_a_short_message") {
  for (const std::string& text : hostile_texts()) {
    check_refused(cluster_from_json(text).status());
    check_refused(device_profile_from_json(text).status());
    // Pins may have names of any length.
    const Status pins = plan_pins_from_json(text).status();
    CHECK(pins.code() != StatusCode::kInternal);
    CHECK(pins.message().size() <= 2000);
  }
}

TEST_CASE("json_is_read_to_its_depth_and_no_deeper") {
  const auto nested = [](int depth) {
    return repeated("[", static_cast<size_t>(depth)) + repeated("]", static_cast<size_t>(depth));
  };
  CHECK(parse_json(nested(kMostJsonDepth), "a text").ok());
  CHECK(parse_json(nested(kMostJsonDepth + 1), "a text").status().to_string() ==
        "corrupt: a text: its JSON nests deeper than 64 at byte 64");
  CHECK(parse_json("\"" + repeated("[", 1000) + "\\\"[\"", "a text").ok());  // in a string, brackets are text
  CHECK(parse_json("[1,2]", "a text", 4).status().to_string() ==
        "corrupt: a text: 5 bytes of JSON, wanted at most 4");
  CHECK(parse_json("[1,", "a text")
            .status()
            .to_string()
            .starts_with("corrupt: a text: the text is not JSON: "));
}

TEST_CASE("json_has_a_key_once_or_with_one_value") {
  const auto message = [](std::string_view text) { return parse_json(text, "a text").status().to_string(); };
  CHECK(message(R"({"a": 1, "b": {"c": [{"d": 1, "d": 2}]}})") ==
        "corrupt: a text: the key 'd' of 'b.c' stands twice, first with 1, then with 2: wanted it once");
  CHECK(dump(*parse_json(R"({"b": 1, "a": [2, {"x": null}], "b": 1})", "")) == R"({"b":1,"a":[2,{"x":null}]})");
  CHECK(dump(*parse_json_with_last_keys(R"({"b": 1, "a": 2, "b": [3]})", "")) == R"({"b":[3],"a":2})");
  std::string wide = "{";  // linear in the keys
  for (int i = 0; i < 20'000; ++i) wide += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  CHECK(parse_json(wide + "\"k7\":7}", "a text")->size() == 20'000);
  CHECK(message(wide + "\"k7\":8}").find("the key 'k7' stands twice, first with 7, then with 8") != std::string::npos);
}

TEST_CASE("numbers that only Python writes") {
  const Result<Json> read = parse_python_json(R"({"a": [0.0, Infinity, -Infinity], "b": NaN, "c": "NaN \" Infinity"})", "file");
  REQUIRE(read.ok());
  CHECK(dump(*read) ==
        R"({"a":[0.0,{"__float__":"Infinity"},{"__float__":"-Infinity"}],"b":{"__float__":"NaN"},"c":"NaN \" Infinity"})");
  CHECK_FALSE(parse_python_json("[Infinit]", "file").ok());
  CHECK_FALSE(parse_python_json("[InfinityNaN]", "file").ok());
  CHECK_FALSE(parse_json("[Infinity]", "file").ok());
}

}  // namespace tessera
