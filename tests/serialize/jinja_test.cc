// The language of chat templates: what each part prints, how templates are refused, and that none can stall its host.
// tests/reference/chat_templates.py compares far more with Jinja2.
#include <doctest/doctest.h>
#include <pthread.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/ok.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/printing.h"
#include "text/jinja/template.h"
#include "text/jinja/tests.h"

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

// What a function is asked of large operands: texts s and t (equal), digits n, JSON j, lists l (numbers) and w (texts), a
// dict d. Those with "!" refuse such operands; of the others 150 calls take more steps than there are.
struct CostlyCall {
  const char* name;
  const char* expression;
};
constexpr CostlyCall kCostlyFilters[] = {
    {"upper", "s|upper"},
    {"lower", "s|lower"},
    {"capitalize", "s|capitalize"},
    {"title", "s|title"},
    {"trim", "s|trim"},
    {"string", "s|string"},
    {"safe", "s|safe"},
    {"e", "s|e"},
    {"escape", "s|escape"},
    {"replace", "s|replace('b', 'c')"},
    {"indent", "s|indent"},
    {"format", "s|format"},
    {"wordcount", "s|wordcount"},
    {"truncate", "s|truncate(9)"},
    {"center", "s|center(9)"},
    {"tojson", "s|tojson"},
    {"from_json", "j|from_json"},
    {"int", "n|int"},
    {"float", "n|float"},
    {"abs", "!s|abs"},
    {"round", "!s|round"},
    {"urlencode", "s|urlencode"},
    {"length", "s|length"},
    {"count", "l|count"},
    {"default", "s|default('x')"},
    {"d", "s|d('x')"},
    {"list", "l|list"},
    {"items", "d|items"},
    {"first", "l|first"},
    {"last", "l|last"},
    {"join", "w|join"},
    {"reverse", "s|reverse"},
    {"sort", "l|sort"},
    {"dictsort", "d|dictsort"},
    {"unique", "l|unique"},
    {"min", "l|min"},
    {"max", "l|max"},
    {"sum", "l|sum"},
    {"batch", "l|batch(10)"},
    {"slice", "l|slice(10)"},
    {"groupby", "w|groupby('x')"},
    {"map", "w|map('upper')"},
    {"select", "l|select"},
    {"reject", "l|reject"},
    {"selectattr", "l|selectattr('x')"},
    {"rejectattr", "l|rejectattr('x')"},
    {"attr", "s|attr(t)"},
};
// Tests of the value s, with the argument t if any.
constexpr CostlyCall kCostlyTests[] = {
    {"defined", ""},    {"undefined", ""},   {"none", ""},     {"boolean", ""},   {"false", ""},
    {"true", ""},       {"integer", ""},     {"float", ""},    {"number", ""},    {"string", ""},
    {"mapping", ""},    {"sequence", ""},    {"iterable", ""}, {"callable", ""},  {"escaped", ""},
    {"odd", ""},        {"even", ""},        {"lower", ""},    {"upper", ""},     {"divisibleby", ", 2"},
    {"sameas", "!, t"}, {"in", ", t"},       {"filter", ""},   {"test", ""},      {"==", ", t"},
    {"eq", ", t"},      {"equalto", ", t"},  {"!=", ", t"},    {"ne", ", t"},     {"<", ", t"},
    {"lt", ", t"},      {"lessthan", ", t"}, {"<=", ", t"},    {"le", ", t"},     {">", ", t"},
    {"gt", ", t"},      {"greaterthan", ", t"}, {">=", ", t"}, {"ge", ", t"},
};
constexpr CostlyCall kCostlyMethods[] = {
    {"strip", "s.strip()"},
    {"lstrip", "s.lstrip(t)"},
    {"rstrip", "s.rstrip(t)"},
    {"split", "s.split('b')"},
    {"rsplit", "s.rsplit('b')"},
    {"splitlines", "s.splitlines()"},
    {"startswith", "s.startswith(t)"},
    {"endswith", "s.endswith(t)"},
    {"find", "s.find(t)"},
    {"rfind", "s.rfind(t)"},
    {"index", "s.index(t)"},
    {"rindex", "s.rindex(t)"},
    {"count", "s.count('b')"},
    {"replace", "s.replace('b', 'c')"},
    {"upper", "s.upper()"},
    {"lower", "s.lower()"},
    {"capitalize", "s.capitalize()"},
    {"title", "s.title()"},
    {"swapcase", "s.swapcase()"},
    {"casefold", "s.casefold()"},
    {"join", "''.join(w)"},
    {"ljust", "s.ljust(9)"},
    {"rjust", "s.rjust(9)"},
    {"center", "s.center(9)"},
    {"zfill", "s.zfill(9)"},
    {"removeprefix", "s.removeprefix(t)"},
    {"removesuffix", "s.removesuffix(t)"},
    {"partition", "s.partition('b')"},
    {"rpartition", "s.rpartition('b')"},
    {"isalpha", "s.isalpha()"},
    {"isdecimal", "s.isdecimal()"},
    {"isdigit", "s.isdigit()"},
    {"isnumeric", "s.isnumeric()"},
    {"isspace", "s.isspace()"},
    {"isprintable", "s.isprintable()"},
    {"isalnum", "s.isalnum()"},
    {"isascii", "s.isascii()"},
    {"isupper", "s.isupper()"},
    {"islower", "s.islower()"},
    {"format", "s.format()"},
    {"format_map", "!s.format_map(d)"},
    {"encode", "!s.encode()"},
    {"expandtabs", "!s.expandtabs()"},
    {"isidentifier", "!s.isidentifier()"},
    {"istitle", "!s.istitle()"},
    {"translate", "!s.translate(d)"},
    {"maketrans", "!s.maketrans(d)"},
    {"dict.get", "d.get(s)"},
    {"dict.items", "d.items()"},
    {"dict.keys", "d.keys()"},
    {"dict.values", "d.values()"},
    {"dict.copy", "d.copy()"},
    {"dict.fromkeys", "!d.fromkeys(l)"},
    {"list.index", "l.index(19999)"},
    {"list.count", "l.count(1)"},
    {"list.copy", "l.copy()"},
};
constexpr CostlyCall kCostlyFunctions[] = {
    {"range", "range(90000)"},
    {"dict", "dict(d)"},
    {"namespace", "namespace(d)"},
    {"raise_exception", "!raise_exception(s)"},
    {"strftime_now", "strftime_now(c)"},
    {"cycler", "!cycler(s)"},
    {"joiner", "!joiner(s)"},
    {"lipsum", "!lipsum()"},
};
// Operators and lookups, which no table has.
constexpr CostlyCall kCostlyOperators[] = {
    {"+", "s + t"},
    {"+ of lists", "l + l"},
    {"*", "s * 2"},
    {"* of lists", "l * 2"},
    {"%", "s % ()"},
    {"~", "s ~ t"},
    {"==", "s == t"},
    {"== of lists", "l == l[:]"},
    {"!=", "s != t"},
    {"<", "s < t"},
    {">=", "s >= t"},
    {"in", "s in t"},
    {"in a list", "-1 in l"},
    {"in a dict", "s in d"},
    {"not in", "s not in t"},
    {"slice", "s[::2]"},
    {"slice of a list", "l[1:]"},
    {"item", "d[s]"},
    {"a number as key", "d[5]"},
    {"item of a list by a text", "l[s]"},
    {"* argument", "''.format(*l)"},
    {"** argument", "''.format(**d)"},
    {"loop.cycle", "loop.cycle(s)"},
    {"loop.changed", "loop.changed(s)"},
    {"a call of a macro", "m(*l)"},
};

