package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"tessera.dev/service/inference"
)

type connectionKey struct{}

// keepConnection lets handlers set deadlines, which http.ResponseController does in later versions of Go.
func keepConnection(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}

func connectionOf(r *http.Request) net.Conn {
	connection, _ := r.Context().Value(connectionKey{}).(net.Conn)
	return connection
}

// writeSoon bounds the next write to the client.
func (s *Server) writeSoon(r *http.Request) {
	if connection := connectionOf(r); connection != nil {
		_ = connection.SetWriteDeadline(time.Now().Add(s.config.WriteTime))
	}
}

// body reads a request's body within its size and at its least speed.
func (s *Server) body(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	connection := connectionOf(r)
	if connection != nil {
		defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	}
	begun := time.Now()
	capacity := r.ContentLength
	if capacity < 0 {
		capacity = 512
	}
	if capacity > 64<<10 { // memory is taken as bytes come, not as they are announced
		capacity = 64 << 10
	}
	bytes := make([]byte, 0, capacity+1)
	for {
		if connection != nil {
			allowed := s.config.HeaderTime + time.Duration(int64(len(bytes))*int64(time.Second)/s.config.BytesASecond)
			_ = connection.SetReadDeadline(begun.Add(allowed))
		}
		if len(bytes) == cap(bytes) {
			bytes = append(bytes, 0)[:len(bytes)]
		}
		count, err := r.Body.Read(bytes[len(bytes):cap(bytes)])
		bytes = bytes[:len(bytes)+count]
		if int64(len(bytes)) > most {
			return nil, tooLarge(most)
		}
		if err == io.EOF {
			return bytes, nil
		}
		if err != nil {
			return nil, &slowBody{err}
		}
	}
}

// slowBody is the error of a body that did not come.
type slowBody struct{ err error }

func (e *slowBody) Error() string { return "the body did not come: " + e.err.Error() }

func tooLarge(most int64) error {
	return &inference.Error{Kind: inference.TooLarge, Code: "request_too_large",
		Message: "the body is larger than " + sizeText(most) + ", which is the most that is read"}
}
