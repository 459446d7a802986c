// Chat templates that write calls of tools, each in another syntax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::test {

// A conversation in ChatML with `calls` as the template's own loop over tool_calls.
inline std::string chat_ml(std::string_view calls, std::string_view prompt = "") {
  return "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
         "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}" +
         std::string(calls) +
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n" +
         std::string(prompt) + "{% endif %}";
}

struct Family {
  const char* name;
  std::string source;
};

inline const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"objects", chat_ml("{% for c in m.tool_calls %}\n<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
                          "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}")},
      {"one array",
       chat_ml(
           "{% if m.tool_calls %}<TOOLS>[{% for c in m.tool_calls %}{\"tool\": {{ c.function.name | tojson "
           "}}, \"call_id\": \"{{ c.id }}\", \"parameters\": {{ c.function.arguments | tojson }}}{% if not "
           "loop.last %}, {% endif %}{% endfor %}]</TOOLS>{% endif %}")},
      {"keyed by name",
       chat_ml("{% if m.tool_calls %}<|tools_prefix|>[{% for c in m.tool_calls %}{{ '{' }}\"{{ "
               "c.function.name }}\": {{ c.function.arguments | tojson }}{{ '}' }}{% if not loop.last "
               "%}, {% endif %}{% endfor %}]<|tools_suffix|>{% endif %}")},
      {"objects in a section",
       chat_ml("{% if m.tool_calls %}<tool_calls>\n{% for c in m.tool_calls %}{{ c.function | tojson "
               "}}\n{% endfor %}</tool_calls>{% endif %}")},
      {"name before JSON",
       chat_ml("{% for c in m.tool_calls %}[CALLS]{{ c.function.name }}[ID]{{ c.id }}[ARGS]{{ "
               "c.function.arguments | tojson }}{% endfor %}")},
      {"counted",
       chat_ml(
           "{% if m.tool_calls %}<|section|>{% for c in m.tool_calls %}<|call|>functions.{{ c.function.name "
           "}}:{{ loop.index0 }}<|args|>{{ c.function.arguments | tojson }}<|/call|>{% endfor "
           "%}<|/section|>{% endif %}")},
      {"parameters",
       chat_ml("{% for c in m.tool_calls %}\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in "
               "c.function.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string else v | tojson "
               "}}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}")},
      {"keys and values",
       chat_ml("{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}{% for k, v in "
               "c.function.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string "
               "else v | tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}",
               "<think>")},
      {"kinds",
       chat_ml("{% if m.tool_calls %}<calls>\n{% for c in m.tool_calls %}<invoke name=\"{{ c.function.name "
               "}}\">\n{% "
               "for k, v in c.function.arguments.items() %}<parameter name=\"{{ k }}\" string=\"{{ 'true' if "
               "v is "
               "string else 'false' }}\">{{ v if v is string else v | tojson }}</parameter>\n{% endfor "
               "%}</invoke>\n{% endfor %}</calls>{% endif %}")},
      {"tags of keys",
       chat_ml("{% for c in m.tool_calls %}<call name=\"{{ c.function.name }}\">{% for k, v in "
               "c.function.arguments.items() %}<{{ k }}>{{ v if v is string else v | tojson }}</{{ k }}>{% "
               "endfor %}</call>{% endfor %}")},
      {"Python",
       chat_ml(
           "{% if m.tool_calls %}<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}({% for "
           "k, v "
           "in c.function.arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% "
           "endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>{% endif %}")},
      {"quotes of its own",
       chat_ml("{% for c in m.tool_calls %}<|tool_call>call:{{ c.function.name }}{{ '{' }}{% for k, v in "
               "c.function.arguments.items() %}{{ k }}:{{ '<|\"|>' ~ v ~ '<|\"|>' if v is string else v | "
               "tojson }}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}<tool_call|>{% endfor %}")},
  };
  return all;
}

}  // namespace tessera::test
