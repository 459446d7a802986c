#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/parsed_answer.h"
#include "text/answer/answer.h"
#include "text/chat_template.h"

namespace tessera::fuzz {
namespace {

// Broken templates, and templates of random parts, rendered with a conversation. No file, so no header.
class ChatTemplateLoader final : public Loader {
 public:
  std::string_view name() const override { return "chat template"; }
  Outcome run(Random& random) override {
    std::string text(kSeed);
    if (random.one_in(2)) {
      text.clear();
      for (uint64_t left = 1 + random.below(60); left > 0; --left)
        text += random.pick<std::string_view>(kParts);
    }
    if (!random.one_in(4)) mutate_text(text, random);
    ChatRequest request;
    request.messages = Json::parse(kMessages);
    request.tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
    request.add_generation_prompt = random.one_in(2);
    request.continue_final_message = !request.add_generation_prompt && random.one_in(4);
    request.now_s = 0;
    const auto made = ChatTemplate::create(text, {{"bos_token", "<s>"}});
    if (!made.ok()) return {true, made.status()};
    const auto rendered = made.value()->render(request);
    if (!request.continue_final_message && random.one_in(2)) {
      const auto spans = made.value()->render_with_spans(request);
      if (spans.ok()) check_ranges(spans.value().assistant, spans.value().text);
    }
    if (random.one_in(4)) {
      const AnswerForm form = AnswerForm::of(*made.value());
      (void)parse_answer(form, rendered.ok() ? rendered.value().text : text, {form.default_opening, Json()});
    }
    if (rendered.ok()) check_ranges(rendered.value().data, rendered.value().text);
    return {true, rendered.status()};
  }

 private:
  static void check_ranges(const std::vector<TextRange>& ranges, const std::string& text) {
    size_t end = 0;
    for (const TextRange& range : ranges) {
      TSR_CHECK(range.begin >= end && range.begin < range.end && range.end <= text.size(),
                "a range out of order");
      end = range.end;
    }
  }

  static constexpr std::string_view kSeed =
      "{%- macro say(m, end='<|end|>') -%}{{ '<|' ~ m.role ~ '|>' }}{{ m.content|trim }}{{ end }}{%- "
      "endmacro -%}\n"
      "{{ bos_token }}{% set ns = namespace(n=0, out=[]) %}{% if tools %}{{ tools|tojson(indent=2) }}{% "
      "endif %}\n"
      "{% for m in messages if m.content is defined %}{% set ns.n = ns.n + 1 %}\n"
      "{% if m.role == 'assistant' %}{% generation %}{{ say(m) }}{% endgeneration %}{% elif loop.last %}\n"
      "{{- say(m, '!') }}{% continue %}{% else %}{{ m['content'][::-1]|replace('a', 'é')|upper }}{% endif "
      "%}\n"
      "{% set ns.out = ns.out + [m.content.split('\\n')[0]] %}{% endfor %}{{ ns.out|join(', ') }}\n"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ '%s %d'|format('x', 3) }}{# end #}";
  static constexpr std::string_view kMessages =
      R"([{"role": "user", "content": "<|end|> \u00e9\n"}, {"role": "assistant", "content": "b a", "x": [1, 2.5, null]},
          {"role": "user", "content": [{"type": "text", "text": "part"}]}, {"role": "assistant", "content": "last "}])";
  static constexpr std::string_view kParts[] = {"{{ ",
                                                " }}",
                                                "{% ",
                                                " %}",
                                                "{%- ",
                                                " -%}",
                                                "{# ",
                                                " #}",
                                                "if ",
                                                "elif ",
                                                "else",
                                                "endif",
                                                "for x in ",
                                                "endfor",
                                                "set x = ",
                                                "set ns.y = ",
                                                "macro f(a, b=1)",
                                                "endmacro",
                                                "call f()",
                                                "endcall",
                                                "filter upper",
                                                "endfilter",
                                                "generation",
                                                "endgeneration",
                                                "break",
                                                "continue",
                                                "raw",
                                                "endraw",
                                                "with a = 1",
                                                "endwith",
                                                "messages",
                                                "x",
                                                "ns",
                                                "namespace(y=[])",
                                                "loop",
                                                ".items()",
                                                ".content",
                                                "['role']",
                                                "[0]",
                                                "[::-1]",
                                                "[1:]",
                                                "f(x)",
                                                "(",
                                                ")",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                ",",
                                                ":",
                                                "'a\\n'",
                                                "\"b\"",
                                                "1",
                                                "2.5",
                                                "9223372036854775807",
                                                "range(9)",
                                                " + ",
                                                " - ",
                                                " * ",
                                                " // ",
                                                " % ",
                                                " ** ",
                                                " ~ ",
                                                " == ",
                                                " < ",
                                                " in ",
                                                " not ",
                                                " and ",
                                                " or ",
                                                " is ",
                                                "defined",
                                                "string",
                                                "none",
                                                "true",
                                                "|tojson",
                                                "|list",
                                                "|join('-')",
                                                "|sort",
                                                "|map('upper')",
                                                "|selectattr('role')",
                                                "|default(3)",
                                                "|length",
                                                "|replace('a','b')",
                                                "|indent(2)",
                                                "|trim",
                                                "|first",
                                                "|last",
                                                "|groupby('role')",
                                                "|int",
                                                "|safe",
                                                "\n",
                                                "  ",
                                                "text",
                                                "\xff",
                                                "é",
                                                ".split()",
                                                ".strip('a')",
                                                ".format(1)",
                                                "|batch(2)",
                                                "|unique",
                                                "raise_exception('x')"};
};

}  // namespace

std::unique_ptr<Loader> chat_template_loader() { return std::make_unique<ChatTemplateLoader>(); }

}  // namespace tessera::fuzz
