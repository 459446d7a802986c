package tessera

import (
	"context"
	"time"

	"tessera.dev/tessera/raw"
)

// Engine serves many requests at once over one model; the header lists its options under tsr_engine_new. Any goroutine may
// use it. Its events are collected in one of two ways, and the first call of either decides which; the other is refused:
//
//   - by Next or Events, those of all requests, on one goroutine at a time;
//   - by Stream, Text and Texts of each Request, on any number of goroutines.
type Engine struct{ core *engineCore }

// NewEngine plans, and prepares the devices.
func NewEngine(r *Runtime, model *Model, options Options) (*Engine, error) {
	return NewEngineContext(context.Background(), r, model, options)
}

// NewEngineContext is NewEngine, aborted when the context ends; see Runtime.Cancel.
func NewEngineContext(ctx context.Context, r *Runtime, model *Model, options Options) (*Engine, error) {
	c, done := (*handle)(r).use()
	defer done()
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_engine_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_engine_new(c, m, o, out)
		})
	})
	if err != nil {
		return nil, err
	}
	return &Engine{&engineCore{handle: h, texts: textsOf(options, 1), requests: map[int64]*requestEvents{}}}, nil
}

// NewTrainedEngine is an engine on the weights that a trainer trains, without copying them. It uses the trainer's plan, and
// runs between the trainer's updates. The header lists the options under tsr_engine_new_for_trainer.
func NewTrainedEngine(t *Trainer, options Options) (*Engine, error) {
	h, err := (*handle)(t).holdWith(raw.Tsr_engine_free, options, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_engine_new_for_trainer(c, o, out)
	})
	if err != nil {
		return nil, err
	}
	return &Engine{&engineCore{handle: h, texts: textsOf(options, 1), requests: map[int64]*requestEvents{}}}, nil
}

// inner returns the core; for a nil or zero Engine, one whose every call fails.
func (e *Engine) inner() *engineCore {
	if e == nil || e.core == nil {
		return &engineCore{err: refuse("the engine is nil or zero, wanted one of NewEngine")}
	}
	return e.core
}

// Close ends requests in progress, whose streams and texts fail, and frees the engine; see the package.
func (e *Engine) Close() { e.inner().close() }

// Submit makes a request: a prompt that is continued. The header lists the options under tsr_engine_submit. What is wrong
// with it is an error here, and does no harm to others.
func (e *Engine) Submit(prompt string, options Options) (*Request, error) {
	return e.submit(options, func(c, o uintptr, number *int64) uintptr { return raw.Tsr_engine_submit(c, o, prompt, number) })
}

// SubmitTokens is Submit of token ids.
func (e *Engine) SubmitTokens(ids []int32, options Options) (*Request, error) {
	return e.submit(options, func(c, o uintptr, number *int64) uintptr {
		return raw.Tsr_engine_submit_tokens(c, o, ids, number)
	})
}

// SubmitMessages is Submit of a conversation, as Chat.Render takes it: []Message, JSON, or what marshals to it. The request
// is the assistant's next message.
func (e *Engine) SubmitMessages(messages any, options Options) (*Request, error) {
	given, err := messagesJSON(messages)
	if err != nil {
		return nil, err
	}
	return e.submit(options, func(c, o uintptr, number *int64) uintptr {
		return raw.Tsr_engine_submit_messages(c, o, given, number)
	})
}

func (e *Engine) submit(options Options, call func(c, options uintptr, number *int64) uintptr) (*Request, error) {
	core := e.inner()
	h, done := core.handle.use()
	defer done()
	var number int64
	if err := options.with(func(o uintptr) uintptr { return call(h, o, &number) }); err != nil {
		return nil, err
	}
	return &Request{engine: e, number: number, events: core.add(number, textsOf(options, core.texts))}, nil
}

// textsOf returns the number of texts that a request produces: 1 for embeddings and scores, else option n, else `otherwise`.
// C has already validated the options.
func textsOf(options Options, otherwise int64) int64 {
	if integerOf(options["embed"], 0) == 1 || integerOf(options["score_from"], -1) >= 0 {
		return 1
	}
	return integerOf(options["n"], otherwise)
}

func integerOf(value any, otherwise int64) int64 {
	switch n := value.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case int64:
		return n
	case bool:
		if n {
			return 1
		}
		return 0
	}
	return otherwise
}

