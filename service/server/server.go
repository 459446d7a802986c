package server

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tessera.dev/service/keys"
)

// Server serves dialects over HTTP/1.1.
type Server struct {
	config   Config
	http     *http.Server
	routes   routes
	rates    *keys.Rates
	openapi  []byte // of /openapi.json, which is large and does not change
	draining atomic.Bool
	running  sync.WaitGroup // requests

	trimming atomic.Bool // a trim is due

	endings sync.Mutex
	ends    map[uint64]context.CancelFunc // of requests in progress, which have their time when the service stops
	nextEnd uint64
	ended   bool
}

// New makes a server; Serve begins.
func New(config Config) *Server {
	config.fill()
	s := &Server{config: config, rates: keys.NewRates(), ends: map[uint64]context.CancelFunc{}}
	for _, d := range config.Dialects {
		s.add(d)
	}
	s.addBuiltIn()
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: config.HeaderTime,
		ReadTimeout:       2 * config.HeaderTime, // of bodies that no handler reads, which net/http does; body and paced have deadlines of their own
		IdleTimeout:       config.IdleTime,
		MaxHeaderBytes:    32 << 10,
		ConnContext:       keepConnection,
		ErrorLog:          log.New(logWriter{s}, "", 0),
		// No HTTP/2: a map that is not nil turns it off.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return s
}

// logWriter passes lines of net/http on.
type logWriter struct{ server *Server }

func (l logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level := "warning"
	if strings.Contains(text, "TLS handshake error") {
		level = "debug"
	}
	l.server.config.Log(level, text, nil)
	return len(line), nil
}

// Serve answers until Shutdown. certificate and key are files of TLS, or empty.
func (s *Server) Serve(listener net.Listener, certificate, key string) (err error) {
	if certificate != "" {
		err = s.http.ServeTLS(listener, certificate, key)
	} else {
		err = s.http.Serve(listener)
	}
	if err == http.ErrServerClosed {
		return nil
	}
	return err
}

// Handler is the server's, for tests.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// A body of largeBody bytes takes many times as much memory while it is read and answered, which allocators keep.
const largeBody = 1 << 20

// trimAfter has memory given back a while after a body of so many bytes; -1 bytes: unknown. Bodies within that time share one trim.
func (s *Server) trimAfter(bytes int64) {
	isLarge := bytes >= largeBody || bytes < 0
	if s.config.Trim != nil && isLarge && s.trimming.CompareAndSwap(false, true) {
		time.AfterFunc(s.config.TrimTime, func() {
			s.trimming.Store(false)
			s.config.Trim()
		})
	}
}

// lastWords is the time for the ends of streams that were cut off, and for idle connections.
const lastWords = 2 * time.Second

// Shutdown refuses new requests, waits for those in progress until the context ends, and then ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	var cut error
	select {
	case <-done:
	case <-ctx.Done():
		cut = ctx.Err()
	}
	s.endAll()
	last, end := context.WithTimeout(context.Background(), lastWords)
	defer end()
	select {
	case <-done:
	case <-last.Done():
	}
	if err := s.http.Shutdown(last); err != nil {
		_ = s.http.Close()
	}
	<-done
	return cut
}
