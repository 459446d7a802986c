// Package responses is OpenAI's POST /v1/responses without stored state, with the whole object of Open Responses (2026-04-24) and
// its events, and /v1/responses/input_tokens.
package responses

import (
	_ "embed" // the document
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// New returns the dialect.
func New() dialect.Dialect {
	plain := func(method, path string, reply func(*dialect.Call, inference.Models, <-chan struct{}) (any, error)) dialect.Plain {
		return dialect.Plain{Method: method, Path: path, Reply: reply, Errors: openai.Errors}
	}
	return dialect.Dialect{
		Endpoints: []dialect.Endpoint{{Method: "POST", Path: "/v1/responses", Decode: decode, Errors: openai.Errors}},
		Plains: []dialect.Plain{
			plain("POST", "/v1/responses/input_tokens", countTokens),
			plain("GET", "/v1/responses", upgrade),
			plain("POST", "/v1/responses/compact", unknown("conversations are not compacted here; drop old items of the input")),
			plain("GET", "/v1/responses/{id}", unknown(notStored)),
			plain("POST", "/v1/responses/{id}", unknown(notStored)),
			plain("DELETE", "/v1/responses/{id}", unknown(notStored)),
		},
		Document: document,
	}
}

const notStored = "responses are not stored here; send the whole conversation as 'input'"

// unknown returns a reply that fails as a path that does not exist, with the reason.
func unknown(why string) func(*dialect.Call, inference.Models, <-chan struct{}) (any, error) {
	return func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
		return nil, &inference.Error{Kind: inference.NotFound, Code: "not_found", Message: call.Path + ": " + why}
	}
}

// upgrade answers a WebSocket's request with 426, after which Codex goes on over HTTP at once.
func upgrade(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
	if strings.EqualFold(call.Header.Get("Upgrade"), "websocket") {
		return nil, &inference.Error{Kind: inference.UpgradeRefused, Code: "websocket_not_supported",
			Message: "responses are served over HTTP alone: POST /v1/responses with \"stream\": true"}
	}
	return nil, &inference.Error{Kind: inference.NotFound, Code: "not_found", Message: "responses are not listed here: POST /v1/responses makes one"}
}

// countTokens answers /v1/responses/input_tokens.
func countTokens(call *dialect.Call, models inference.Models, done <-chan struct{}) (any, error) {
	asked, err := read(call, true)
	if err != nil {
		return nil, err
	}
	tokens, err := openai.CountTokens(models, asked.model, asked.talk.JSON(), asked.rendering(), done)
	if err != nil {
		return nil, err
	}
	return struct {
		Object string `json:"object"`
		Tokens int    `json:"input_tokens"`
	}{"response.input_tokens", tokens}, nil
}
