package training

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"tessera.dev/service/tinker"
)

func TestTheEndOfATrainerEndsItsRequests(t *testing.T) {
	library := gated()
	one := newFake(t, library).seatOf(t, 4, 1)
	ended := make(chan error)
	go func() {
		_, err := one.Forward(ctx, passOf(tinker.CrossEntropy, 1))
		ended <- err
	}()
	<-library.arrived
	one.shared.end() // as the service's end does
	if err := <-ended; err == nil {
		t.Fatal("a pass succeeded without the library")
	}
	_, err := one.Forward(ctx, passOf(tinker.CrossEntropy, 1))
	wantCode(t, err, "values_lost")
	one.Close()
}

// longPass has four rows.
func longPass() *tinker.Pass {
	pass := passOf(tinker.CrossEntropy, 1)
	pass.Sequences = append(pass.Sequences, pass.Sequences[2], pass.Sequences[2])
	return pass
}

func TestARequestThatIsCancelledEndsAlone(t *testing.T) {
	library := gated()
	all := newFake(t, library)
	busy, early, late := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2), all.seatOf(t, 4, 3)
	results := make(chan error)
	compute := func(ctx context.Context, one *seat) {
		_, _, err := one.ForwardBackward(ctx, longPass())
		results <- err
	}
	go compute(ctx, busy)
	<-library.arrived
	life, cancel := context.WithCancel(ctx)
	go compute(life, early)
	busy.shared.wait(1)
	cancel()
	library.gate <- struct{}{}
	if err := <-results; !errors.Is(err, context.Canceled) || early.Lost() || early.Pending() {
		t.Fatalf("found %v, lost is %v: nothing of it was computed", err, early.Lost())
	}
	for i := 0; i < 3; i++ {
		library.pass()
	}
	if err := <-results; err != nil {
		t.Fatal(err)
	}
	life, cancel = context.WithCancel(ctx)
	go compute(life, late)
	library.pass()
	<-library.arrived
	cancel()
	late.shared.wait(1)
	library.gate <- struct{}{}
	if err := <-results; err == nil || !late.Lost() || busy.Lost() {
		t.Fatalf("found %v, lost is %v: a part of it was computed", err, late.Lost())
	}
	late.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, one := range []*seat{busy, early} {
			if _, err := one.course(2); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		select {
		case <-library.arrived:
			library.gate <- struct{}{}
			continue
		case <-ended:
		}
		break
	}
}

// wait waits until so many tasks do.
func (s *shared) wait(count int) {
	for found := -1; found != count; {
		s.mutex.Lock()
		found = len(s.tasks)
		s.mutex.Unlock()
		runtime.Gosched()
	}
}

func TestAShortPassComesBetweenThePartsOfALongOne(t *testing.T) {
	library := gated()
	all := newFake(t, library)
	long, short := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2)
	results := make(chan string, 2)
	go func() {
		_, _, _ = long.ForwardBackward(ctx, longPass())
		results <- "long"
	}()
	<-library.arrived
	go func() {
		_, _ = short.Forward(ctx, &tinker.Pass{Loss: tinker.CrossEntropy, Sequences: longPass().Sequences[:1]})
		results <- "short"
	}()
	short.shared.wait(1)
	library.gate <- struct{}{}
	library.pass() // the second part of the long one
	library.pass()
	if found := <-results; found != "short" {
		t.Fatal("the short pass waited for the whole long one")
	}
	library.pass()
	library.pass()
	<-results
}
