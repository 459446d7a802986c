package tessera

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// How long a wait in C lasts before it looks whether the engine was closed.
const enginePoll = 50 * time.Millisecond

// Request is one of an engine. Each may be collected by a goroutine of its own.
type Request struct {
	engine *Engine
	number int64
	events *requestEvents
}

// Number is what its events have as Request: 0 for the engine's first.
func (r *Request) Number() int64 { return r.some().number }

// some is the request; of a nil or zero one a request of no engine, which refuses everything.
func (r *Request) some() *Request {
	if r == nil || r.events == nil {
		return &Request{number: -1, events: &requestEvents{}}
	}
	return r
}

// Cancel ends it, from any goroutine, with FinishCancelled.
func (r *Request) Cancel() {
	r = r.some()
	r.engine.Cancel(r.number)
}

// Logits is Engine.Logits of a text of this request.
func (r *Request) Logits(index int) ([]float32, error) {
	r = r.some()
	return r.engine.Logits(r.number, index)
}

// Answer is Engine.Answer for a text of this request.
func (r *Request) Answer(index int, logits []float32) error {
	r = r.some()
	return r.engine.Answer(r.number, index, logits)
}

// RequestStream is the events of one request as they come:
//
//	stream := request.Stream(ctx)
//	for stream.Next() {
//		fmt.Print(stream.Event().Text)
//	}
//	if err := stream.Err(); err != nil { ... }
//
// One goroutine at a time collects them.
type RequestStream struct {
	request *Request
	ctx     context.Context
	event   Event
	err     error
}

// Stream collects the request's events that were not collected yet. If the context ends, so does the request, and Err is the
// context's error. Where a text failed, Err is the reason.
func (r *Request) Stream(ctx context.Context) *RequestStream {
	return &RequestStream{request: r.some(), ctx: ctx}
}

// Next waits for the next event; false after the end of all texts, and after an error.
func (s *RequestStream) Next() bool {
	failed := s.event.Failure()
	s.event = Event{Kind: EventPending, Request: -1, Token: -1}
	if s.err == nil {
		s.err = failed
	}
	if s.err != nil {
		return false
	}
	core := s.request.engine.inner()
	for {
		event, wait, err := core.take(s.request.events)
		if err != nil || wait == nil {
			s.event, s.err = event, err
			return err == nil && event.Kind != EventPending
		}
		select {
		case <-wait:
		case <-s.ctx.Done():
			s.Stop()
			s.err = s.ctx.Err()
			return false
		}
	}
}

// Event is what the last Next found.
func (s *RequestStream) Event() Event { return s.event }

// Err is what ended the stream before the end of the texts; nil where all are complete or were cancelled by Cancel.
func (s *RequestStream) Err() error { return s.err }

// Stop cancels the request, whose events that are left are dropped.
func (s *RequestStream) Stop() {
	s.request.engine.inner().drop(s.request.events)
	s.request.Cancel()
}

// Text waits for the request's first text, Texts for all of them. Logits that are asked for are answered as they are.
func (r *Request) Text(ctx context.Context) (string, error) {
	texts, err := r.Texts(ctx)
	if err != nil {
		return "", err
	}
	return texts[0], nil
}

// Texts are those of the request, n of them. If the context ends, so does the request.
func (r *Request) Texts(ctx context.Context) ([]string, error) {
	stream := r.Stream(ctx)
	builders := make([]strings.Builder, stream.request.events.texts)
	for stream.Next() {
		event := stream.Event()
		if event.Kind == EventLogits {
			if err := r.Answer(event.Index, nil); err != nil && !errors.Is(err, ErrNotFound) { // not found: cancelled meanwhile
				stream.Stop()
				return nil, err
			}
		}
		builders[event.Index].WriteString(event.Text)
	}
	if stream.err != nil {
		return nil, stream.err
	}
	texts := make([]string, len(builders))
	for i := range builders {
		texts[i] = builders[i].String()
	}
	return texts, nil
}

// Embedding waits for the request's end, then it is Engine.Embedding. If the context ends, so does the request.
func (r *Request) Embedding(ctx context.Context) ([][]float32, error) {
	if _, err := r.Texts(ctx); err != nil {
		return nil, err
	}
	r = r.some()
	return r.engine.Embedding(r.number)
}

// Scores waits for the request's end, then it is Engine.Scores. If the context ends, so does the request.
func (r *Request) Scores(ctx context.Context) (Scores, error) {
	if _, err := r.Texts(ctx); err != nil {
		return Scores{}, err
	}
	r = r.some()
	return r.engine.Scores(r.number)
}

