// The language of chat templates: what each part prints, how templates are refused, and that none can stall its host.
// tests/reference/chat_templates.py compares far more with Jinja2.
#include <doctest/doctest.h>
#include <pthread.h>

#include <string>
#include <vector>

#include "serialize/jinja/printing.h"
#include "serialize/jinja/template.h"
#include "tests/ok.h"

namespace tessera::jinja {
namespace {

using test::ok;

Result<Rendering> render(std::string_view source, std::string_view variables = "{}") {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto make_variables = [&](Budget& budget) -> Result<Template::Variables> {
    Template::Variables made;
    const Json json = Json::parse(variables);
    for (const auto& [name, value] : json.items()) {
      TSR_ASSIGN_OR_RETURN(Value each, from_json(budget, value, kData));
      made.emplace_back(name, std::move(each));
    }
    return made;
  };
  return parsed.value()->render(make_variables, variables.size(), 0);
}

std::string print(std::string_view source, std::string_view variables = "{}") {
  return ok(render(source, variables)).text;
}

std::string error(std::string_view source, std::string_view variables = "{}") {
  const auto rendered = render(source, variables);
  REQUIRE_FALSE(rendered.ok());
  CHECK(rendered.status().code() != StatusCode::kInternal);
  CHECK(rendered.status().code() != StatusCode::kOutOfMemory);
  return std::string(rendered.status().message());
}

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

// "tttdd": for each character whether the template or the data made it; capitals inside of generation.
std::string origins(std::string_view source, std::string_view variables) {
  const Rendering rendering = ok(render(source, variables));
  std::string all;
  for (const Run& run : rendering.runs) {
    const char letter = run.origin.source == kTemplate ? 't' : 'd';
    all.append(run.end - all.size(), static_cast<char>(letter - (run.origin.generation ? 32 : 0)));
  }
  CHECK(all.size() == rendering.text.size());
  return all;
}

}  // namespace

TEST_CASE("expressions have Python's meaning") {
  CHECK(print("{{ 1 + 2 * 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}") ==
        "7 -4 2 3.5 1024 0.5");
  CHECK(print("{{ 1e16 }} {{ 0.1 }} {{ 1e-5 }} {{ 3.0 }} {{ true }} {{ none }}") ==
        "1e+16 0.1 1e-05 3.0 True None");
  CHECK(print("{{ [1, 'a', \"it's\", none] }} {{ {'k': (1,)} }}") == "[1, 'a', \"it's\", None] {'k': (1,)}");
  CHECK(print("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'b' in 'abc' }} {{ 2 not in [1] }}") ==
        "True False True True");
  CHECK(print("{{ 'a' if x is defined else 'b' }}{{ x }}{{ x|default('d') }}") == "bd");
  CHECK(print("{{ 'aébc'[::-1] }} {{ 'aébc'[1:3] }} {{ [1, 2, 3][-2:] }}") == "cbéa éb [2, 3]");
  CHECK(print("{{ 1 ~ 'x' ~ none }}{{ 'ab' * 2 }}{{ '%s-%03d' % ('a', 7) }}{{ '{:>4}'.format('x') }}") ==
        "1xNoneababa-007   x");
}

TEST_CASE("white space around tags goes as transformers sets Jinja2 up") {
  CHECK(print("a\n  {% if true %}  \n  b\n  {% endif %}\nc\n") == "a\n  \n  b\nc");
  CHECK(print("a  {{- 'b' -}}  c") == "abc");
  CHECK(print("  {%+ if true %}x{% endif %}") == "  x");
  CHECK(print("{# c #}\n{% raw %}{{ x }}{% endraw %}\r\n\ny") == "{{ x }}\ny");
}

TEST_CASE("statements: loops, scopes, macros, namespaces, blocks") {
  CHECK(
      print(
          "{% for x in [3, 1, 2] if x > 1 %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}") ==
      "13,22");
  CHECK(print("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% elif x == 3 %}{% break %}{% endif %}{{ "
              "x }}{% endfor %}") == "02");
  CHECK(print("{% for x in [] %}{% else %}none{% endfor %}") == "none");
  CHECK(print("{% set x = 1 %}{% for i in [5] %}{% set x = i %}{% endfor %}{{ x }}") == "1");
  CHECK(print("{% set n = namespace(x=1) %}{% for i in [5] %}{% set n.x = i %}{% endfor %}{{ n.x }}") == "5");
  CHECK(
      print("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, b=2, c=3) }}") ==
      "11{}12{'c': 3}");
  CHECK(print("{% macro m() %}<{{ caller(2) }}>{% endmacro %}{% call(n) m() %}{{ n }}{% endcall %}") ==
        "<2>");
  CHECK(
      print(
          "{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}{% filter replace('a', 'b') %}aa{% endfilter %}") ==
      "A1bb");
  CHECK(print("{% for i in [1, [2]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}") == "12");
}

TEST_CASE("filters, tests and methods") {
  const std::string people = R"({"p": [{"n": "b", "a": 2}, {"n": "a", "a": 1}], "d": {"z": 1, "y": "<é>"}})";
  CHECK(print("{{ p|map(attribute='n')|join('+') }} {{ p|selectattr('a', 'gt', 1)|list|length }}", people) ==
        "b+a 1");
  CHECK(print("{{ p|sort(attribute='a')|map(attribute='n')|list }}{{ d|dictsort }}", people) ==
        "['a', 'b'][('y', '<é>'), ('z', 1)]");
  CHECK(print("{{ d|tojson }}{{ d|tojson(indent=1) }}", people) ==
        "{\"z\": 1, \"y\": \"<é>\"}{\n \"z\": 1,\n \"y\": \"<é>\"\n}");
  CHECK(print("{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d.get('q', 7) }}", people) ==
        "z1y<é>7");
  CHECK(print("{{ ''.split(',') }}{{ ''.replace('', 'a') }}{{ ''.find('a') }}") == "['']a-1");
  CHECK(print("{{ ' aXb '.strip().split('X') }}{{ 'straße'.upper() }}{{ '4.7'|int }}{{ 2.5|round }}") ==
        "['a', 'b']STRASSE42.0");
  CHECK(print("{{ '<'|safe + '<' }}{{ 'a\nb'|indent(2) }}") == "<&lt;a\n  b");
}

TEST_CASE("what is not understood is refused with its name, line and column") {
  CHECK(error("a\n {% frobnicate %}") == "line 2, column 5: unknown statement 'frobnicate'");
  CHECK(error("{% include 'x' %}").find("line 1, column 4: the statement 'include' is not supported") == 0);
  CHECK(error("{{ 1|upperr }}")
            .find("line 1, column 5: a filter: the filter 'upperr' is not known; nearest: upper") == 0);
  CHECK(error("{{ (1 }}").find("line 1, column 7: unexpected '}', wanted ')'") == 0);
  CHECK(error("{% if true %}") == "line 1, column 4: 'if' is not closed; wanted 'endif'");
  CHECK(error("\n{{ messages[0].content }}").find("line 2, column 12: 'messages' is undefined") == 0);
  CHECK(error("{{ raise_exception('roles must alternate') }}")
            .find("the template refuses its input: roles must alternate") != std::string::npos);
  CHECK(error("{{ 9223372036854775807 + 1 }}").find("beyond integers of 64 bits") != std::string::npos);
  CHECK(error("{{ [].append(1) }}").find("'append' would change a list") != std::string::npos);
  CHECK(error("{{ raise_exception('x' * 100000) }}").size() < 1100);
}

TEST_CASE("no template stalls or fills its host") {
  const std::string hostile[] = {
      repeated("{% if true %}", 5500) + repeated("{% endif %}", 5500),
      "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
      "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% "
      "endmacro %}{{ g() }}",
      "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
      "{{ range(10 ** 12) }}",
      "{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for i in range(90) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
      "{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = [n.s] %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 10 ** 15 }}",
      "{{ 'x'.zfill(10 ** 12) }}",
      "{{ '{:>999999999}'.format(1) }}",
      "{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}",
      "{{ " + repeated("[", 5000),
      "{{ " + repeated("not ", 5000) + "1 }}",
      "{{ 1" + repeated(" + 1", 5000) + " }}",
      "{{ x" + repeated(".a", 5000) + " }}",
      "{{ 'x'" + repeated("|upper", 5000) + " }}",
      "{{ ('[' * 9999)|from_json }}",
  };
  for (const std::string& source : hostile) {
    INFO(source.substr(0, 100));
    CHECK(error(source).size() < 1100);
  }
}

TEST_CASE("a thread with little stack renders what nests deep") {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, size_t{64} << 10) == 0);
  std::string printed;
  const auto run = [](void* opaque) -> void* {
    *static_cast<std::string*>(opaque) = print(
        "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100)|length }}");
    return nullptr;
  };
  pthread_t thread{};
  REQUIRE(pthread_create(&thread, &attributes, run, &printed) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
  CHECK(printed == "192");
}

