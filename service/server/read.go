package server

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
)

// readJSON reads the body of a call, which is JSON.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, call *dialect.Call) error {
	return s.readBody(w, r, call, nil, 0)
}

// readBody reads JSON, or one of other types, which is not looked into; most 0 is the server's own bound.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, call *dialect.Call, others []string, most int64) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	other := isOneOf(r.Header.Get("Content-Type"), others)
	if err := checkType(r.Header.Get("Content-Type")); err != nil && !other {
		w.Header().Set("Connection", "close")
		return err
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		w.Header().Set("Connection", "close")
		return &inference.Error{Kind: http.StatusUnsupportedMediaType, Message: "found a body with Content-Encoding " + encoding + ", wanted it as it is"}
	}
	if most < s.config.BodyBytes {
		most = s.config.BodyBytes
	}
	bytes, err := s.body(r, most)
	if err != nil {
		w.Header().Set("Connection", "close")
		return bodyError(err)
	}
	call.Body, call.Received = bytes, time.Now()
	if other {
		return nil
	}
	return checkDepth(bytes, s.config.Depth)
}

// isOneOf says whether a Content-Type is one of some.
func isOneOf(given string, types []string) bool {
	kind, _, err := mime.ParseMediaType(given)
	if err != nil {
		return false
	}
	for _, one := range types {
		if kind == one {
			return true
		}
	}
	return false
}

// checkType accepts JSON, and what curl and old clients say of it.
func checkType(given string) error {
	if given == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "text/plain" || kind == "application/x-www-form-urlencoded") {
		return nil
	}
	return &inference.Error{Kind: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "found a body of type " + given + ", wanted application/json"}
}

// bodyError turns the error of a body that did not come whole or in time into one for the client.
func bodyError(err error) error {
	var slow *slowBody
	if !errors.As(err, &slow) {
		return err
	}
	if errors.Is(slow.err, os.ErrDeadlineExceeded) {
		return &inference.Error{Kind: http.StatusRequestTimeout, Code: "slow_body", Message: "the body came too slowly"}
	}
	return &inference.Error{Kind: inference.Invalid, Code: "incomplete_body", Message: "the body ended before its Content-Length"}
}
