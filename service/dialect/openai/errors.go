// Package openai is what the dialects of OpenAI's API have in common: errors, usage, log probabilities, server-sent events, and
// how settings of sampling, constraints, tools and conversations are read.
package openai

import (
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

var errorTypes = map[inference.Kind]struct{ name, code string }{
	inference.Invalid:         {"invalid_request_error", ""},
	inference.Unauthenticated: {"authentication_error", "invalid_api_key"},
	inference.Forbidden:       {"permission_error", ""},
	inference.NotFound:        {"not_found_error", ""},
	inference.Conflict:        {"conflict_error", ""},
	inference.TooLarge:        {"invalid_request_error", "request_too_large"},
	inference.Limited:         {"rate_limit_error", "rate_limit_exceeded"},
	inference.Internal:        {"server_error", ""},
	inference.Unsupported:     {"not_supported_error", ""},
	inference.Overloaded:      {"server_error", "overloaded"},
}

// Errors returns an error's status and its body {"error": {"message", "type", "param", "code"}}, always with all four members.
func Errors(failure *inference.Error, _ string) (status int, body []byte) {
	kind := errorTypes[failure.Kind]
	if kind.name == "" {
		kind.name = "server_error"
		if failure.Kind < 500 {
			kind.name = "invalid_request_error"
		}
	}
	code := failure.Code
	if code == "" {
		code = kind.code
	}
	return failure.Kind.Status(), wire.JSON(errorBody{errorDetail{failure.Message, kind.name, textOrNull(failure.Param), textOrNull(code)}})
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Broken returns the end of a stream after an error in its middle: an event with the error, and Done.
func Broken(failure *inference.Error) []byte {
	_, body := Errors(failure, "")
	return append(event(body), Done...)
}
