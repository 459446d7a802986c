package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
)

// exchange drives one request for texts.
type exchange struct {
	server   *Server
	endpoint *dialect.Endpoint
	dialect.Exchange
	w       *statusWriter
	r       *http.Request
	ctx     context.Context
	key     keys.Key
	model   inference.Info
	streams []inference.Stream
	usage   []inference.Usage
	begun   time.Time
	timing  timing
}

// arrival is an event of one of the requests, or its end.
type arrival struct {
	request int
	event   inference.Event
	err     error
	at      time.Time
}

func (s *Server) serveEndpoint(e dialect.Endpoint) func(http.ResponseWriter, *http.Request, *dialect.Call, keys.Key) {
	return func(w http.ResponseWriter, r *http.Request, call *dialect.Call, key keys.Key) {
		if err := s.readJSON(w, r, call); err != nil {
			s.fail(w, r, e.Errors, err)
			return
		}
		ctx, end := s.ending(r)
		defer end()
		x := &exchange{server: s, endpoint: &e, w: w.(*statusWriter), r: r, ctx: ctx, key: key, begun: call.Now}
		if err := x.run(call); err != nil {
			x.failed(err)
		}
	}
}

// run is the whole exchange; an error is one before the reply has begun.
func (x *exchange) run(call *dialect.Call) (err error) {
	if x.Exchange, err = x.endpoint.Decode(call); err != nil {
		return err
	}
	call.Body = nil
	model, err := x.server.config.Models.Open(x.ctx, x.Model())
	if err != nil {
		return err
	}
	defer model.Release()
	x.model = model.Info()
	requests, err := x.Requests(x.model)
	if err != nil {
		return err
	}
	defer x.close()
	for _, request := range requests {
		request.Tenant = x.key.Tenant
		stream, err := model.Generate(x.ctx, request)
		if err != nil {
			return err
		}
		x.streams = append(x.streams, stream)
	}
	x.timing.submit(x, call.Received)
	x.usage = make([]inference.Usage, len(x.streams))
	if x.endpoint.CountsFirst {
		x.takeUsage()
	}
	if x.Streamed() {
		return x.stream()
	}
	return x.collect()
}

func (x *exchange) takeUsage() {
	for i, stream := range x.streams {
		x.usage[i] = stream.Usage()
	}
}

func (x *exchange) close() {
	for _, stream := range x.streams {
		stream.Close()
	}
	if x.key.Tokens == 0 {
		return
	}
	tokens := int64(0)
	for _, stream := range x.streams {
		used := stream.Usage()
		tokens += used.Prompt + used.Generated
	}
	x.server.rates.Spend(x.key, tokens)
}