TEST_CASE("each character knows whether the template or the data made it") {
  const std::string data = R"({"u": "ab", "x": " a-b ", "d": {"k": "v"}, "n": 5})";
  CHECK(origins("<{{ u }}>", data) == "tddt");
  CHECK(origins("{{ '<' + u ~ '>' }}{{ u[::-1] }}{{ u|upper }}", data) == "tddtdddd");
  CHECK(origins("{{ x.strip().replace('-', '==') }}{{ ('<' ~ x ~ '>').split('-')[0] }}", data) == "dttdtdd");
  CHECK(origins("{{ ['t', u]|join(',') }}{{ '%s!' % u }}{{ '{}!'.format(u) }}", data) == "ttddddtddt");
  CHECK(origins("{% set v %}[{{ u }}]{% endset %}{% macro m(a) %}({{ a }}){% endmacro %}{{ m(v) }}", data) ==
        "ttddtt");
  CHECK(origins("{{ d|tojson }}{{ {'a': 1}|tojson }}{{ n }}", data) == "ddddddddddttttttttt");
  CHECK(origins("{{ d }}", data) == "dddddddddd");
  CHECK(origins("a{% generation %}b{{ u }}{% endgeneration %}c", data) == "tTDDt");
  CHECK(origins("{% macro m() %}{% generation %}b{% endgeneration %}{% endmacro %}{{ u }}{{ m() }}", data) ==
        "ddT");
}

}  // namespace tessera::jinja
