package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
)

// statusWriter notes what was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(bytes []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	count, err := w.ResponseWriter.Write(bytes)
	w.bytes += int64(count)
	return count, err
}

func (w *statusWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// serve is every request: what is checked before any route sees it.
func (s *Server) serve(plain http.ResponseWriter, r *http.Request) {
	s.running.Add(1) // before it is asked whether the service is stopping
	defer s.running.Done()
	begun := time.Now()
	s.writeSoon(r)
	w := &statusWriter{ResponseWriter: plain}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	id := newID()
	header.Set("X-Request-Id", dialect.RequestID(id))
	header.Set("Request-Id", dialect.RequestID(id)) // Anthropic's name
	tenant, path := "", r.URL.Path
	defer func() {
		if found := recover(); found != nil {
			s.recovered(w, r, found)
		}
		s.writeSoon(r) // what net/http still has to write
		if connection := connectionOf(r); connection != nil && header.Get("Connection") == "close" {
			_ = connection.SetReadDeadline(time.Now()) // net/http would read what is left of the body
		}
		s.logRequest(r, w, tenant, path, id, time.Since(begun))
		s.trimAfter(r.ContentLength)
	}()
	found, names, methods := s.routes.find(r.Method, r.URL.EscapedPath())
	var form dialect.Errors
	if found != nil {
		form = found.errors
		if found.open {
			path = found.path // names in it may be what opens it
		}
	}
	if err := s.check(w, r); err != nil {
		header.Set("Connection", "close") // the body is not read
		s.fail(w, r, form, err)
		return
	}
	if r.Header.Get("Upgrade") != "" {
		s.refuseUpgrade(w, r)
		return
	}
	if found == nil {
		s.refusePath(w, r, methods)
		return
	}
	key, err := s.keyOf(r, found)
	if err != nil {
		header.Set("Connection", "close")
		challenge(header, err)
		s.fail(w, r, form, err)
		return
	}
	tenant = key.Tenant
	found.serve(w, r, &dialect.Call{Header: r.Header, Path: r.URL.Path, Query: r.URL.Query(), Tenant: key.Tenant, Memory: key.Memory,
		Now: begun, ID: id, Names: names, Context: r.Context(), Origin: originOf(r)}, key)
}

func (s *Server) recovered(w *statusWriter, r *http.Request, found any) {
	if found == http.ErrAbortHandler {
		panic(found)
	}
	s.config.Log("error", "panic", map[string]any{"path": r.URL.Path, "error": fmt.Sprint(found), "stack": string(debug.Stack())})
	if w.status == 0 {
		w.Header().Set("Connection", "close")
		s.fail(w, r, nil, &inference.Error{Kind: inference.Internal, Message: "an internal error; the service's log has it"})
		return
	}
	panic(http.ErrAbortHandler) // a reply cut off is not taken for a whole one
}

func (s *Server) logRequest(r *http.Request, w *statusWriter, tenant, path, id string, took time.Duration) {
	fields := map[string]any{"method": r.Method, "path": path, "status": w.status, "bytes": w.bytes,
		"seconds": took.Seconds(), "id": id, "remote": r.RemoteAddr}
	if tenant != "" {
		fields["tenant"] = tenant
	}
	if parent := r.Header.Get("Traceparent"); parent != "" && len(parent) < 100 {
		fields["traceparent"] = parent
	}
	level := "info"
	if r.URL.Path == "/health" || r.URL.Path == "/metrics" {
		level = "debug"
	}
	s.config.Log(level, "request", fields)
}

// newID is 24 random letters and digits.
func newID() string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	var random [24]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err)
	}
	for i, value := range random {
		random[i] = letters[int(value)%len(letters)]
	}
	return string(random[:])
}

// lengthRequired is the status of bodies that say no length.
const lengthRequired inference.Kind = http.StatusLengthRequired

