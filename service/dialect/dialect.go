// Package dialect is the frame of the wire formats: each is a package below this one, made of pure functions from a request's
// JSON to an inference.Request and from events to bytes. Package server drives them: it reads bodies within limits, opens models,
// collects events, writes and flushes, pings, cancels.
package dialect

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"tessera.dev/service/inference"
)

// Call is an HTTP request whose body has been read within the limits.
type Call struct {
	Header http.Header
	Path   string
	Query  map[string][]string
	Body   []byte
	Tenant string
	Memory int64 // bytes that the key may have in use; 0: any
	Now    time.Time
	ID     string // random, 24 letters and digits, for ids of replies
	// Names are the parts of the path that stand for a {name} of the endpoint's Path, unescaped.
	Names map[string]string
	// Received is when the last byte of the body came.
	Received time.Time
	// Context ends with the connection.
	Context context.Context
	// Origin is the scheme and the host that the client called, as "https://localhost:8080".
	Origin string
}

// Token returns the key that a request was sent with, from either header in which clients send it; "" for none.
func Token(header http.Header) string {
	if given := header.Get("Authorization"); given != "" {
		if kind, token, found := strings.Cut(given, " "); found && strings.EqualFold(kind, "bearer") {
			return strings.TrimSpace(token)
		}
	}
	return strings.TrimSpace(header.Get("X-Api-Key"))
}

// Exchange is a request that asks for texts, and its reply. One goroutine uses it; Piece and End build up the state that Whole
// needs where the reply is not streamed.
type Exchange interface {
	Model() string
	// Requests returns the requests for the engine, as many as there are prompts. known describes the model.
	Requests(known inference.Info) ([]inference.Request, error)
	// Streamed says whether Begin, Piece and End are sent as they come; else they are called only for the state, and Whole is
	// the body.
	Streamed() bool
	ContentType() string
	Begin(known inference.Info, usage []inference.Usage) []byte
	Piece(request int, event inference.Event) []byte
	End(usage []inference.Usage) []byte
	Whole() []byte
	// Broken returns the end of a stream after an error in its middle.
	Broken(failure *inference.Error) []byte
	// Ping returns what is sent while nothing else is, so that nothing on the way ends an idle connection; nil for nothing.
	Ping() []byte
}

// Endpoint is a path that asks for texts. An event that Failed does not reach Piece: the driver ends a stream with Broken, and
// answers with Errors where nothing has been sent.
type Endpoint struct {
	Method, Path string
	// CountsFirst: Begin needs the prompts' tokens, which then are counted before the first of them is computed.
	CountsFirst bool
	Decode      func(call *Call) (Exchange, error)
	Errors      Errors
}

// Plain is a path with a reply of one piece. A segment of Path may be a {name}, as in "/v1/files/{id}"; one at the end takes all
// that follows, slashes included. A body that is json.RawMessage or Bytes is sent as it is.
type Plain struct {
	Method, Path string
	Scope        string // of keys that may call it; "": infer
	// Types are the content types of bodies that Reply reads, other than JSON: "application/x-protobuf".
	Types  []string
	Most   int64 // bytes of a body; 0: as many as of others
	Reply  func(call *Call, models inference.Models, done <-chan struct{}) (body any, err error)
	Errors Errors
}

// Bytes is a reply that is no JSON.
type Bytes struct {
	Type string
	Body []byte
}

// Upload is a path whose body is too large for memory: Reply reads it, at most Most bytes; the call has no Body.
type Upload struct {
	Method, Path string
	Scope        string
	Most         int64
	Reply        func(call *Call, body io.Reader) (any, error)
	Errors       Errors
}

// Download is a path whose reply is a file.
type Download struct {
	Method, Path string
	Scope        string
	Unkeyed      bool // asks for no key: the path itself is a secret
	Open         func(call *Call) (Content, error)
	Errors       Errors
}

// Content is the file of a download, whose reader the server closes.
type Content struct {
	Reader io.ReadSeekCloser
	Type   string // of its content, as "text/csv"
	Name   string // for the client's disk; not trusted
}

// Errors is a dialect's form of errors: the status, and the body as JSON. request is the RequestID of the call.
type Errors func(failure *inference.Error, request string) (status int, body []byte)

// RequestID is the name of a call with this ID, which all replies have in the headers request-id and x-request-id.
func RequestID(id string) string { return "req_" + id }

// Dialect has the paths of a wire format, each with the functions that serve it.
type Dialect struct {
	Endpoints []Endpoint
	Plains    []Plain
	Uploads   []Upload
	Downloads []Download
	// Document is OpenAPI 3.1 of these paths: "paths" and "components", which /openapi.json merges; may be nil.
	Document json.RawMessage
}
