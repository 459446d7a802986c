package training

import (
	"context"
	"errors"
	"sync"

	"tessera.dev/tessera"
)

// shared is a trainer of many adapters over one base. One goroutine, own, has the library's: others leave it tasks and requests,
// whose results it gives back by the numbers of their passes.
type shared struct {
	name  string
	bytes int64
	seats int // of runs; Trainers' mutex guards it
	life  context.Context
	end   context.CancelFunc
	ended chan struct{}

	mutex sync.Mutex
	tasks []func()
	wake  chan struct{}
	lost  error // what took the values

	// The owner's alone.
	library  adapterTrainer
	requests map[int64]*request // by the number of the pass that is queued
	turns    int64              // calls of Next
}

// request is a pass of a run in parts, one of which at a time is queued: so others' that come later have their turn.
type request struct {
	life   context.Context
	parts  []func(library adapterTrainer) (number int64, err error)
	found  []*tessera.Pass // of the parts that are done
	number int64           // of the part that is queued
	turn   int64           // when it was
	done   chan struct{}
	// Valid once done is closed.
	err   error
	begun bool // parts of a request that failed may have been computed
}

// errEnded is the error of what comes after the end.
var errEnded = &tessera.Error{Code: tessera.ValuesLost, Message: "the trainer has ended"}

func newShared(name string, bytes int64, library adapterTrainer) *shared {
	life, end := context.WithCancel(context.Background())
	s := &shared{name: name, bytes: bytes, life: life, end: end, ended: make(chan struct{}), wake: make(chan struct{}, 1), library: library,
		requests: map[int64]*request{}}
	go s.own()
	return s
}

// own does tasks and passes until the end.
func (s *shared) own() {
	defer close(s.ended)
	for s.life.Err() == nil {
		for _, task := range s.take() {
			task()
		}
		if len(s.requests) > 0 {
			s.compute()
			continue
		}
		select {
		case <-s.wake:
		case <-s.life.Done():
		}
	}
	for _, task := range s.take() { // those of runs that left
		task()
	}
	s.lose(errEnded)
}

func (s *shared) take() []func() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	taken := s.tasks
	s.tasks = nil
	return taken
}

// leave gives the owner a task; once the values are lost there is no library for it.
func (s *shared) leave(task func(library adapterTrainer)) {
	s.mutex.Lock()
	s.tasks = append(s.tasks, func() { task(s.library) })
	s.mutex.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// do has the owner do something with the library's trainer, between two passes.
func (s *shared) do(task func(library adapterTrainer) error) error {
	done := make(chan error, 1)
	s.leave(func(library adapterTrainer) {
		if library == nil {
			done <- s.lostBy()
			return
		}
		err := task(library)
		if errors.Is(err, tessera.ValuesLost) {
			s.lose(err)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-s.ended:
	}
	select {
	case err := <-done:
		return err
	default:
		return errEnded
	}
}

// run computes a request's parts, and gives their results. begun: some may have been computed, though it failed.
func (s *shared) run(ctx context.Context, parts []func(library adapterTrainer) (int64, error)) (found []*tessera.Pass, begun bool, err error) {
	one := &request{life: ctx, parts: parts, done: make(chan struct{})}
	err = s.do(func(adapterTrainer) error {
		s.advance(one)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		s.leave(func(adapterTrainer) { s.withdraw(one) })
		<-one.done
	}
	return one.found, one.begun, one.err
}

// advance queues a request's next part.
func (s *shared) advance(one *request) {
	switch {
	case len(one.found) == len(one.parts):
		one.finish(nil, false)
		return
	case one.life.Err() != nil:
		one.finish(one.life.Err(), len(one.found) > 0)
		return
	}
	number, err := one.parts[len(one.found)](s.library)
	if err != nil {
		if errors.Is(err, tessera.ValuesLost) {
			s.lose(err)
		}
		one.finish(err, len(one.found) > 0)
		return
	}
	one.number, one.turn = number, s.turns
	s.requests[number] = one
}

func (r *request) finish(err error, begun bool) {
	r.err, r.begun = err, begun
	close(r.done)
}

// withdraw ends a request that is not finished, once what is being computed is.
func (s *shared) withdraw(one *request) {
	if s.requests[one.number] != one || s.library.CancelPass(one.number) != nil {
		return // its result is there
	}
	delete(s.requests, one.number)
	one.finish(one.life.Err(), len(one.found) > 0 || s.turns > one.turn)
}

// compute computes until a pass is finished, and gives its request the result.
func (s *shared) compute() {
	pass, err := s.library.Next(s.life)
	s.turns++
	switch {
	case s.life.Err() != nil:
		return
	case err != nil:
		s.lose(err)
		return
	case pass == nil:
		s.lose(&tessera.Error{Code: tessera.Internal, Message: "the library knows of no pass that waits, and requests do"})
		return
	case takesValues(pass.Err):
		s.lose(pass.Err)
		return
	}
	one := s.requests[pass.Number]
	if one == nil { // of a run that left
		return
	}
	delete(s.requests, pass.Number)
	if pass.Err != nil {
		one.finish(pass.Err, true)
		return
	}
	one.found = append(one.found, pass)
	s.advance(one)
}

// lose ends all requests, and frees the library's trainer. The owner calls it.
func (s *shared) lose(err error) {
	if s.library == nil {
		return
	}
	s.mutex.Lock()
	s.lost = err
	s.mutex.Unlock()
	for number, one := range s.requests {
		delete(s.requests, number)
		one.finish(err, true)
	}
	s.library.Close()
	s.library = nil
}

// lostBy is what took the values; nil while they are there.
func (s *shared) lostBy() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.lost
}

// close ends it, and waits until the memory is free. Tasks that wait are done first.
func (s *shared) close() {
	s.end()
	<-s.ended
}