TEST_CASE("every filter, test, method, function and operator is charged for large operands") {
  const std::string letters(256 * 1024, 'a'), digits(256 * 1024, '9');
  const auto make_variables = [&](Budget& budget) -> Result<Template::Variables> {
    Template::Variables made;
    for (const char* name : {"s", "t"}) made.emplace_back(name, Text::of(letters, kData));
    made.emplace_back("n", Text::of(digits, kData));
    made.emplace_back("j", Text::of("[" + repeated("1,", 30000) + "1]", kData));
    made.emplace_back("c", Text::of(repeated("%c", 500), kData));
    std::vector<Value> numbers, words;
    std::vector<std::pair<Value, Value>> items;
    for (int64_t i = 0; i < 20000; ++i) {
      numbers.emplace_back(i);
      words.emplace_back(Text());
      items.emplace_back(Text::of("k" + std::to_string(i)), i);
    }
    TSR_ASSIGN_OR_RETURN(Value list, make_list(budget, std::move(numbers)));
    TSR_ASSIGN_OR_RETURN(Value texts, make_list(budget, std::move(words)));
    TSR_ASSIGN_OR_RETURN(Value dict, make_dict(budget, std::move(items)));
    made.emplace_back("l", std::move(list)), made.emplace_back("w", std::move(texts));
    made.emplace_back("d", std::move(dict));
    return made;
  };
  constexpr int64_t kStepsOfVariables = 160'000;
  const Limits limits{.steps = kStepsOfVariables + 50'000};
  const auto check = [&](const std::string& name, std::string expression) {
    const bool is_refused = expression.starts_with('!');
    if (is_refused) expression.erase(0, 1);
    CAPTURE(name);
    const auto parsed = Template::parse("{% macro m() %}{% if varargs %}{% endif %}{% endmacro %}{% for i in range(150) %}{% set x = " +
                                        expression + " %}{% endfor %}");
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().to_string());
    const auto rendered = parsed.value()->render(make_variables, limits, 0);
    REQUIRE_FALSE(rendered.ok());
    const bool is_charged =
        rendered.status().message().find("takes more than") != std::string_view::npos;
    CHECK_MESSAGE(is_charged != is_refused, rendered.status().to_string());
  };
  const auto check_all = [&](const auto& names, std::span<const CostlyCall> calls, std::string_view kind) {
    std::map<std::string, std::string> listed;
    for (const CostlyCall& call : calls) listed[call.name] = call.expression;
    for (const auto& each : names) {
      const std::string name(each);
      REQUIRE_MESSAGE(listed.contains(name), "no call of the " << kind << " '" << name << "' is listed above");
      std::string expression = listed[name];
      listed.erase(name);
      if (kind == "test") {
        const bool is_refused = expression.starts_with('!');
        expression = (is_refused ? "!" : "") + ("[s]|select('" + name + "'") +
                     expression.substr(is_refused ? 1 : 0) + ")";
      }
      check(name, expression);
    }
    CHECK(listed.empty());
  };
  std::vector<std::string> filters, tests, methods;
  for (const auto& table : {text_filters(), sequence_filters()})
    for (const FilterEntry& entry : table) filters.emplace_back(entry.name);
  for (const TestEntry& entry : all_tests()) tests.emplace_back(entry.name);
  for (const std::string_view name : text_method_names()) methods.emplace_back(name);
  for (const std::string& name : container_method_names()) methods.push_back(name);
  check_all(filters, kCostlyFilters, "filter");
  check_all(tests, kCostlyTests, "test");
  check_all(methods, kCostlyMethods, "method");
  check_all(builtin_names(), kCostlyFunctions, "function");
  for (const CostlyCall& call : kCostlyOperators) check(call.name, call.expression);
  check("a long name", std::string(100'000, 'q'));
}

TEST_CASE("looking through many names takes steps") {
  const auto make_variables = [](Budget&) -> Result<Template::Variables> {
    Template::Variables made;
    for (int64_t i = 0; i < 3000; ++i) made.emplace_back("v" + std::to_string(i), i);
    return made;
  };
  const Limits limits{.steps = 100'000};
  const auto render_loop = [&](const std::string& inside) {
    const auto parsed = ok(Template::parse("{% for i in range(1000) %}" + inside + "{% endfor %}"));
    return parsed->render(make_variables, limits, 0).ok();
  };
  CHECK(render_loop("{% if v5 %}{% endif %}"));
  CHECK_FALSE(render_loop("{% if v2999 %}{% endif %}"));
  CHECK_FALSE(render_loop("{% if absent is defined %}{% endif %}"));
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
