package tinker

import (
	"context"
	"time"
)

// clones is how many numbers each client of a sampler has of its own: the first client's begin at 0, the next one's at clones.
const clones = 1_000_000_000

// client is one of the clients of a sampler.
type client struct {
	sampler string
	clone   int64
}

// completion is a request for samples that is done; place counts up.
type completion struct {
	place  int64
	future *Future
}

// Completion says that a request is done.
type Completion struct {
	Request string
	Failed  bool
}

// complete notes that a sampler's request is done, and tells those who wait.
func (s *Service) complete(of client, f *Future) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.completed++
	s.completions[of] = append(s.completions[of], completion{s.completed, f})
	close(s.news)
	s.news = make(chan struct{})
}

// Completions waits until requests of a sampler's client are done that were not after the cursor. It gives the next cursor. What is at or
// before the cursor is known to the client, and results that it has retrieved are forgotten.
func (s *Service) Completions(ctx context.Context, tenant, sampler string, clone, cursor int64, patience time.Duration, retrieved []string) (done []Completion, next int64, err error) {
	if _, err := s.Sampler(ctx, tenant, sampler); err != nil {
		return nil, 0, err
	}
	s.forget(tenant, retrieved)
	if patience > s.config.PollTime {
		patience = s.config.PollTime
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mutex.Lock()
		news := s.news
		done, next = s.completionsAfter(client{sampler, clone}, cursor)
		s.mutex.Unlock()
		if len(done) > 0 {
			return done, next, nil
		}
		select {
		case <-news:
		case <-timer.C:
			return nil, next, nil
		case <-ctx.Done():
			return nil, next, nil
		case <-s.life.Done():
			return nil, 0, errStopping
		}
	}
}

// completionsAfter drops what the client knows; the mutex is held.
func (s *Service) completionsAfter(of client, cursor int64) (done []Completion, next int64) {
	left := s.completions[of]
	for len(left) > 0 && left[0].place <= cursor {
		left = left[1:]
	}
	if s.completions[of] = left; len(left) == 0 {
		delete(s.completions, of)
	}
	next = cursor
	for _, one := range left {
		one.future.mutex.Lock()
		done = append(done, Completion{one.future.ID, one.future.err != nil})
		one.future.mutex.Unlock()
		next = one.place
	}
	return done, next
}

// forget drops results of requests; their numbers are still known.
func (s *Service) forget(tenant string, ids []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, id := range ids {
		if f := s.futures[id]; f != nil && f.tenant == tenant && f.over() {
			f.mutex.Lock()
			f.result = nil
			f.mutex.Unlock()
			delete(s.futures, id)
		}
	}
}

// over says whether the future is done.
func (f *Future) over() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return !f.finished.IsZero()
}

// dropCompletions forgets those whose result is forgotten: their clients ask for each result by itself.
func (s *Service) dropCompletions() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for of, all := range s.completions {
		var left []completion
		for _, one := range all {
			if s.futures[one.future.ID] == one.future {
				left = append(left, one)
			}
		}
		if s.completions[of] = left; left == nil {
			delete(s.completions, of)
		}
	}
}
