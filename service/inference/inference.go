// Package inference is what the dialects ask of models: requests, the events of their texts, and errors. No dialect knows
// anything else of models, and only package models knows the engine behind it.
package inference

import (
	"context"
	"encoding/json"
)

// Models finds the service's models by name: base models, and adapters, each of which is a model name of its own.
type Models interface {
	// List describes the models, loaded or not.
	List() []Info
	// Open returns a model ready for requests. It waits while the model is loaded. An unknown name is an *Error NotFound; a
	// model whose plan does not fit with the models in use is Overloaded.
	Open(ctx context.Context, name string) (Model, error)
}

// Info describes a model.
type Info struct {
	Name    string
	Base    string // of an adapter: the model that it changes
	Created int64  // seconds since 1970: the time of its file, or of the adapter
	Loaded  bool
	Context int64 // tokens of a sequence at most; 0 where it is not loaded and unknown
	// Its uses: "generate", "chat" (has a template), "embed", "score" (has a head of labels).
	Does         []string
	Architecture string
	Parameters   int64
	Bytes        int64  // of its file
	Type         string // of its weights, as q8_0
	Template     string
}

// Model is a reference to a loaded model. Its caller releases it once, after which the model may be unloaded.
type Model interface {
	Info() Info
	Release()
	// Generate submits a request and returns the stream of its events. An invalid request is an *Error, without effect on others.
	Generate(ctx context.Context, request Request) (Stream, error)
	// Embed returns a vector for each text, and the number of the texts' tokens.
	Embed(ctx context.Context, texts []Text, options Options) (vectors [][]float32, tokens int64, err error)
	// Score returns the log probability of each token of the texts from the index `from` on.
	Score(ctx context.Context, texts []Text, from []int) ([][]TokenProbability, error)
	// Rank returns a score of each document for the query, by a model that has a head for it, or as rerankers are prompted.
	Rank(ctx context.Context, query string, documents []string) (scores []float64, tokens int64, err error)
	// Tokenize returns the token ids of a text. With special, control tokens that are written out in it are read as such; with
	// around, the tokens that the tokenizer puts around texts (BOS, [CLS], ...) are added.
	Tokenize(text string, special, around bool) ([]int32, error)
	Detokenize(ids []int32) (string, error)
	// Piece returns the bytes of one token, perhaps not a whole character.
	Piece(id int32) []byte
	// Render returns the text of a conversation by the template, and its tokens.
	Render(messages json.RawMessage, options Options) (text string, tokens []int32, err error)
}

// Options are options of tsr_engine_submit by name, with values of their types: lists and objects are JSON texts.
type Options map[string]any

// Text is a prompt: words, or token ids where these are not nil.
type Text struct {
	Words  string
	Tokens []int32
}

// Request asks for texts. One of Messages and Prompt is given.
type Request struct {
	Messages json.RawMessage // a conversation, in the form of tsr_chat_new
	Prompt   Text
	Options  Options
	// A call of tools that is obliged: "" (the model decides), "none", "required", or "named" with ToolName.
	ToolChoice string
	ToolName   string
	Tenant     string // whose key asked; "" for none
}

// Finish is why a text ended.
type Finish string

// The reasons.
const (
	Stop      Finish = "stop"
	Length    Finish = "length"
	ToolCalls Finish = "tool_calls"
	Cancelled Finish = "cancelled"
	Failed    Finish = "failed"
)

// ToolCall is a call of a tool.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // a JSON object; of CutCall its beginning
}

// TokenProbability is a token and its log probability: -Inf for a probability of 0, NaN for a text's first token, which has none.
type TokenProbability struct {
	Token       int32
	Bytes       []byte
	Probability float64            // its natural logarithm; NaN of a prompt's first token, which has none
	Likeliest   []TokenProbability // as many as were asked for, the likeliest first
}

// Event is a piece of one text of a request, or its end. Text and Reasoning only grow.
type Event struct {
	Index         int
	Text          string
	Reasoning     string
	Calls         []ToolCall
	Probabilities []TokenProbability
	Prompt        []TokenProbability // of the prompt, before all else, where prompt_logprobs asks for it
	Tokens        []int32            // generated since the event before
	Finish        Finish             // "" before the end
	CutCall       *ToolCall          // at the end: the call within which the text ended; its name is complete
	StopText      string             // at the end: the text of `stop` that ended it
	StopToken     *TokenProbability  // at the end: the token that ended it, which is none of Tokens; nil: none
	Failure       *Error             // with Failed
}

// Usage counts tokens of a request, final once Next gave io.EOF.
type Usage struct {
	Prompt    int64
	Cached    int64 // of the prompt's
	Generated int64
	Reasoning int64 // of the generated
	Seed      int64
	// Seconds.
	Queue, Prefill, Decode float64
}

// Stream gives the events of a request in order. One goroutine at a time.
type Stream interface {
	// Next waits. io.EOF after the last event; the context's error where it ended, *Error otherwise.
	Next(ctx context.Context) (Event, error)
	Usage() Usage
	// Close cancels the request if it is in progress, within a step of the engine.
	Close()
}

// Kind is the kind of an error, from which a dialect makes its status and its type.
type Kind int

// The kinds, with their status of HTTP.
const (
	Invalid         Kind = 400 // the request cannot be served as it is
	Unauthenticated Kind = 401
	Forbidden       Kind = 403
	NotFound        Kind = 404
	Conflict        Kind = 409
	TooLarge        Kind = 413
	UpgradeRefused  Kind = 426 // a WebSocket where only HTTP is served
	Limited         Kind = 429 // a rate, or a full queue: RetryAfter says when to ask again
	Internal        Kind = 500
	Unsupported     Kind = 501 // a part of the dialect that this service leaves out, by name; see Status
	Overloaded      Kind = 503 // no room now, or draining
)

// Status returns the HTTP status. It is 400 for Unsupported, since clients try a 5xx again.
func (k Kind) Status() int {
	if k == Unsupported {
		return int(Invalid)
	}
	return int(k)
}

// Error is what went wrong, for the client's eyes: what was found, what was wanted, the remedy.
type Error struct {
	Kind       Kind
	Code       string // as "context_length_exceeded", "model_not_found"; may be empty
	Param      string // the member of the request, as "messages[2].role"
	Message    string
	RetryAfter int // seconds; 0 for none
}

func (e *Error) Error() string { return e.Message }
