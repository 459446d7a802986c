package models

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// stream is a request of the engine.
type stream struct {
	loaded  *loaded
	request *tessera.Request
	asked   inference.Request
	stops   []string
	entered int64 // estimated tokens in the queue; 0 once it has begun

	mutex sync.Mutex // Close comes from another goroutine than Next
	usage inference.Usage
	tails map[int][]int32 // the latest tokens of each text, where several stop texts could have ended it
}

func newStream(m *loaded, request *tessera.Request, asked inference.Request, options tessera.Options, entered int64) *stream {
	s := &stream{loaded: m, request: request, asked: asked, stops: stopTexts(options["stop"]), entered: entered}
	if len(s.stops) > 1 {
		s.tails = map[int][]int32{}
	}
	return s
}

// stopTexts returns the texts of the option stop, which is one text or a JSON array of texts.
func stopTexts(option any) []string {
	text, given := option.(string)
	if !given || text == "" {
		return nil
	}
	var several []string
	if text[0] == '[' && json.Unmarshal([]byte(text), &several) == nil {
		return several
	}
	return []string{text}
}

// Next returns the next event of the request. The end of ctx ends the request.
func (s *stream) Next(ctx context.Context) (inference.Event, error) {
	events := s.request.Stream(ctx)
	for {
		if !events.Next() {
			s.begun()
			if err := events.Err(); err != nil {
				return inference.Event{}, serviceError(err)
			}
			return inference.Event{}, io.EOF
		}
		s.begun()
		event := events.Event()
		if event.Kind == tessera.EventLogits || event.Kind == tessera.EventPending {
			continue
		}
		return s.split(event)
	}
}

// begun takes the request out of the queue's count.
func (s *stream) begun() {
	s.mutex.Lock()
	entered := s.entered
	s.entered = 0
	s.mutex.Unlock()
	if entered > 0 {
		s.loaded.queue.leave(entered)
	}
}

// Usage is final at the end. Before it the prompt's tokens are counted by the tokenizer when they are asked for.
func (s *stream) Usage() inference.Usage {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.usage.Prompt == 0 {
		s.usage.Prompt = s.countPrompt()
	}
	return s.usage
}

func (s *stream) countPrompt() int64 {
	switch {
	case s.asked.Messages != nil:
		o := opened{loaded: s.loaded}
		if _, ids, err := o.Render(s.asked.Messages, s.asked.Options); err == nil {
			return int64(len(ids))
		}
	case s.asked.Prompt.Tokens != nil:
		return int64(len(s.asked.Prompt.Tokens))
	default:
		if ids, err := s.loaded.tokenizer.EncodeWith(s.asked.Prompt.Words, tessera.EncodeBOS); err == nil {
			return int64(len(ids))
		}
	}
	return 0
}

// Close cancels the request if it is in progress, and drops its events.
func (s *stream) Close() {
	s.begun()
	s.request.Stream(context.Background()).Stop()
}
