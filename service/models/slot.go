package models

import (
	"context"
	"time"

	"tessera.dev/service/inference"
)

// slot is one model of the registry, loaded or not. The registry's mutex guards it.
type slot struct {
	source source
	info   inference.Info // as far as it is known
	ready  *loaded        // nil while it is not loaded
	load   *load          // in progress
	users  int
	used   time.Time // the end of the latest use
	plan   *toldPlan // guarded by planning
	over   *adapter  // of a snapshot that the base's engine serves; nil for others, and for one in an engine of its own
}

// load is one attempt to load a model, for which any number of requests wait.
type load struct {
	done chan struct{}
	err  error
}

func (s *slot) infoLocked() inference.Info {
	info := s.info
	info.Loaded = s.ready != nil
	return info
}

// beginLocked returns the load in progress, and begins one if there is none. The load goes on when those that wait for it leave.
func (s *slot) beginLocked(r *Registry) *load {
	if s.load != nil {
		return s.load
	}
	l := &load{done: make(chan struct{})}
	s.load = l
	r.stopped.Add(1)
	go func() {
		defer r.stopped.Done()
		made, err := r.loadModel(context.Background(), s)
		r.mutex.Lock()
		defer r.mutex.Unlock()
		s.load, l.err = nil, serviceError(err)
		if err == nil {
			s.ready, s.info, s.used = made, made.info, time.Now()
		}
		close(l.done)
	}()
	return l
}