// Generate submits all prompts at once, and waits for their texts, in the order of the prompts. After an error, and when the
// context ends, what is left of them is cancelled.
func (e *Engine) Generate(ctx context.Context, prompts []string, options Options) (texts []string, err error) {
	requests := make([]*Request, 0, len(prompts))
	defer func() {
		if err != nil {
			for _, request := range requests {
				request.Cancel()
			}
		}
	}()
	for _, prompt := range prompts {
		request, err := e.Submit(prompt, options)
		if err != nil {
			return nil, err
		}
		requests = append(requests, request)
	}
	texts = make([]string, len(requests))
	for i, request := range requests {
		if texts[i], err = request.Text(ctx); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Next waits for the next event of any request at most so long; negative: as long as there are requests in progress. An event
// of kind EventPending says that there was none.
func (e *Engine) Next(timeout time.Duration) (Event, error) {
	core := e.inner()
	if err := core.choose(readerAll); err != nil {
		return Event{}, err
	}
	for {
		slice := enginePoll
		if timeout >= 0 && timeout < slice {
			slice = timeout
		} else if timeout < 0 && !core.inProgress() {
			slice, timeout = 0, 0
		}
		event, err := core.next(slice)
		if err != nil || event.Kind != EventPending {
			return event, err
		}
		if timeout >= 0 {
			if timeout -= slice; timeout == 0 {
				return event, nil
			}
		}
	}
}

// Events iterates over the events of all requests:
//
//	events := engine.Events(ctx)
//	for events.Next() {
//		event := events.Event()
//		...
//	}
//	if err := events.Err(); err != nil { ... }
type Events struct {
	engine *Engine
	ctx    context.Context
	event  Event
	err    error
}

// Events collects the events of all requests until none is in progress; requests may be submitted meanwhile. If the context
// ends, Next is false and Err the context's error, and the requests go on.
func (e *Engine) Events(ctx context.Context) *Events { return &Events{engine: e, ctx: ctx} }

// Next waits for the next event; false where no request is in progress any more, and after an error.
func (s *Events) Next() bool {
	for s.err == nil {
		if s.err = s.ctx.Err(); s.err != nil {
			break
		}
		busy := s.engine.inner().inProgress()
		timeout := time.Duration(0)
		if busy {
			timeout = streamPoll
		}
		s.event, s.err = s.engine.Next(timeout)
		if s.err == nil && s.event.Kind != EventPending {
			return true
		}
		if !busy {
			break
		}
	}
	s.event = Event{Kind: EventPending, Request: -1, Token: -1}
	return false
}

// Event is what the last Next found.
func (s *Events) Event() Event { return s.event }

// Err is what ended the events before the requests' end.
func (s *Events) Err() error { return s.err }

// Descriptor returns a file descriptor that is readable while events are pending, for poll and event loops that then call
// Next. The engine owns it; do not close it.
func (e *Engine) Descriptor() (int32, error) {
	var descriptor int32
	err := e.inner().handle.call(func(c uintptr) uintptr { return raw.Tsr_engine_descriptor(c, &descriptor) })
	return descriptor, err
}

// Cancel ends a request, from any goroutine, with FinishCancelled. Nothing happens to one that has ended, or never was.
func (e *Engine) Cancel(request int64) {
	c, done := e.inner().handle.use()
	defer done()
	raw.Tsr_engine_cancel(c, request)
}

// Logits returns the logits of a text that has been paused since its EventLogits: [V], as the model gives them.
func (e *Engine) Logits(request int64, index int) ([]float32, error) {
	c, done := e.inner().handle.use()
	defer done()
	var items []float32
	for {
		var count uint64
		if err := failure(raw.Tsr_engine_logits(c, request, index, items, &count)); err != nil {
			return nil, err
		}
		if count <= uint64(len(items)) {
			return items[:count], nil
		}
		items = make([]float32, count)
	}
}

// Answer resumes the text paused by EventLogits, sampling from these logits; -inf excludes a token; nil: the model's own.
func (e *Engine) Answer(request int64, index int, logits []float32) error {
	return e.inner().handle.call(func(c uintptr) uintptr { return raw.Tsr_engine_answer(c, request, index, logits) })
}

// Embedding returns the result of a finished request with the option embed: one row, or with the option pooling=none one row
// for each prompt token. It can be taken once: ErrNotFound otherwise, and the second time.
func (e *Engine) Embedding(request int64) ([][]float32, error) {
	c, done := e.inner().handle.use()
	defer done()
	var width, count uint64
	if err := failure(raw.Tsr_engine_embedding_width(c, &width)); err != nil {
		return nil, err
	}
	if err := failure(raw.Tsr_engine_take_embedding(c, request, nil, &count)); err != nil {
		return nil, err
	}
	values := make([]float32, count)
	if err := failure(raw.Tsr_engine_take_embedding(c, request, values, &count)); err != nil {
		return nil, err
	}
	return inRows(values, count, width)
}

// Scores returns the scores of a finished request with the option score_from, for prompt tokens from that index on. They can
// be taken once: ErrNotFound otherwise, and the second time.
func (e *Engine) Scores(request int64) (Scores, error) {
	c, done := e.inner().handle.use()
	defer done()
	var count uint64
	if err := failure(raw.Tsr_engine_take_scores(c, request, nil, nil, &count)); err != nil {
		return Scores{}, err
	}
	logprobs, greedy := make([]float32, count), make([]byte, count)
	if err := failure(raw.Tsr_engine_take_scores(c, request, logprobs, &greedy[0], &count)); err != nil {
		return Scores{}, err
	}
	return newScores(logprobs, greedy), nil
}

// Report is JSON: requests, steps, tokens, what was cached, plan, memory.
func (e *Engine) Report() (string, error) { return e.inner().handle.text(raw.Tsr_engine_report) }
