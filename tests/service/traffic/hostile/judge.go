package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// judge says what is wrong with the replies to an attack; "" for nothing.
func judge(a *attack, replies []reply, err error, state string) string {
	if err != nil {
		return err.Error()
	}
	if a.whole && len(replies) != 1 {
		return fmt.Sprintf("found %d replies, wanted 1", len(replies))
	}
	if a.marks != nil && len(replies) != len(a.marks) {
		return fmt.Sprintf("found %d replies, wanted %d", len(replies), len(a.marks))
	}
	for i := range replies {
		if fault := judgeReply(a, &replies[i], state); fault != "" {
			return fault
		}
		if a.marks != nil && !bytes.Contains(replies[i].body, []byte(a.marks[i])) {
			return fmt.Sprintf("reply %d is not that of request %q: %.300s", i, a.marks[i], replies[i].body)
		}
	}
	return ""
}

func judgeReply(a *attack, r *reply, state string) string {
	ours := r.header.Get("X-Request-Id") != "" // else it is net/http's, to what is no HTTP
	describe := func(what string) string { return fmt.Sprintf("%s: %d %.400s", what, r.status, r.body) }
	switch {
	case r.status >= 500 && ours, r.status >= 500 && r.status != http.StatusNotImplemented && r.status != http.StatusHTTPVersionNotSupported:
		return describe("a fault of the service")
	case a.smuggled != "" && bytes.Contains(r.body, []byte("there is no path")) && bytes.Contains(r.body, []byte(a.smuggled)):
		return describe("a request hidden in a body was served")
	case bytes.Contains(r.body, []byte("root:x:0:")) || bytes.Contains(r.body, []byte("goroutine ")) || bytes.Contains(r.body, []byte(state)):
		return describe("the reply tells of files or of the program")
	case r.header.Get("X-Injected") != "" || r.header.Get("X") != "":
		return describe("a header of the request's making")
	case len(r.body) == 0 || a.head || !ours:
		return ""
	case r.status >= 400:
		return judgeError(r, describe)
	case strings.HasPrefix(r.header.Get("Content-Type"), "application/json") && !json.Valid(r.body):
		return describe("the reply is no JSON")
	}
	return ""
}

// judgeError: errors have a message, in the form of one of the dialects.
func judgeError(r *reply, describe func(what string) string) string {
	if r.status == http.StatusRequestedRangeNotSatisfiable || r.status == http.StatusPreconditionFailed {
		return "" // of http.ServeContent
	}
	var said struct {
		Error  json.RawMessage
		Detail string
	}
	if err := json.Unmarshal(r.body, &said); err != nil {
		return describe("the error is no JSON")
	}
	var error struct{ Message string }
	text := ""
	if json.Unmarshal(said.Error, &error) != nil {
		_ = json.Unmarshal(said.Error, &text)
	}
	if error.Message == "" && text == "" && said.Detail == "" {
		return describe("the error has no message")
	}
	return ""
}
