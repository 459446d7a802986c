package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
)

// kindTypes are the types of OpenAI's errors.
var kindTypes = map[inference.Kind]string{inference.Invalid: "invalid_request_error", inference.NotFound: "invalid_request_error",
	inference.Conflict: "invalid_request_error", inference.TooLarge: "invalid_request_error", inference.Unauthenticated: "authentication_error",
	inference.Forbidden: "permission_error", inference.Limited: "rate_limit_error", inference.Unsupported: "invalid_request_error"}

// plainErrors is the form of errors where no dialect has one: OpenAI's, which most clients read.
func plainErrors(failure *inference.Error, _ string) (int, []byte) {
	kind := kindTypes[failure.Kind]
	if kind == "" {
		kind = "server_error"
	}
	optional := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": failure.Message, "type": kind,
		"param": optional(failure.Param), "code": optional(failure.Code)}})
	return failure.Kind.Status(), body
}

// clientLeft is the status that the log has of requests whose reply nobody reads.
const clientLeft = 499

// failureOf returns an error for the client's eyes: err itself if it is meant for them, else an internal error without its text.
func failureOf(err error) *inference.Error {
	var failure *inference.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &inference.Error{Kind: inference.Internal, Message: "an internal error; the service's log has it"}
}

// stopping is what is in progress hears when the service's patience ends.
var stopping = &inference.Error{Kind: inference.Overloaded, Code: "stopping", Message: "the service is stopping; retry later", RetryAfter: 10}

// fail writes an error in the dialect's form. The end of a request's context is none of the service's faults: the client has left, or the
// service is stopping.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, form dialect.Errors, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if r.Context().Err() != nil {
			w.(*statusWriter).status = clientLeft
			return
		}
		err = stopping
	}
	failure := failureOf(err)
	if failure.Kind == inference.Internal {
		s.config.Log("error", "request failed", map[string]any{"path": r.URL.Path, "error": err.Error()})
	}
	if form == nil {
		form = plainErrors
	}
	status, body := form(failure, w.Header().Get("Request-Id"))
	if failure.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(failure.RetryAfter))
	}
	s.reply(w, r, status, "application/json", body)
}

// reply writes a whole body.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	s.writeSoon(r)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
