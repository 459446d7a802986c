package ollama

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// reply is a line of a stream, and the whole: of /api/chat with a message, of /api/generate with a response.
type reply struct {
	Model     string                    `json:"model"`
	CreatedAt string                    `json:"created_at"`
	Message   *message                  `json:"message,omitempty"`
	Response  *string                   `json:"response,omitempty"`
	Thinking  string                    `json:"thinking,omitempty"` // with a response
	Logprobs  []openai.PlaceProbability `json:"logprobs,omitempty"`
	Done      bool                      `json:"done"`
	Reason    string                    `json:"done_reason,omitempty"`
	*durations
}

type message struct {
	Role     string     `json:"role"`
	Content  string     `json:"content"`
	Thinking string     `json:"thinking,omitempty"`
	Calls    []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// durations are in nanoseconds.
type durations struct {
	Total       int64 `json:"total_duration"`
	Load        int64 `json:"load_duration"`
	PromptCount int64 `json:"prompt_eval_count"`
	Prompt      int64 `json:"prompt_eval_duration"`
	Count       int64 `json:"eval_count"`
	Eval        int64 `json:"eval_duration"`
}

// newDurations has the wait for a place as time of loading.
func newDurations(used []inference.Usage) *durations {
	d := &durations{}
	for _, each := range used {
		d.Load += nanoseconds(each.Queue)
		d.Prompt += nanoseconds(each.Prefill)
		d.Eval += nanoseconds(each.Decode)
		d.PromptCount += each.Prompt
		d.Count += each.Generated
	}
	d.Total = d.Load + d.Prompt + d.Eval
	return d
}

func nanoseconds(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

// exchange is a request and its reply.
type exchange struct {
	*request
	tenant   string
	created  string
	id       string
	text     strings.Builder
	thinking strings.Builder
	calls    []toolCall
	places   []openai.PlaceProbability
	finish   inference.Finish
	last     reply
}

func decodeChat(call *dialect.Call) (dialect.Exchange, error) { return newExchange(call, readChat) }
func decodeGenerate(call *dialect.Call) (dialect.Exchange, error) {
	return newExchange(call, readGenerate)
}

func newExchange(call *dialect.Call, read func(*dialect.Call) (*request, error)) (dialect.Exchange, error) {
	asked, err := read(call)
	if err != nil {
		return nil, err
	}
	return &exchange{request: asked, tenant: call.Tenant, created: call.Now.UTC().Format(time.RFC3339Nano), id: call.ID}, nil
}

func (x *exchange) Model() string { return x.model }

// Requests has none where the model is only to be loaded.
func (x *exchange) Requests(known inference.Info) ([]inference.Request, error) {
	if x.load {
		return nil, nil
	}
	return []inference.Request{x.engine(known, x.tenant)}, nil
}

func (x *exchange) Streamed() bool { return x.streamed }

func (x *exchange) ContentType() string {
	if x.streamed {
		return "application/x-ndjson"
	}
	return "application/json; charset=utf-8"
}

// Ping is none: lines of JSON have no comments.
func (x *exchange) Ping() []byte { return nil }

func (x *exchange) Begin(inference.Info, []inference.Usage) []byte { return nil }

// line is a reply with these parts.
func (x *exchange) line(text, thinking string, calls []toolCall) reply {
	made := reply{Model: x.model, CreatedAt: x.created}
	if x.chat {
		made.Message = &message{"assistant", text, thinking, calls}
	} else {
		made.Response, made.Thinking = &text, thinking
	}
	return made
}

func (x *exchange) Piece(_ int, piece inference.Event) []byte {
	if piece.Finish != "" {
		x.finish = piece.Finish
	}
	if x.hidden {
		piece.Reasoning = ""
	}
	var calls []toolCall
	for _, call := range piece.Calls {
		made := toolCall{call.ID, toolFunction{len(x.calls), call.Name, openai.Arguments(call.Arguments)}}
		if made.ID == "" {
			made.ID = fmt.Sprintf("call_%s%02d", x.id, len(x.calls))
		}
		x.calls = append(x.calls, made)
		calls = append(calls, made)
	}
	x.text.WriteString(piece.Text)
	x.thinking.WriteString(piece.Reasoning)
	line := x.line(piece.Text, piece.Reasoning, calls)
	if x.logprobs {
		line.Logprobs = openai.Probabilities(piece.Probabilities)
		x.places = append(x.places, line.Logprobs...)
	}
	if !x.streamed || piece.Text == "" && piece.Reasoning == "" && calls == nil && len(line.Logprobs) == 0 {
		return nil
	}
	return wire.Line(line)
}

func (x *exchange) End(used []inference.Usage) []byte {
	if x.streamed {
		x.last = x.line("", "", nil)
	} else {
		x.last = x.line(x.text.String(), x.thinking.String(), x.calls)
		x.last.Logprobs = x.places
	}
	x.last.Done = true
	switch {
	case x.load:
		x.last.Reason = "load"
		return x.lastLine()
	case x.finish == inference.Length || x.finish == inference.Cancelled:
		x.last.Reason = "length"
	default:
		x.last.Reason = "stop"
	}
	x.last.durations = newDurations(used)
	return x.lastLine()
}

func (x *exchange) lastLine() []byte {
	if !x.streamed {
		return nil
	}
	return wire.Line(x.last)
}

func (x *exchange) Whole() []byte { return wire.JSON(x.last) }

func (x *exchange) Broken(failure *inference.Error) []byte {
	return wire.Line(errorBody{failure.Message})
}
