package responses

import (
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// part is the kind of the item in progress.
type part int

const (
	nothing part = iota
	thought
	words
)

// exchange is a request and its response, which grows by events.
type exchange struct {
	*request
	tenant   string
	response object
	sequence int
	out      []byte // events that Begin, Piece or End returns next
	open     part
	id       string // of the item in progress
	text     strings.Builder
	places   []inference.TokenProbability // of the text in progress
	pending  []inference.TokenProbability // of tokens whose text is not certain yet
	calls    int64
	finish   inference.Finish
}

func decode(call *dialect.Call) (dialect.Exchange, error) {
	asked, err := read(call, false)
	if err != nil {
		return nil, err
	}
	return &exchange{request: asked, tenant: call.Tenant, response: asked.echo}, nil
}

func (x *exchange) Model() string { return x.model }

func (x *exchange) Requests(inference.Info) ([]inference.Request, error) {
	return []inference.Request{x.engine(x.tenant)}, nil
}

func (x *exchange) Streamed() bool      { return x.streamed }
func (x *exchange) ContentType() string { return openai.ContentType(x.streamed) }
func (x *exchange) Ping() []byte        { return wire.Comment("ping") }
func (x *exchange) Whole() []byte       { return wire.JSON(x.response) }

// event has the members of all events, of which each has some.
type event struct {
	Type         string                     `json:"type"`
	Sequence     int                        `json:"sequence_number"`
	Response     *object                    `json:"response,omitempty"`
	ItemID       string                     `json:"item_id,omitempty"`
	OutputIndex  *int                       `json:"output_index,omitempty"`
	ContentIndex *int                       `json:"content_index,omitempty"`
	SummaryIndex *int                       `json:"summary_index,omitempty"`
	Item         any                        `json:"item,omitempty"`
	Part         any                        `json:"part,omitempty"`
	Delta        *string                    `json:"delta,omitempty"`
	Text         *string                    `json:"text,omitempty"`
	Arguments    *string                    `json:"arguments,omitempty"`
	Logprobs     *[]openai.PlaceProbability `json:"logprobs,omitempty"`
}

func (x *exchange) emit(kind string, body event) {
	if !x.streamed {
		return
	}
	body.Type, body.Sequence = kind, x.sequence
	x.sequence++
	x.out = append(x.out, wire.Event(kind, body)...)
}

func (x *exchange) take() []byte {
	out := x.out
	x.out = nil
	return out
}

// index returns the output index of the item in progress, whose only part has the index 0.
func (x *exchange) index() *int {
	index := len(x.response.Output)
	return &index
}

var zero = 0

func (x *exchange) Begin(inference.Info, []inference.Usage) []byte {
	x.emit("response.created", event{Response: &x.response})
	x.emit("response.in_progress", event{Response: &x.response})
	return x.take()
}

func (x *exchange) Piece(_ int, piece inference.Event) []byte {
	if piece.Reasoning != "" {
		x.turn(thought)
		x.think(piece.Reasoning)
	}
	x.pending = append(x.pending, piece.Probabilities...)
	if piece.Text != "" {
		x.turn(words)
		x.say(piece.Text)
	} else if piece.Reasoning != "" || piece.Calls != nil || piece.CutCall != nil {
		x.pending = nil // tokens of no text
	}
	for _, call := range piece.Calls {
		x.call(call, "completed")
	}
	if piece.CutCall != nil {
		x.call(*piece.CutCall, "incomplete")
	}
	if piece.Finish != "" {
		x.finish = piece.Finish
	}
	return x.take()
}

func (x *exchange) End(used []inference.Usage) []byte {
	if x.open == nothing && len(x.response.Output) == 0 {
		x.turn(words) // an empty text is an item too
	}
	x.close(x.finish != inference.Length)
	x.response.complete(used)
	switch x.finish {
	case inference.Length:
		x.response.Status, x.response.IncompleteDetails = "incomplete", &incomplete{"max_output_tokens"}
		x.response.CompletedAt = nil
	case inference.Cancelled:
		return x.fail("cancelled", "the request was cancelled before its end")
	default:
		x.response.Status = "completed"
	}
	x.emit("response."+x.response.Status, event{Response: &x.response})
	return append(x.take(), x.last()...)
}

// last returns the end of a stream by Open Responses; nil if the response is not streamed.
func (x *exchange) last() []byte {
	if !x.streamed {
		return nil
	}
	return []byte(openai.Done)
}

func (x *exchange) Broken(wrong *inference.Error) []byte {
	code := wrong.Code
	if code == "" {
		code = "server_error"
	}
	x.close(false)
	return x.fail(code, wrong.Message)
}

func (x *exchange) fail(code, message string) []byte {
	x.response.Status, x.response.Error, x.response.CompletedAt = "failed", &failure{code, message}, nil
	x.emit("response.failed", event{Response: &x.response})
	return append(x.take(), x.last()...)
}
