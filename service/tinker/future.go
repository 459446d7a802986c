package tinker

import (
	"context"
	"sync"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// Future is the result of a request, once it is there.
type Future struct {
	ID, Run, tenant string
	// Sequences are ids of the texts that a request for samples will have.
	Sequences []string

	cancel context.CancelFunc // nil where it cannot be cancelled
	done   chan struct{}

	mutex    sync.Mutex
	result   any
	err      error
	paused   string // why it waits; "" while it is worked on
	finished time.Time
	told     time.Time // when the result was asked for first
}

// Results of futures other than *Samples.
type (
	// Computed is the result of a forward pass, with or without a backward one.
	Computed struct {
		Fields  []map[string]Tensor // of each datum
		Metrics map[string]float64
	}
	// Stepped is that of an optimizer step.
	Stepped struct{ Metrics map[string]float64 }
	// Created is a run that is ready.
	Created struct{ Run string }
	// Saved is a checkpoint.
	Saved struct{ Path string }
	// Loaded is a run with the state of a checkpoint.
	Loaded struct{ Run, Path string }
	// SavedSampler is a checkpoint for sampling, or an ephemeral sampler.
	SavedSampler struct{ Path, Sampler string }
	// SavedExternal is a checkpoint for others' programs.
	SavedExternal struct{ Path string }
	// Ended is a run that is unloaded.
	Ended struct{ Run string }
)

func (s *Service) newFuture(tenant, run string) *Future {
	f := &Future{ID: tuning.NewID("fut_"), Run: run, tenant: tenant, done: make(chan struct{})}
	s.mutex.Lock()
	s.futures[f.ID] = f
	s.mutex.Unlock()
	return f
}

func (f *Future) finish(result any, err error) {
	f.mutex.Lock()
	f.result, f.err, f.finished = result, err, time.Now()
	f.mutex.Unlock()
	close(f.done)
}

func (f *Future) pause(reason string) {
	f.mutex.Lock()
	f.paused = reason
	f.mutex.Unlock()
}

// Paused is why a future waits for capacity; "" where it does not.
func (f *Future) Paused() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.paused
}

// Retrieve waits a while for a future. ready false: it is not done, and the future tells why.
func (s *Service) Retrieve(ctx context.Context, tenant, id string) (f *Future, result any, err error, ready bool) {
	s.mutex.Lock()
	f = s.futures[id]
	s.mutex.Unlock()
	if f == nil || f.tenant != tenant {
		return nil, nil, &inference.Error{Kind: gone, Code: "unknown_future", Param: "request_id",
			Message: "the request " + short(id) + " is not known, or its result was dropped; send it again"}, false
	}
	timer := time.NewTimer(s.config.PollTime)
	defer timer.Stop()
	select {
	case <-f.done:
		f.mutex.Lock()
		defer f.mutex.Unlock()
		if f.told.IsZero() {
			f.told = time.Now()
		}
		return f, f.result, f.err, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return f, nil, nil, false
}

// Cancel ends a request for samples; others cannot be cancelled.
func (s *Service) Cancel(tenant, id string) error {
	s.mutex.Lock()
	f := s.futures[id]
	s.mutex.Unlock()
	if f == nil || f.tenant != tenant {
		return &inference.Error{Kind: inference.NotFound, Param: "request_id", Message: "the request " + short(id) + " is not known"}
	}
	if f.cancel != nil {
		f.cancel()
	}
	return nil
}

// toldTime is how long a result stays for a client that has asked for it and may not have had the reply.
const toldTime = 5 * time.Minute

// dropFutures forgets results that nobody asks for any more.
func (s *Service) dropFutures(now time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, f := range s.futures {
		f.mutex.Lock()
		old := !f.finished.IsZero() && now.Sub(f.finished) > s.config.KeepTime || !f.told.IsZero() && now.Sub(f.told) > toldTime
		if old {
			f.result = nil // its number is still known
		}
		f.mutex.Unlock()
		if old {
			delete(s.futures, id)
		}
	}
}

// gone is the status of what was there.
const gone inference.Kind = 410

func short(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}
