package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
)

// fakeModels have one model, which writes a count of words.
type fakeModels struct {
	inference.Model // nil: what is not asked for here
	words           int
	pause           time.Duration
	word            string
	fails           bool
	closed          atomic.Int64
	opened          atomic.Int64
}

func (f *fakeModels) List() []inference.Info { return []inference.Info{{Name: "fake"}} }

func (f *fakeModels) Open(_ context.Context, name string) (inference.Model, error) {
	if name != "fake" {
		return nil, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "model", Message: "no " + name}
	}
	f.opened.Add(1)
	return f, nil
}

func (f *fakeModels) Info() inference.Info { return inference.Info{Name: "fake"} }
func (f *fakeModels) Release()             { f.opened.Add(-1) }

func (f *fakeModels) Generate(_ context.Context, _ inference.Request) (inference.Stream, error) {
	return &fakeStream{models: f}, nil
}

type fakeStream struct {
	models *fakeModels
	next   int
}

func (s *fakeStream) Next(ctx context.Context) (inference.Event, error) {
	select {
	case <-ctx.Done():
		return inference.Event{}, ctx.Err()
	case <-time.After(s.models.pause):
	}
	s.next++
	switch {
	case s.next <= s.models.words:
		return inference.Event{Text: s.models.word, Tokens: []int32{1}}, nil
	case s.next == s.models.words+1 && s.models.fails:
		return inference.Event{Finish: inference.Failed, Failure: &inference.Error{Kind: inference.Internal, Message: "it broke"}}, nil
	case s.next == s.models.words+1:
		return inference.Event{Finish: inference.Stop}, nil
	}
	return inference.Event{}, io.EOF
}

func (s *fakeStream) Usage() inference.Usage {
	return inference.Usage{Prompt: 3, Generated: int64(s.models.words)}
}
func (s *fakeStream) Close() { s.models.closed.Add(1) }

// fakeExchange writes words as they are.
type fakeExchange struct {
	Name   string `json:"model"`
	Stream bool
	text   strings.Builder
}

func decodeFake(call *dialect.Call) (dialect.Exchange, error) {
	x := &fakeExchange{}
	if err := json.Unmarshal(call.Body, x); err != nil {
		return nil, &inference.Error{Kind: inference.Invalid, Message: err.Error()}
	}
	return x, nil
}

func (x *fakeExchange) Model() string { return x.Name }
func (x *fakeExchange) Requests(inference.Info) ([]inference.Request, error) {
	return []inference.Request{{}}, nil
}
func (x *fakeExchange) Streamed() bool      { return x.Stream }
func (x *fakeExchange) ContentType() string { return "text/event-stream" }
func (x *fakeExchange) Begin(inference.Info, []inference.Usage) []byte {
	return []byte("begin|")
}
func (x *fakeExchange) Piece(_ int, event inference.Event) []byte {
	x.text.WriteString(event.Text)
	return []byte(event.Text)
}
func (x *fakeExchange) End(usage []inference.Usage) []byte {
	return []byte(fmt.Sprintf("|end %d", usage[0].Generated))
}
func (x *fakeExchange) Whole() []byte { return []byte(`"` + x.text.String() + `"`) }
func (x *fakeExchange) Broken(failure *inference.Error) []byte {
	return []byte("|broken " + failure.Message)
}
func (x *fakeExchange) Ping() []byte { return []byte(":ping|") }

func fakeDialect() dialect.Dialect {
	return dialect.Dialect{
		Endpoints: []dialect.Endpoint{{Method: "POST", Path: "/texts", Decode: decodeFake}},
		Plains: []dialect.Plain{
			{Method: "GET", Path: "/things/{id}", Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
				return call.Names, nil
			}},
			{Method: "GET", Path: "/things/{id}/parts/{part}", Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
				return call.Names, nil
			}},
			{Method: "POST", Path: "/admin", Scope: "admin", Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
				return json.RawMessage(`{}`), nil
			}},
		},
		Uploads: []dialect.Upload{{Method: "POST", Path: "/files", Most: 1 << 20, Reply: func(_ *dialect.Call, body io.Reader) (any, error) {
			count, err := io.Copy(io.Discard, body)
			return count, err
		}}, {Method: "POST", Path: "/beginnings", Most: 1 << 20, Reply: func(_ *dialect.Call, body io.Reader) (any, error) {
			_, err := io.ReadFull(body, make([]byte, 2))
			return "begun", err
		}}},
	}
}
