package chat_test

import (
	"math"
	"strings"
	"testing"

	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/inference"
)

// play gives the reply to a request whose model tells these events.
func play(members string, events ...inference.Event) string {
	models := fake.Echo()
	models.Script = func(inference.Request) ([]inference.Event, error) { return events, nil }
	_, reply := fake.Ask(chat.New(chat.Settings{}), models, "POST", path, []byte(with(members)))
	return string(reply)
}

func TestOneEventOfAllIsOneChunkEach(t *testing.T) {
	calls := []inference.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "b", Name: "g", Arguments: `{"x":1}`}}
	reply := play(`"stream":true,"logprobs":true`, inference.Event{Reasoning: "R", Text: "T", Calls: calls, Finish: inference.ToolCalls,
		Probabilities: []inference.TokenProbability{{Bytes: []byte{0xff}, Probability: math.Inf(-1)}}})
	at := 0
	for _, wanted := range []string{
		`"delta":{"role":"assistant","content":""},"logprobs":null`,
		`"delta":{"reasoning_content":"R"},"logprobs":{"content":[{"token":"bytes:\\xff","logprob":-9999,"bytes":[255],"top_logprobs":[]}],"refusal":null}`,
		`"delta":{"content":"T"},"logprobs":null,"finish_reason":null`,
		`"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},` +
			`{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]}`,
		`"delta":{},"logprobs":null,"finish_reason":"tool_calls"`,
		"data: [DONE]\n\n",
	} {
		next := strings.Index(reply[at:], wanted)
		if next < 0 {
			t.Fatalf("%s\nis not behind byte %d of\n%s", wanted, at, reply)
		}
		at += next
	}
	if strings.Count(reply, "data: ") != 6 {
		t.Errorf("%s", reply)
	}
}

func TestFinishReasonsFollowCalls(t *testing.T) {
	call := inference.Event{Calls: []inference.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "b", Name: "f", Arguments: "{}"}}}
	cut := &inference.ToolCall{ID: "c", Name: "f", Arguments: `{"x`}
	for _, each := range []struct {
		members string
		events  []inference.Event
		wanted  string
		calls   int
	}{
		{`"n":1`, []inference.Event{call, {Finish: inference.Stop}}, "tool_calls", 2},
		{`"parallel_tool_calls":false`, []inference.Event{call, {Finish: inference.ToolCalls}}, "tool_calls", 1},
		{`"n":1`, []inference.Event{{Finish: inference.ToolCalls}}, "stop", 0},
		{`"n":1`, []inference.Event{call, {Finish: inference.Length}}, "length", 2},
		{`"n":1`, []inference.Event{{Text: "x"}, {Finish: inference.Cancelled}}, "length", 0},
		{`"n":1`, []inference.Event{call, {Finish: inference.Length, CutCall: cut}}, "length", 3},
		{`"n":1`, []inference.Event{{Finish: inference.Stop, CutCall: cut}}, "stop", 1},
		{`"parallel_tool_calls":false`, []inference.Event{call, {Finish: inference.Length, CutCall: cut}}, "length", 1},
	} {
		for _, streamed := range []string{`,"stream":true`, ""} {
			reply := play(each.members+streamed, each.events...)
			if !strings.Contains(reply, `"finish_reason":"`+each.wanted+`"`) || strings.Count(reply, `"type":"function"`) != each.calls {
				t.Errorf("%s, %d calls wanted: %s", each.wanted, each.calls, reply)
			}
			if streamed == "" && (each.calls > 0) != strings.Contains(reply, `"content":null`) {
				t.Errorf("content: %s", reply)
			}
		}
	}
}

func TestEventsOfNoTextAreLeftOut(t *testing.T) {
	if reply := play(`"stream":true`, inference.Event{Index: 7, Text: "x"}, inference.Event{Index: -1, Text: "x"}); strings.Contains(reply, `"x"`) {
		t.Errorf("%s", reply)
	}
}

func TestStreamsEndWithErrors(t *testing.T) {
	failed := inference.Event{Finish: inference.Failed, Failure: &inference.Error{Kind: inference.Overloaded, Message: "no room", Param: "model"}}
	failure := `{"error":{"message":"no room","type":"server_error","param":"model","code":"overloaded"}}`
	if reply := play(`"stream":true`, inference.Event{Text: "x"}, failed); !strings.HasSuffix(reply, "data: "+failure+"\n\ndata: [DONE]\n\n") {
		t.Errorf("%s", reply)
	}
	if reply := play(`"n":1`, inference.Event{Text: "x"}, failed); reply != failure {
		t.Errorf("%s", reply)
	}
}