// read passes the events of all requests on, from a goroutine each. wait ends once they have ended.
func (x *exchange) read(ctx context.Context) (arrivals <-chan arrival, wait func()) {
	channel := make(chan arrival, 4)
	var readers sync.WaitGroup
	for i := range x.streams {
		readers.Add(1)
		go func(i int) {
			defer readers.Done()
			for {
				event, err := x.streams[i].Next(ctx)
				select {
				case channel <- arrival{i, event, err, time.Now()}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}(i)
	}
	return channel, readers.Wait
}

// take is an arrival: bytes for the client, whether its request has ended, or what went wrong.
func (x *exchange) take(a arrival) (bytes []byte, ended bool, err error) {
	if a.err == io.EOF {
		return nil, true, nil
	}
	if a.err != nil {
		return nil, false, a.err
	}
	x.timing.event(x, &a.event)
	if a.event.Finish == inference.Failed {
		if a.event.Failure != nil {
			return nil, false, a.event.Failure
		}
		return nil, false, &inference.Error{Kind: inference.Internal, Message: "the text failed"}
	}
	return x.Piece(a.request, a.event), false, nil
}

// collect is a reply of one piece.
func (x *exchange) collect() error {
	ctx, end := context.WithCancel(x.ctx)
	arrivals, wait := x.read(ctx)
	defer wait()
	defer end()
	x.Begin(x.model, x.usage)
	for left := len(x.streams); left > 0; {
		select {
		case a := <-arrivals:
			_, ended, err := x.take(a)
			if err != nil {
				return err
			}
			if ended {
				left--
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	x.takeUsage()
	x.End(x.usage)
	x.timing.end(x)
	x.server.reply(x.w, x.r, http.StatusOK, "application/json", x.Whole())
	return nil
}

// stream writes pieces as they come. After the first byte errors end the stream in the dialect's way.
func (x *exchange) stream() error {
	ctx, end := context.WithCancel(x.ctx)
	arrivals, wait := x.read(ctx)
	defer wait()
	defer end()
	header := x.w.Header()
	header.Set("Content-Type", x.ContentType())
	header.Set("X-Accel-Buffering", "no")
	ping := time.NewTicker(x.server.config.PingTime)
	defer ping.Stop()
	buffer := append([]byte(nil), x.Begin(x.model, x.usage)...)
	for left := len(x.streams); left > 0; {
		if err := x.write(buffer); err != nil {
			return nil // the client is gone
		}
		x.timing.write(x)
		buffer = buffer[:0]
		var err error
		select {
		case a := <-arrivals:
			buffer, left, err = x.gather(buffer, a, arrivals, left)
		case <-ping.C:
			buffer = append(buffer, x.Ping()...)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return x.broken(buffer, err)
		}
	}
	x.takeUsage()
	buffer = append(buffer, x.End(x.usage)...)
	if x.write(buffer) == nil {
		x.timing.write(x)
	}
	x.timing.end(x)
	return nil
}

// gather is an arrival and those that wait behind it, within the buffer's bound.
func (x *exchange) gather(buffer []byte, a arrival, more <-chan arrival, left int) ([]byte, int, error) {
	for {
		bytes, ended, err := x.take(a)
		if err != nil {
			return buffer, left, err
		}
		if buffer = append(buffer, bytes...); ended {
			left--
		} else {
			x.timing.wait(a.at)
		}
		if left == 0 || len(buffer) >= x.server.config.BufferBytes {
			return buffer, left, nil
		}
		select {
		case a = <-more:
		default:
			return buffer, left, nil
		}
	}
}

// write sends bytes within the time of a piece.
func (x *exchange) write(bytes []byte) error {
	if len(bytes) == 0 {
		return nil
	}
	x.server.writeSoon(x.r)
	if _, err := x.w.Write(bytes); err != nil {
		return err
	}
	x.w.Flush()
	return x.r.Context().Err()
}

// broken ends a stream that has begun.
func (x *exchange) broken(buffer []byte, err error) error {
	if x.r.Context().Err() != nil {
		x.timing.count(x, "abort")
		return nil
	}
	failure := x.ended(err)
	x.server.config.Log("warning", "stream broken", map[string]any{"path": x.r.URL.Path, "error": failure.Message})
	x.timing.count(x, "error")
	_ = x.write(append(buffer, x.Broken(failure)...))
	return nil
}

// ended is what the client hears of an error; the service's own end is one.
func (x *exchange) ended(err error) *inference.Error {
	if x.ctx.Err() != nil && x.r.Context().Err() == nil {
		return stopping
	}
	return failureOf(err)
}

// failed answers an error before the reply has begun.
func (x *exchange) failed(err error) {
	if x.r.Context().Err() != nil { // nobody reads it
		x.w.status = clientLeft
		x.timing.count(x, "abort")
		return
	}
	failure := x.ended(err)
	if failure.Kind.Status() >= int(inference.Internal) {
		x.timing.count(x, "error")
	}
	if failure.Kind == inference.Internal {
		x.server.config.Log("error", "request failed", map[string]any{"path": x.r.URL.Path, "error": err.Error()})
	}
	x.server.fail(x.w, x.r, x.endpoint.Errors, failure)
}
