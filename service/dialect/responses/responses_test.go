package responses

import (
	"encoding/json"
	"strings"
	"testing"

	"tessera.dev/service/dialect/fake"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, New(), fake.Scripted) }

func TestDocument(t *testing.T) { fake.Document(t, New()) }

func TestRequestsThatAreRefused(t *testing.T) {
	for body, wanted := range map[string]string{
		``:                                   "invalid_json|",
		`[]`:                                 "invalid_type|",
		`{"input":"x"}`:                      "missing_required_parameter|model",
		`{"model":"tiny"}`:                   "missing_required_parameter|input",
		`{"model":7,"input":"x"}`:            "invalid_type|model",
		`{"model":"tiny","model":"tiny"}`:    "invalid_json|",
		`{"model":"tiny","input":7}`:         "invalid_type|input",
		`{"model":"tiny","input":"x","x":1}`: "unknown_parameter|x",
		`{"model":"tiny","input":"x","previous_response_id":"r"}`:                                                           "unsupported_parameter|previous_response_id",
		`{"model":"tiny","input":"x","conversation":{"id":"c"}}`:                                                            "unsupported_parameter|conversation",
		`{"model":"tiny","input":"x","prompt":{"id":"c"}}`:                                                                  "unsupported_parameter|prompt",
		`{"model":"tiny","input":"x","background":true}`:                                                                    "unsupported_value|background",
		`{"model":"tiny","input":"x","truncation":"auto"}`:                                                                  "unsupported_value|truncation",
		`{"model":"tiny","input":"x","max_output_tokens":0}`:                                                                "integer_below_min_value|max_output_tokens",
		`{"model":"tiny","input":"x","max_output_tokens":1.5}`:                                                              "invalid_type|max_output_tokens",
		`{"model":"tiny","input":"x","max_output_tokens":99999999999999999999}`:                                             "integer_above_max_value|max_output_tokens",
		`{"model":"tiny","input":"x","temperature":-0.1}`:                                                                   "decimal_below_min_value|temperature",
		`{"model":"tiny","input":"x","top_logprobs":21}`:                                                                    "integer_above_max_value|top_logprobs",
		`{"model":"tiny","input":"x","include":["x"]}`:                                                                      "invalid_value|include[0]",
		`{"model":"tiny","input":"x","metadata":{"a":1}}`:                                                                   "invalid_type|metadata.a",
		`{"model":"tiny","input":"x","text":{"format":{"type":"json_schema","name":"n"}}}`:                                  "missing_required_parameter|text.format.schema",
		`{"model":"tiny","input":"x","text":{"format":{"type":"yaml"}}}`:                                                    "invalid_value|text.format.type",
		`{"model":"tiny","input":"x","reasoning":{"effort":"much"}}`:                                                        "invalid_value|reasoning.effort",
		`{"model":"tiny","input":"x","tool_choice":"required"}`:                                                             "invalid_value|tool_choice",
		`{"model":"tiny","input":"x","tool_choice":{"type":"function","name":"f"}}`:                                         "invalid_value|tool_choice.name",
		`{"model":"tiny","input":"x","tools":[{"type":"function"}]}`:                                                        "missing_required_parameter|tools[0].name",
		`{"model":"tiny","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"web_search_preview"}}`: "unsupported_parameter|tool_choice.type",
		`{"model":"tiny","input":[{"role":"critic","content":"x"}]}`:                                                        "invalid_value|input[0].role",
		`{"model":"tiny","input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`:                     "unsupported_parameter|input[0].content[0].type",
		`{"model":"tiny","input":[{"type":"item_reference","id":"x"}]}`:                                                     "unsupported_parameter|input[0].type",
		`{"model":"tiny","input":[{"type":"function_call_output","call_id":"x","output":"y"}]}`:                             "invalid_value|input[0].call_id",
		`{"model":"tiny","input":[{}]}`:                                                                                     "missing_required_parameter|input[0].type",
		`{"model":"tiny","input":[[]]}`:                                                                                     "invalid_type|input[0]",
		`{"model":"tiny","input":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`:                                "invalid_json|",
		`{"model":"tiny","input":[{"type":"function_call","call_id":"c","name":"f","arguments":{"a":1}}]}`:                  "invalid_type|input[0].arguments",
		`{"model":"tiny","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"g"}]}}`: "invalid_value|tool_choice.tools",
	} {
		status, reply := fake.Ask(New(), fake.Scripted(), "POST", "/v1/responses", []byte(body))
		var found struct {
			Error struct{ Code, Param string }
		}
		if err := json.Unmarshal(reply, &found); err != nil || status != 400 || found.Error.Code+"|"+found.Error.Param != wanted {
			t.Errorf("%.120s: %d %s; wanted %s", body, status, reply, wanted)
		}
	}
}

func TestSealedReasoningOfOthersIsLeftOut(t *testing.T) {
	for sealed, wanted := range map[string]string{seal("a\nb"): "a\nb", "gAAAA": "", sealPrefix + "!": "", sealPrefix: "", sealPrefix + "_w": "\ufffd"} {
		if found := unseal(sealed); found != wanted {
			t.Errorf("%q: %q", sealed, found)
		}
	}
}