// requestEvents are those of a request that were not collected yet. The core's mutex guards it.
type requestEvents struct {
	events       []Event
	texts, ended int64 // texts is 0 until submit has returned
	dropped      bool
	changed      chan struct{} // closed at a change; nil where nobody waits
}

func (q *requestEvents) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

func (q *requestEvents) isComplete() bool { return q.texts > 0 && q.ended >= q.texts }

type engineReader int32

const (
	readerNone engineReader = iota
	readerAll               // Next, Events
	readerEach              // streams of requests
)

// engineCore is what an Engine and the goroutine share that distributes events to requests. There is such a goroutine only
// while there are requests in progress whose streams are read.
type engineCore struct {
	handle  *handle
	texts   int64      // of requests without an option n
	reading sync.Mutex // one call of tsr_engine_next at a time

	mutex        sync.Mutex
	reader       engineReader
	requests     map[int64]*requestEvents // whose texts have not all ended
	distributing bool
	err          error // after which nothing comes any more
}

func (c *engineCore) close() {
	c.handle.close()
	_ = c.fail(refuse("the engine is closed"))
}

// fail ends all that wait for events. The first error is the one that they receive, and that is returned.
func (c *engineCore) fail(err error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.err == nil {
		c.err = err
	}
	for _, q := range c.requests {
		q.wake()
	}
	return c.err
}

// choose decides on the first call how events are collected, and then refuses the other way.
func (c *engineCore) choose(reader engineReader) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.chooseLocked(reader)
}

func (c *engineCore) chooseLocked(reader engineReader) error {
	if c.reader == readerNone {
		c.reader = reader
	}
	if c.reader == reader {
		return nil
	}
	message := "the engine's events are collected by streams and texts of its requests, so that Next and Events would find " +
		"none: use one of both, or another engine"
	if reader == readerEach {
		message = "the engine's events are collected by Next or Events, so that a request has none of its own: use one of " +
			"both, or another engine"
	}
	return &Error{Code: FailedPrecondition, Message: message}
}

// entry is the request's, whose events may come before submit has returned. With the mutex held.
func (c *engineCore) entry(number int64) *requestEvents {
	q := c.requests[number]
	if q == nil {
		q = &requestEvents{}
		c.requests[number] = q
	}
	return q
}

func (c *engineCore) add(number, texts int64) *requestEvents {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	q := c.entry(number)
	q.texts = texts
	if q.isComplete() {
		delete(c.requests, number)
	}
	return q
}

func (c *engineCore) inProgress() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.requests) > 0
}

func (c *engineCore) drop(q *requestEvents) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	q.events, q.dropped = nil, true
}

// next takes an event of C, and notes it with its request.
func (c *engineCore) next(timeout time.Duration) (Event, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	h, done := c.handle.use()
	defer done()
	if h == 0 {
		return Event{}, c.fail(refuse("the engine is closed"))
	}
	event, err := takeEvent(h, timeout)
	if err != nil || event.Kind == EventPending {
		return event, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	q := c.entry(event.Request)
	if event.Kind == EventEnd {
		q.ended++
	}
	if q.isComplete() {
		delete(c.requests, event.Request)
	}
	if c.reader == readerEach && !q.dropped {
		q.events = append(q.events, event)
		q.wake()
	}
	return event, nil
}

// take is the next event of a request; EventPending where there are no more; or what is closed when that may have changed.
func (c *engineCore) take(q *requestEvents) (Event, <-chan struct{}, error) {
	none := Event{Kind: EventPending, Request: -1, Token: -1}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.chooseLocked(readerEach); err != nil {
		return none, nil, err
	}
	if len(q.events) > 0 {
		event := q.events[0]
		if q.events = q.events[1:]; len(q.events) == 0 {
			q.events = nil
		}
		return event, nil, nil
	}
	if q.dropped || q.isComplete() {
		return none, nil, nil
	}
	if c.err != nil {
		return none, nil, c.err
	}
	if !c.distributing {
		c.distributing = true
		go c.distribute()
	}
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return none, q.changed, nil
}

// distribute collects events for the requests until none is in progress.
func (c *engineCore) distribute() {
	for {
		c.mutex.Lock()
		if len(c.requests) == 0 || c.err != nil {
			c.distributing = false
			c.mutex.Unlock()
			return
		}
		c.mutex.Unlock()
		if _, err := c.next(enginePoll); err != nil {
			_ = c.fail(err)
		}
	}
}
