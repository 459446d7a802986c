package fake

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// Server drives dialects, without limits, keys and pings. Its times and ids are always the same, so that replies are.
type Server struct {
	Models   inference.Models
	Dialects []dialect.Dialect
}

// Now is the time of all calls.
var Now = time.Unix(1800000000, 123000000).UTC()

// ID is that of all calls.
const ID = "abcdefghijklmnopqrstuvwx"

// bodyLimit is that of package server by default.
const bodyLimit = 8 << 20

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	call := &dialect.Call{Header: r.Header, Path: r.URL.Path, Query: r.URL.Query(), Body: body, Now: Now, ID: ID}
	if err != nil {
		fail(w, openai.Errors, &inference.Error{Kind: inference.TooLarge, Message: err.Error()})
		return
	}
	if r.URL.Path == "/openapi.json" {
		s.document(w)
		return
	}
	allowed := ""
	for _, whole := range []bool{true, false} { // whole paths first
		for _, each := range s.Dialects {
			for _, endpoint := range each.Endpoints {
				if matches(endpoint.Path, r.URL.Path, whole) {
					if allowed = endpoint.Method; allowed == r.Method {
						s.exchange(w, r, endpoint, call)
						return
					}
				}
			}
			for _, plain := range each.Plains {
				if matches(plain.Path, r.URL.Path, whole) {
					if allowed = plain.Method; allowed == r.Method {
						s.plain(w, r, plain, call)
						return
					}
				}
			}
		}
	}
	status := http.StatusNotFound
	if allowed != "" {
		status = http.StatusMethodNotAllowed
		w.Header().Set("Allow", allowed)
	}
	_, text := openai.Errors(&inference.Error{Kind: inference.NotFound, Message: r.Method + " " + r.URL.Path + " is no endpoint"}, dialect.RequestID(ID))
	write(w, status, "application/json", text)
}

func (s *Server) document(w http.ResponseWriter) {
	var documents []json.RawMessage
	for _, each := range s.Dialects {
		documents = append(documents, each.Document)
	}
	whole, err := dialect.MergeDocuments("Tessera", "echo", documents...)
	if err != nil {
		fail(w, openai.Errors, err)
		return
	}
	write(w, http.StatusOK, "application/json", whole)
}

func matches(pattern, path string, whole bool) bool {
	prefix, _, named := strings.Cut(pattern, "{")
	if whole || !named {
		return pattern == path
	}
	return strings.HasPrefix(path, prefix) && len(path) > len(prefix)
}

func write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func fail(w http.ResponseWriter, form dialect.Errors, err error) {
	var failure *inference.Error
	if !errors.As(err, &failure) {
		failure = &inference.Error{Kind: inference.Internal, Message: err.Error()}
	}
	status, body := form(failure, dialect.RequestID(ID))
	write(w, status, "application/json", body)
}

func (s *Server) plain(w http.ResponseWriter, r *http.Request, plain dialect.Plain, call *dialect.Call) {
	reply, err := plain.Reply(call, s.Models, r.Context().Done())
	if err != nil {
		fail(w, plain.Errors, err)
		return
	}
	body, ok := reply.(json.RawMessage)
	if !ok {
		body = wire.JSON(reply)
	}
	write(w, http.StatusOK, "application/json", body)
}

func (s *Server) exchange(w http.ResponseWriter, r *http.Request, endpoint dialect.Endpoint, call *dialect.Call) {
	exchange, err := endpoint.Decode(call)
	if err != nil {
		fail(w, endpoint.Errors, err)
		return
	}
	model, err := s.Models.Open(r.Context(), exchange.Model())
	if err != nil {
		fail(w, endpoint.Errors, err)
		return
	}
	defer model.Release()
	requests, err := exchange.Requests(model.Info())
	var streams []inference.Stream
	for _, request := range requests {
		var stream inference.Stream
		if stream, err = model.Generate(r.Context(), request); err != nil {
			break
		}
		defer stream.Close()
		streams = append(streams, stream)
	}
	if err != nil {
		fail(w, endpoint.Errors, err)
		return
	}
	begun := exchange.Begin(model.Info(), usages(streams))
	if exchange.Streamed() {
		write(w, http.StatusOK, exchange.ContentType(), begun)
	}
	for i, stream := range streams {
		if err := s.follow(w, r, exchange, i, stream); err != nil {
			var failure *inference.Error
			if errors.As(err, &failure) && exchange.Streamed() {
				_, _ = w.Write(exchange.Broken(failure))
			} else if !exchange.Streamed() {
				fail(w, endpoint.Errors, err)
			}
			return
		}
	}
	end := exchange.End(usages(streams))
	if exchange.Streamed() {
		_, _ = w.Write(end)
		return
	}
	write(w, http.StatusOK, exchange.ContentType(), exchange.Whole())
}

func (s *Server) follow(w http.ResponseWriter, r *http.Request, exchange dialect.Exchange, index int, stream inference.Stream) error {
	for {
		event, err := stream.Next(r.Context())
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if event.Finish == inference.Failed {
			return event.Failure
		}
		piece := exchange.Piece(index, event)
		if exchange.Streamed() && len(piece) > 0 {
			_, _ = w.Write(piece)
			if flusher, ok := w.(http.Flusher); ok {
				flusher.Flush()
			}
		}
	}
}

func usages(streams []inference.Stream) (usage []inference.Usage) {
	for _, stream := range streams {
		usage = append(usage, stream.Usage())
	}
	return usage
}