// check refuses what no route may see.
func (s *Server) check(w http.ResponseWriter, r *http.Request) error {
	if len(r.TransferEncoding) > 0 && !s.config.Chunked {
		return &inference.Error{Kind: lengthRequired, Code: "length_required",
			Message: "a body with Transfer-Encoding is not read; send it with Content-Length"}
	}
	if r.ProtoMajor != 1 {
		return &inference.Error{Kind: inference.Invalid, Message: "found " + r.Proto + ", wanted HTTP/1.1"}
	}
	if !s.knowsHost(r.Host) {
		return &inference.Error{Kind: inference.Forbidden, Code: "unknown_host", Message: fmt.Sprintf(
			"found the host %q, wanted an address, localhost, or a name that was given with --host-name", r.Host)}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !sameOrigin(origin, r.Host) {
		return &inference.Error{Kind: inference.Forbidden, Code: "foreign_origin", Message: fmt.Sprintf(
			"found the origin %q; pages of other hosts may not use this service", origin)}
	}
	if s.draining.Load() && r.URL.Path != "/metrics" {
		w.Header().Set("Connection", "close")
		return &inference.Error{Kind: inference.Overloaded, Code: "draining", RetryAfter: 10, Message: "the service is stopping; retry later"}
	}
	return nil
}

// knowsHost: an address cannot be rebound to another machine, a name can.
func (s *Server) knowsHost(host string) bool {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "localhost" || net.ParseIP(name) != nil {
		return true
	}
	for _, known := range s.config.Hosts {
		if name == strings.ToLower(known) {
			return true
		}
	}
	return false
}

func sameOrigin(origin, host string) bool {
	parsed, err := url.Parse(origin)
	return err == nil && parsed.Host != "" && strings.EqualFold(parsed.Host, host)
}

func (s *Server) refuseUpgrade(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	s.fail(w, r, nil, &inference.Error{Kind: http.StatusUpgradeRequired, Code: "no_upgrade",
		Message: "this service speaks HTTP/1.1 without upgrades; send the request as POST"})
}

func (s *Server) refusePath(w http.ResponseWriter, r *http.Request, methods []string) {
	w.Header().Set("Connection", "close")
	if methods = allowed(methods); len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		s.fail(w, r, nil, &inference.Error{Kind: http.StatusMethodNotAllowed, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s takes %s, found %s", r.URL.Path, strings.Join(methods, " and "), r.Method)})
		return
	}
	s.fail(w, r, nil, &inference.Error{Kind: inference.NotFound, Code: "unknown_path", Message: fmt.Sprintf("there is no path %q here; /openapi.json lists all", r.URL.Path)})
}

// originOf returns the scheme and the host that the client called. A proxy that ends TLS says so.
func originOf(r *http.Request) string {
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// challenge tells what was wrong with the key, in the terms of RFC 6750: a client may replace a token that expired.
func challenge(header http.Header, err error) {
	if failure := failureOf(err); failure.Kind == inference.Unauthenticated {
		header.Set("WWW-Authenticate", "Bearer")
		if failure.Code == invalidKey {
			header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		}
	}
}

const invalidKey = "invalid_api_key"

// keyOf checks the request's key.
func (s *Server) keyOf(r *http.Request, found *route) (keys.Key, error) {
	if found.open || !s.config.Keys.Any() {
		return keys.Key{Scopes: []keys.Scope{keys.Admin}}, nil
	}
	token := dialect.Token(r.Header)
	if token == "" {
		return keys.Key{}, &inference.Error{Kind: inference.Unauthenticated, Code: "missing_api_key",
			Message: "found no key; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\""}
	}
	key, known := s.config.Keys.Lookup(token)
	if !known {
		return keys.Key{}, &inference.Error{Kind: inference.Unauthenticated, Code: invalidKey, Message: "the key is not known here"}
	}
	if !key.Allows(found.scope) {
		return keys.Key{}, &inference.Error{Kind: inference.Forbidden, Code: "missing_scope", Message: fmt.Sprintf(
			"the key lacks the scope %q, which %s needs", found.scope, found.path)}
	}
	if wait := s.rates.Take(key); wait > 0 {
		return keys.Key{}, &inference.Error{Kind: inference.Limited, Code: "rate_limit_exceeded", RetryAfter: wait,
			Message: fmt.Sprintf("the key's rate of %d requests and %d tokens a minute (0: unlimited) is used up; retry in %d s", key.Requests, key.Tokens, wait)}
	}
	return key, nil
}

// ending returns a context that ends with the request, or with the service's patience while it stops.
func (s *Server) ending(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(r.Context())
	s.endings.Lock()
	defer s.endings.Unlock()
	if s.ended {
		end()
		return ctx, end
	}
	number := s.nextEnd
	s.nextEnd++
	s.ends[number] = end
	return ctx, func() {
		s.endings.Lock()
		delete(s.ends, number)
		s.endings.Unlock()
		end()
	}
}

// endAll ends the contexts of all requests, and of those that follow.
func (s *Server) endAll() {
	s.endings.Lock()
	defer s.endings.Unlock()
	s.ended = true
	for _, end := range s.ends {
		end()
	}
}
