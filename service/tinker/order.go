package tinker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tessera.dev/service/inference"
)

// Bounds of what waits for its turn in a run.
const (
	mostWaiting = 4096
	mostAhead   = 1 << 20 // numbers
	mostBytes   = 512 << 20
	keptCalls   = 4096 // that may be repeated
)

// Numbered is what a request of a run has besides its content.
type Numbered struct {
	Number int64    // 0 from a client: after all that came so far
	Digest [32]byte // of path and body
	Bytes  int64
}

// unnumbered stands for a request without a number, as curl sends it.
const unnumbered = -1

// call is a numbered request.
type call struct {
	Numbered
	future  *Future
	work    func(ctx context.Context) (any, error)
	arrived time.Time
	begun   bool
}

// order brings requests into the order of their numbers.
type order struct {
	mutex   sync.Mutex
	next    int64 // the number whose turn it is
	last    int64 // the highest that came
	calls   map[int64]*call
	waiting int
	bytes   int64
	wake    chan struct{}
	closed  bool
}

func newOrder(next int64) *order {
	return &order{next: next, last: next - 1, calls: map[int64]*call{}, wake: make(chan struct{}, 1)}
}

// add takes a request in. again is the future of the same request that came before.
func (o *order) add(given Numbered, future func() *Future, work func(ctx context.Context) (any, error)) (*Future, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if given.Number == unnumbered {
		given.Number = o.last + 1
	}
	if known := o.calls[given.Number]; known != nil {
		if known.Digest != given.Digest {
			return nil, &inference.Error{Kind: inference.Conflict, Code: "seq_id_reused", Param: "seq_id",
				Message: fmt.Sprintf("seq_id %d was used with another request: number requests from 1 on, each once", given.Number)}
		}
		return known.future, nil
	}
	switch {
	case o.closed:
		return nil, &inference.Error{Kind: gone, Code: "model_unloaded", Param: "model_id", Message: "the model was unloaded"}
	case given.Number < o.next:
		return nil, &inference.Error{Kind: inference.Conflict, Code: "seq_id_passed", Param: "seq_id",
			Message: fmt.Sprintf("seq_id %d came too late: the next is %d", given.Number, o.next)}
	case given.Number > o.next+mostAhead:
		return nil, &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "seq_id",
			Message: fmt.Sprintf("seq_id is %d, and the next is %d: at most %d ahead is wanted", given.Number, o.next, mostAhead)}
	case given.Number != o.next && (o.waiting >= mostWaiting || o.bytes+given.Bytes > mostBytes):
		return nil, &inference.Error{Kind: inference.Limited, Code: "queue_full", RetryAfter: 1,
			Message: fmt.Sprintf("%d requests wait for their turn, of %d bytes; the next is seq_id %d", o.waiting, o.bytes, o.next)}
	}
	made := &call{Numbered: given, future: future(), work: work, arrived: time.Now()}
	o.calls[given.Number] = made
	o.waiting++
	o.bytes += given.Bytes
	if given.Number > o.last {
		o.last = given.Number
	}
	o.notify()
	return made.future, nil
}

func (o *order) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take gives the request whose turn it is, and fails those that waited too long for one that did not come: their numbers pass
// with it. Without one it gives the time until it is to be asked again; below 0: when something comes.
func (o *order) take(gap time.Duration) (turn *call, failed []*call, wait time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if found := o.calls[o.next]; found != nil {
		o.passLocked(found)
		return found, nil, 0
	}
	wait = -1
	highest := int64(-1)
	for number, one := range o.calls {
		if one.begun {
			continue
		}
		left := gap - time.Since(one.arrived)
		if left <= 0 && number > highest {
			highest = number
		}
		if wait < 0 || left < wait {
			wait = left
		}
	}
	if highest < 0 {
		return nil, nil, wait
	}
	for number := range o.calls {
		if one := o.calls[number]; number <= highest && !one.begun {
			o.passLocked(one)
			failed = append(failed, one)
		}
	}
	o.next = highest + 1
	return nil, failed, 0
}

func (o *order) passLocked(one *call) {
	one.begun = true
	o.waiting--
	o.bytes -= one.Bytes
	one.Bytes = 0
	if one.Number == o.next {
		o.next++
	}
	delete(o.calls, one.Number-keptCalls)
}

// close refuses what comes, and gives what waits.
func (o *order) close() (waiting []*call) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.closed = true
	for _, one := range o.calls {
		if !one.begun {
			o.passLocked(one)
			waiting = append(waiting, one)
		}
	}
	return waiting
}

// done says whether nothing comes any more.
func (o *order) done() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.closed
}

// position returns the number whose turn it is.
func (o *order) position() int64 {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.next
}
