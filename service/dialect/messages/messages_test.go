package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/inference"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, New(), fake.Scripted) }

func TestDocument(t *testing.T) { fake.Document(t, New()) }

func TestRequestsThatAreRefused(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"x"}]`
	for body, wanted := range map[string]string{
		``:                                "the body is empty; a JSON object is wanted",
		`{` + user + `,"max_tokens":1}`:   "'model' is missing; a text is wanted",
		`{"model":"tiny",` + user + `}`:   "'max_tokens' is missing; a number is wanted",
		`{"model":"tiny","max_tokens":1}`: "'messages' is missing; a list is wanted",
		`{"model":"tiny","max_tokens":0,` + user + `}`:                                                                                      "'max_tokens' is 0; at least 1 is wanted",
		`{"model":"tiny","max_tokens":1.5,` + user + `}`:                                                                                    "'max_tokens' is 1.5; an integer is wanted",
		`{"model":"tiny","max_tokens":1e30,` + user + `}`:                                                                                   "'max_tokens' is 1e30; at most 2147483647 is wanted",
		`{"model":"tiny","max_tokens":1,"messages":[]}`:                                                                                     "'messages' has 0 elements; at least 1 is wanted",
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"system","content":""}]}`:                                                       "'messages' has no text of the user",
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[]}]}`:                                                         "'messages' has no text of the user",
		`{"model":"tiny","max_tokens":1,"messages":[7]}`:                                                                                    "'messages[0]' is a number; an object is wanted",
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"tool","content":"x"}]}`:                                                        `'messages[0].role' is "tool"; one of user, assistant, system is wanted`,
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"user"}]}`:                                                                      "'messages[0].content' is missing; a text or a list of blocks is wanted",
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`:                             `'messages[0].content[0].type' is "image" in a message of the role user; text, tool_result, tool_use, thinking and documents of text are served`,
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`:                 `'messages[0].content[0].tool_use_id' is "x", which no tool_use before it has`,
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64"}}]}]}`:           `'messages[0].content[0].source.type' is "base64"; text and content are served`,
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}]}`:  "'messages' ends with a tool_use, whose tool_result is wanted",
		`{"model":"tiny","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"x"}]}]}`: "'messages[0].content[0].input' is a text; an object is wanted",
		`{"model":"tiny","max_tokens":1,` + user + `,"x":1}`:                                                                                "'x' is no member that is known here",
		`{"model":"tiny","max_tokens":1,` + user + `,"container":"c"}`:                                                                      "'container' is not supported: no code is run here",
		`{"model":"tiny","max_tokens":1,` + user + `,"mcp_servers":[{}]}`:                                                                   "'mcp_servers' is [{}]; supported: []",
		`{"model":"tiny","max_tokens":1,` + user + `,"stop_sequences":[""]}`:                                                                "'stop_sequences[0]' is empty",
		`{"model":"tiny","max_tokens":1,` + user + `,"stop_sequences":"a"}`:                                                                 "'stop_sequences' is a text; a list is wanted",
		`{"model":"tiny","max_tokens":1,` + user + `,"thinking":{"type":"enabled"}}`:                                                        "'thinking.budget_tokens' is missing; a number is wanted",
		`{"model":"tiny","max_tokens":1,` + user + `,"thinking":{"type":"much"}}`:                                                           `'thinking.type' is "much"; one of enabled, disabled, adaptive, between_tools is wanted`,
		`{"model":"tiny","max_tokens":1,` + user + `,"tool_choice":{"type":"any"}}`:                                                         "'tool_choice.type' is any, but there are no 'tools'",
		`{"model":"tiny","max_tokens":1,` + user + `,"tool_choice":{"type":"tool","name":"f"}}`:                                             `'tool_choice.name' is "f", which is no tool of 'tools'`,
		`{"model":"tiny","max_tokens":1,` + user + `,"tools":[{"type":"web_search_20250305","name":"web_search"}]}`:                         `'tools[0].type' is "web_search_20250305"; tools of the client's own with 'name' and 'input_schema' are served`,
		`{"model":"tiny","max_tokens":1,` + user + `,"tools":[{"name":"f"}]}`:                                                               "'tools[0].input_schema' is missing; an object is wanted",
		`{"model":"tiny","max_tokens":1,` + user + `,"system":7}`:                                                                           "'system' is a number; a list is wanted",
		`{"model":"tiny","max_tokens":1,"messages":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`:                              "the body is nested deeper than 64 levels",
	} {
		status, reply := fake.Ask(New(), fake.Scripted(), "POST", "/v1/messages", []byte(body))
		var found struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(reply, &found); err != nil || status != 400 || found.Type != "error" ||
			found.Error.Type != "invalid_request_error" || found.Error.Message != wanted {
			t.Errorf("%.120s: %d %s; wanted %s", body, status, reply, wanted)
		}
	}
}

func TestErrorsHaveAnthropicsTypes(t *testing.T) {
	for kind, wanted := range map[inference.Kind]string{
		inference.Unauthenticated: `401 {"type":"error","error":{"type":"authentication_error","message":"m"},"request_id":"req_1"}`,
		inference.TooLarge:        `413 {"type":"error","error":{"type":"request_too_large","message":"m"},"request_id":"req_1"}`,
		inference.Limited:         `429 {"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"req_1"}`,
		inference.Overloaded:      `529 {"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"req_1"}`,
		inference.Internal:        `500 {"type":"error","error":{"type":"api_error","message":"m"},"request_id":"req_1"}`,
		inference.Unsupported:     `400 {"type":"error","error":{"type":"invalid_request_error","message":"m"},"request_id":"req_1"}`,
	} {
		status, body := Errors(&inference.Error{Kind: kind, Message: "m"}, "req_1")
		if found := fmt.Sprint(status, " ", string(body)); found != wanted {
			t.Errorf("%s; wanted %s", found, wanted)
		}
	}
}

func TestMembersOfCutInputs(t *testing.T) {
	for text, wanted := range map[string]string{
		"": "{}", "{": "{}", "[1": "{}", `{"a`: "{}", `{"a":`: "{}", `{"a":"x`: "{}", `{"a":"x"`: `{"a":"x"}`, `{"a":1`: "{}", `{"a":1,`: `{"a":1}`,
		`{"a":{"b":2}`: `{"a":{"b":2}}`, `{"a":{"b":2`: "{}", `{"a":true`: `{"a":true}`, `{"a":tru`: "{}", `{"<é\"": [1, 2], "b": nul`: `{"<é\"":[1, 2]}`,
		`{"a":1}`: `{"a":1}`, `{"a":1,"b":2}`: `{"a":1,"b":2}`, `{"a" 1`: "{}",
	} {
		if found := string(wholeMembers(text)); found != wanted {
			t.Errorf("%s: %s; wanted %s", text, found, wanted)
		}
	}
}

func TestBillingLinesAreDropped(t *testing.T) {
	for text, wanted := range map[string]string{
		"": "", "You": "You", billing + " cch=1;": "", billing + " cch=1;\nYou": "You", billing + "\n\nYou\nare": "You\nare", " " + billing: " " + billing,
	} {
		if found := dropBilling(text); found != wanted {
			t.Errorf("%q: %q", text, found)
		}
	}
}
