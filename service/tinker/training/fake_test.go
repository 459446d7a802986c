package training

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"tessera.dev/tessera"
)

// fakeLibrary makes fake trainers of a few slots, for adapters of few ranks. Fields may be changed before the first run.
type fakeLibrary struct {
	slots, rank int
	head        bool // has slots, too
	headName    string
	bytes       int64

	mutex sync.Mutex
	log   []string
	made  []*fakeTrainer
	// gate, where it is not nil, is read before each pass is computed, after a word to arrived.
	gate, arrived chan struct{}
	// fails gives an error for what is told of: "next", "add", "load".
	fails func(what string) error
}

func (l *fakeLibrary) note(format string, arguments ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.log = append(l.log, fmt.Sprintf(format, arguments...))
}

func (l *fakeLibrary) told() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return append([]string{}, l.log...)
}

func (l *fakeLibrary) failure(what string) error {
	if l.fails == nil {
		return nil
	}
	return l.fails(what)
}

func code(code tessera.Code, message string) error {
	return &tessera.Error{Code: code, Message: message}
}

func (l *fakeLibrary) plan(_ context.Context, _ *tessera.Model, options tessera.Options) (int64, error) {
	if !l.head && strings.Contains(options["adapter_weights"].(string), l.headName) {
		return 0, code(tessera.Unsupported, "no slots for the head")
	}
	return l.bytes, nil
}

func (l *fakeLibrary) open(_ context.Context, _ *tessera.Model, options tessera.Options) (adapterTrainer, error) {
	l.note("open %v slots of rank %v", options["adapters"], options["adapter_rank"])
	made := &fakeTrainer{library: l, adapters: map[int64]*fakeAdapter{}}
	l.mutex.Lock()
	l.made = append(l.made, made)
	l.mutex.Unlock()
	return made, nil
}

// fakeAdapter has a sum of gradients, of which a step adds the half to its value.
type fakeAdapter struct {
	Value    float64
	Steps    int64
	gradient float64
	pending  bool
}

