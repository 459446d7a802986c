package chat_test

import (
	"fmt"
	"strings"
	"testing"

	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/fake"
)

const (
	path  = "/v1/chat/completions"
	tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
)

// with is a sound request with further members.
func with(members string) string {
	return `{"model":"chat","messages":[{"role":"user","content":"x"}],` + members + `}`
}

// said is a request of one message.
func said(message string) string { return `{"model":"chat","messages":[` + message + `]}` }

func TestRefusals(t *testing.T) {
	fake.Refusals(t, chat.New(chat.Settings{}), path, map[string]string{
		``:                                      "invalid_json|",
		`[]`:                                    "invalid_type|",
		`{}`:                                    "missing_required_parameter|model",
		`{"model":1}`:                           "invalid_type|model",
		`{"model":""}`:                          "empty_string|model",
		`{"model":"chat"}`:                      "missing_required_parameter|messages",
		`{"model":"chat","messages":1}`:         "invalid_type|messages",
		said(``):                                "array_below_min_length|messages",
		said(`1`):                               "invalid_type|messages[0]",
		said(`{}`):                              "missing_required_parameter|messages[0].role",
		said(`{"role":"critic","content":"x"}`): "invalid_value|messages[0].role",
		said(`{"role":"user"}`):                 "missing_required_parameter|messages[0].content",
		said(`{"role":"user","content":null}`):  "missing_required_parameter|messages[0].content",
		said(`{"role":"user","content":{"a":1}}`):                                             "invalid_type|messages[0].content",
		said(`{"role":"user","content":[{"type":"text"}]}`):                                   "missing_required_parameter|messages[0].content[0].text",
		said(`{"role":"user","content":[{"type":"text","text":"a","x":1}]}`):                  "unknown_parameter|messages[0].content[0].x",
		said(`{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}`):           "unsupported_value|messages[0].content[0].type",
		said(`{"role":"user","content":"x","tool_calls":[]}`):                                 "unknown_parameter|messages[0].tool_calls",
		said(`{"role":"user","content":"x","tool_calls":null,"audio":null}`):                  "",
		said(`{"role":"tool","content":"x"}`):                                                 "missing_required_parameter|messages[0].tool_call_id",
		said(`{"role":"assistant","tool_calls":[{"function":{}}]}`):                           "missing_required_parameter|messages[0].tool_calls[0].function.name",
		said(`{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}`): "unsupported_value|messages[0].tool_calls[0].type",
		said(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}`):  "invalid_type|messages[0].tool_calls[0].function.arguments",
		said(`{"role":"assistant","function_call":{"name":"f"}}`):                             "unsupported_parameter|messages[0].function_call",
		with(`"temperature":2.1`):                                                             "decimal_above_max_value|temperature",
		with(`"temperature":"1"`):                                                             "invalid_type|temperature",
		with(`"top_p":-0.1`):                                                                  "decimal_below_min_value|top_p",
		with(`"n":0`):                                                                         "integer_below_min_value|n",
		with(`"n":129`):                                                                       "integer_above_max_value|n",
		with(`"n":1.5`):                                                                       "invalid_type|n",
		with(`"n":3,"best_of":2`):                                                             "invalid_value|best_of",
		with(`"max_tokens":0`):                                                                "integer_below_min_value|max_tokens",
		with(`"max_tokens":-2`):                                                               "integer_below_min_value|max_tokens",
		with(`"max_tokens":1e999`):                                                            "integer_above_max_value|max_tokens",
		with(`"max_tokens":3,"max_completion_tokens":3`):                                      "",
		with(`"max_tokens":3,"max_completion_tokens":4`):                                      "invalid_value|max_tokens",
		with(`"max_tokens":3,"min_tokens":4`):                                                 "invalid_value|min_tokens",
		with(`"seed":9223372036854775808`):                                                    "integer_above_max_value|seed",
		with(`"reasoning":{"effort":"low","summary":"auto"}`):                                 "",
		with(`"reasoning":{"enabled":true,"max_tokens":100,"exclude":true}`):                  "",
		with(`"reasoning":{"effort":"much"}`):                                                 "invalid_value|reasoning.effort",
		with(`"reasoning":{"x":1}`):                                                           "unknown_parameter|reasoning.x",
		with(`"reasoning":true`):                                                              "invalid_type|reasoning",
		with(`"stop":""`):                                                                     "empty_string|stop",
		with(`"stop":["a",1]`):                                                                "invalid_type|stop[1]",
		with(`"stop":[]`):                                                                     "",
		with(`"logit_bias":{"a":1}`):                                                          "invalid_value|logit_bias.a",
		with(`"logit_bias":{"01":1}`):                                                         "invalid_value|logit_bias.01",
		with(`"logit_bias":{"1":101}`):                                                        "decimal_above_max_value|logit_bias.1",
		with(`"top_logprobs":21`):                                                             "integer_above_max_value|top_logprobs",
		with(`"stream":"true"`):                                                               "invalid_type|stream",
		with(`"stream_options":{"x":1}`):                                                      "unknown_parameter|stream_options.x",
		with(`"tools":{}`):                                                                    "invalid_type|tools",
		with(`"tools":[{"type":"web_search"}]`):                                               "unsupported_value|tools[0].type",
		with(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`):         "invalid_type|tools[0].function.parameters",
		with(`"tool_choice":"required"`):                                                      "invalid_value|tool_choice",
		with(`"tool_choice":"auto"`):                                                          "",
		with(`"tool_choice":"any"`):                                                           "invalid_value|tool_choice",
		with(tools + `,"tool_choice":{"type":"function","function":{"name":"g"}}`):            "invalid_value|tool_choice.function.name",
		with(tools + `,"tool_choice":{"type":"custom","custom":{"name":"g"}}`):                "invalid_value|tool_choice.type",
		with(tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"any","tools":[]}}`): "invalid_value|tool_choice.allowed_tools.mode",
		with(`"response_format":{}`):                                                                  "missing_required_parameter|response_format.type",
		with(`"response_format":{"type":"xml"}`):                                                      "invalid_value|response_format.type",
		with(`"response_format":{"type":"json_schema"}`):                                              "missing_required_parameter|response_format.json_schema",
		with(`"response_format":{"type":"json_schema","json_schema":{"schema":"x"}}`):                 "invalid_type|response_format.json_schema.schema",
		with(`"response_format":{"type":"json_object"},"grammar":"root ::= \"a\""`):                   "invalid_value|grammar",
		with(`"guided_choice":[]`):                                                                    "array_below_min_length|guided_choice",
		with(`"structured_outputs":{"regex":"a","choice":["b"]}`):                                     "invalid_value|structured_outputs.choice",
		with(`"structured_outputs":{"structural_tag":"a"}`):                                           "unknown_parameter|structured_outputs.structural_tag",
		with(`"continue_final_message":true,"add_generation_prompt":true`):                            "unsupported_value|add_generation_prompt",
		with(`"add_generation_prompt":false`):                                                         "unsupported_value|add_generation_prompt",
		with(`"functions":[]`):                                                                        "unsupported_parameter|functions",
		with(`"web_search_options":{}`):                                                               "unsupported_parameter|web_search_options",
		with(`"modalities":["text","audio"]`):                                                         "unsupported_value|modalities",
		with(`"modalities":["text"],"verbosity":"medium","user":1,"prediction":[]`):                   "",
		with(`"reasoning_effort":"much"`):                                                             "invalid_value|reasoning_effort",
		with(`"mirostat":2`):                                                                          "unknown_parameter|mirostat",
		with(`"n":1,"n":1`):                                                                           "invalid_json|",
		with(`"chat_template_kwargs":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 70)): "invalid_json|",
		with(`"stop":["` + strings.Join(strings.Split(strings.Repeat("a", 1001), ""), `","`) + `"]`):  "array_above_max_length|stop",
		with(`"tools":[` + strings.TrimSuffix(strings.Repeat(`{"type":"function","function":{"name":"f"}},`, 1025), ",") + `]`): "array_above_max_length|tools",
	})
}

func TestMembersOfTheDocumentAreKnown(t *testing.T) {
	fake.KnownMembers(t, chat.New(chat.Settings{}), path, "ChatRequest", with(`"n":1`))
}

func TestReasoningHasTheNamesOfTheSettings(t *testing.T) {
	for setting, wanted := range map[chat.Reasoning][]string{
		chat.ReasoningContent: {`"reasoning_content":"They`}, chat.ReasoningShort: {`"reasoning":"They`},
		chat.ReasoningBoth: {`"reasoning_content":"They`, `"reasoning":"They`},
	} {
		for _, streamed := range []bool{true, false} {
			body := with(fmt.Sprintf(`"reasoning_effort":"low","stream":%v`, streamed))
			_, reply := fake.Post(chat.New(chat.Settings{Reasoning: setting}), path, body)
			found := strings.Count(string(reply), `"reasoning_content":"They`) + strings.Count(string(reply), `"reasoning":"They`)
			for _, name := range wanted {
				if !strings.Contains(string(reply), name) || found != len(wanted) {
					t.Errorf("setting %d: %s", setting, reply)
				}
			}
		}
	}
}
