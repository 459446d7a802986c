// Package messages is Anthropic's POST /v1/messages and /v1/messages/count_tokens.
package messages

import (
	_ "embed" // the document

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// New is the dialect.
func New() dialect.Dialect {
	return dialect.Dialect{
		Endpoints: []dialect.Endpoint{{Method: "POST", Path: "/v1/messages", Decode: decode, Errors: Errors}},
		Plains: []dialect.Plain{
			{Method: "POST", Path: "/v1/messages/count_tokens", Reply: countTokens, Errors: Errors},
			{Method: "POST", Path: "/v1/messages/batches", Reply: batches, Errors: Errors},
			{Method: "GET", Path: "/v1/messages/batches", Reply: batches, Errors: Errors},
		},
		Document: document,
	}
}

func batches(*dialect.Call, inference.Models, <-chan struct{}) (any, error) {
	return nil, &inference.Error{Kind: inference.NotFound, Message: "batches of messages are not served here; send each message by itself"}
}

type errorBody struct {
	Type      string      `json:"type"`
	Error     errorDetail `json:"error"`
	RequestID string      `json:"request_id"`
}

type errorDetail struct {
	Type    string        `json:"type"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

// errorDetails names the cause, for programs.
type errorDetails struct {
	Code string `json:"error_code"`
}

var errorTypes = map[inference.Kind]string{
	inference.Invalid:         "invalid_request_error",
	inference.Unauthenticated: "authentication_error",
	inference.Forbidden:       "permission_error",
	inference.NotFound:        "not_found_error",
	inference.Conflict:        "invalid_request_error",
	inference.TooLarge:        "request_too_large",
	inference.UpgradeRefused:  "invalid_request_error",
	inference.Limited:         "rate_limit_error",
	inference.Unsupported:     "invalid_request_error",
	inference.Overloaded:      "overloaded_error",
}

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

func newErrorBody(failure *inference.Error, request string) errorBody {
	kind := errorTypes[failure.Kind]
	if kind == "" {
		kind = "api_error"
	}
	detail := errorDetail{Type: kind, Message: failure.Message}
	if failure.Code != "" {
		detail.Details = &errorDetails{failure.Code}
	}
	return errorBody{Type: "error", Error: detail, RequestID: request}
}

// Errors is the form {"type": "error", "error": {"type", "message", "details"}, "request_id"}.
func Errors(failure *inference.Error, request string) (status int, body []byte) {
	status = failure.Kind.Status()
	if failure.Kind == inference.Overloaded {
		status = statusOverloaded
	}
	return status, wire.JSON(newErrorBody(failure, request))
}

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
		Tokens int `json:"input_tokens"`
	}{tokens}, nil
}