func (a *fakeAdapter) write(path string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

type fakePass struct {
	tessera.Pass
	run func(one *fakeAdapter, pass *tessera.Pass)
}

// fakeTrainer computes passes in the order in which they come. One goroutine at a time: it says so where there are two.
type fakeTrainer struct {
	library  *fakeLibrary
	using    sync.Mutex
	adapters map[int64]*fakeAdapter
	passes   []*fakePass
	next     int64
	closed   bool
}

func (t *fakeTrainer) use() func() {
	if !t.using.TryLock() {
		panic("two goroutines use the trainer")
	}
	if t.closed {
		panic("the trainer is used after its end")
	}
	return t.using.Unlock
}

func (t *fakeTrainer) settle(one *fakeAdapter) (int64, error) {
	if len(t.adapters) == t.library.slots {
		return 0, code(tessera.Busy, "all slots have adapters")
	}
	t.next++
	t.adapters[t.next] = one
	return t.next, nil
}

func (t *fakeTrainer) Add(options tessera.Options) (int64, error) {
	defer t.use()()
	if err := t.library.failure("add"); err != nil {
		return 0, err
	}
	if rank := options["rank"].(int64); int(rank) > t.library.rank {
		return 0, code(tessera.InvalidArgument, "the rank is larger than the slots'")
	}
	return t.settle(&fakeAdapter{Value: float64(options["seed"].(int64))})
}

func (t *fakeTrainer) Drop(adapter int64) error {
	defer t.use()()
	if t.adapters[adapter] == nil {
		return code(tessera.NotFound, "no such adapter")
	}
	t.library.note("drop %d", adapter)
	delete(t.adapters, adapter)
	kept := t.passes[:0]
	for _, one := range t.passes {
		if one.Adapter != adapter {
			kept = append(kept, one)
		}
	}
	t.passes = kept
	return nil
}

func (t *fakeTrainer) queue(adapter int64, kind string, run func(one *fakeAdapter, pass *tessera.Pass)) (int64, error) {
	if t.adapters[adapter] == nil {
		return 0, code(tessera.NotFound, "no such adapter")
	}
	if err := t.library.failure("queue"); err != nil {
		return 0, err
	}
	t.next++
	t.passes = append(t.passes, &fakePass{tessera.Pass{Number: t.next, Adapter: adapter, Kind: kind}, run})
	return t.next, nil
}

// logprobs are of the adapter's value and the token.
func logprobs(one *fakeAdapter, batch tessera.Batch) (values []float32, sum float64) {
	for i, token := range batch.Tokens {
		values = append(values, float32(one.Value)+float32(token)/1000)
		if batch.Labels[i] >= 0 {
			sum += float64(values[i])
		}
	}
	return values, sum
}

func (t *fakeTrainer) Forward(adapter int64, batch tessera.Batch) (int64, error) {
	defer t.use()()
	return t.queue(adapter, "forward", func(one *fakeAdapter, pass *tessera.Pass) { pass.Logprobs, _ = logprobs(one, batch) })
}

func (t *fakeTrainer) ForwardBackward(adapter int64, batch tessera.Batch, loss string, _ tessera.Options) (int64, error) {
	defer t.use()()
	return t.queue(adapter, "forward_backward", func(one *fakeAdapter, pass *tessera.Pass) {
		pass.Logprobs, pass.Loss = logprobs(one, batch)
		one.gradient += pass.Loss
		one.pending = true
	})
}

func (t *fakeTrainer) Update(adapter int64, options tessera.Options) (int64, error) {
	defer t.use()()
	return t.queue(adapter, "update", func(one *fakeAdapter, pass *tessera.Pass) {
		if options["lr"] == notFinite {
			pass.Err = code(tessera.NotFinite, "the gradient norm is not finite")
		} else {
			one.Value += one.gradient * options["lr"].(float64)
			one.Steps++
			pass.Step = one.Steps
		}
		one.gradient, one.pending = 0, false
	})
}

// notFinite is a rate whose step is not.
const notFinite = 666.0

func (t *fakeTrainer) CancelPass(pass int64) error {
	defer t.use()()
	for i, one := range t.passes {
		if one.Number == pass {
			t.passes = append(t.passes[:i:i], t.passes[i+1:]...)
			return nil
		}
	}
	return code(tessera.NotFound, "it is finished")
}

func (t *fakeTrainer) Next(ctx context.Context) (*tessera.Pass, error) {
	defer t.use()()
	if len(t.passes) == 0 {
		return nil, nil
	}
	if t.library.gate != nil {
		select {
		case t.library.arrived <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-t.library.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	one := t.passes[0]
	t.passes = t.passes[1:]
	t.library.note("%s %d", one.Kind, one.Adapter)
	pass := one.Pass
	if pass.Err = t.library.failure(one.Kind); pass.Err == nil {
		one.run(t.adapters[one.Adapter], &pass)
	}
	return &pass, nil
}

func (t *fakeTrainer) Save(adapter int64, folder string) error {
	defer t.use()()
	if t.adapters[adapter].pending {
		return code(tessera.FailedPrecondition, "gradients wait")
	}
	t.library.note("save %d", adapter)
	return t.adapters[adapter].write(folder)
}

func (t *fakeTrainer) Load(folder string, options tessera.Options) (int64, error) {
	defer t.use()()
	if err := t.library.failure("load"); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(folder)
	if err != nil {
		return 0, err
	}
	one := &fakeAdapter{}
	if err := json.Unmarshal(text, one); err != nil {
		return 0, err
	}
	if options["optimizer"] == false {
		one.Steps = 0
	}
	return t.settle(one)
}

func (t *fakeTrainer) Model(adapter int64) (*tessera.Model, error) {
	defer t.use()()
	t.library.note("model %d", adapter)
	return tessera.NewModel("llama:L=1,C=32,H=2,F=64,V=96,T=64", nil)
}

func (t *fakeTrainer) Close() {
	defer t.use()()
	t.library.note("close")
	t.closed = true
}

// gated is a library whose passes a test lets through, one by one.
func gated() *fakeLibrary {
	return &fakeLibrary{slots: 3, rank: 8, gate: make(chan struct{}), arrived: make(chan struct{})}
}

// pass lets a pass through.
func (l *fakeLibrary) pass() {
	<-l.arrived
	l.gate <- struct{}{}
}

// newFake is trainers with a fake library of slots.
func newFake(t *testing.T, library *fakeLibrary) *Trainers {
	t.Helper()
	all := newTrainers(t)
	all.config.Slots, all.library = int64(library.slots), library
	found, err := all.base("small")
	if err != nil {
		t.Fatal(err)
	}
	library.headName = found.head[0]
	return all
}
