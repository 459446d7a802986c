package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
)

// closing is a file of a download.
type closing struct{ io.ReadSeeker }

func (closing) Close() error { return nil }

func withOrigins(log func(level, message string, fields map[string]any)) *Server {
	known := &keys.Memory{}
	known.Add("right", keys.Key{Tenant: "a"})
	return New(Config{Keys: known, Log: log, Dialects: []dialect.Dialect{{
		Plains: []dialect.Plain{{Method: "GET", Path: "/origin", Reply: func(call *dialect.Call, _ inference.Models, _ <-chan struct{}) (any, error) {
			return call.Origin, nil
		}}},
		Downloads: []dialect.Download{
			{Method: "GET", Path: "/kept/{id}", Open: func(*dialect.Call) (dialect.Content, error) {
				return dialect.Content{Reader: closing{strings.NewReader("kept")}}, nil
			}},
			{Method: "GET", Path: "/secret/{id}", Unkeyed: true, Open: func(*dialect.Call) (dialect.Content, error) {
				return dialect.Content{Reader: closing{strings.NewReader("text")}}, nil
			}},
		}}}})
}

func ask(s *Server, change func(r *http.Request), method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestTheOriginIsWhatTheClientCalled(t *testing.T) {
	s := withOrigins(nil)
	for _, each := range []struct {
		wanted string
		change func(r *http.Request)
	}{
		{`"http://localhost:8080"`, func(*http.Request) {}},
		{`"https://localhost:8080"`, func(r *http.Request) { r.TLS = &tls.ConnectionState{} }},
		{`"https://localhost:8080"`, func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }},
		{`"http://localhost:8080"`, func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "gopher") }},
		{`"http://127.0.0.1"`, func(r *http.Request) { r.Host = "127.0.0.1" }},
	} {
		found := ask(s, func(r *http.Request) { each.change(r); r.Header.Set("X-Api-Key", "right") }, "GET", "/origin").Body.String()
		if found != each.wanted {
			t.Errorf("found %s, wanted %s", found, each.wanted)
		}
	}
}

func TestOnlyDownloadsWithoutAKeyAskForNone(t *testing.T) {
	var said []string
	s := withOrigins(func(_, _ string, fields map[string]any) { said = append(said, fmt.Sprint(fields["path"])) })
	if found := ask(s, nil, "GET", "/kept/a"); found.Code != http.StatusUnauthorized {
		t.Errorf("found %d", found.Code)
	}
	if found := ask(s, nil, "GET", "/secret/a"); found.Code != 200 || found.Body.String() != "text" {
		t.Errorf("found %d %q", found.Code, found.Body)
	}
	defer func() {
		if found := strings.Join(said, " "); found != "/kept/a /secret/{id} /secret/{id}" { // the log opens nothing
			t.Errorf("logged: found %s", found)
		}
	}()
	if found := ask(s, nil, "HEAD", "/secret/a"); found.Code != 200 || found.Body.Len() != 0 || found.Header().Get("Content-Length") != "4" {
		t.Errorf("found %d %q", found.Code, found.Body)
	}
}
