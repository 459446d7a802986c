// Package scripted is trainers, models and a store of trainings by primitives that tests say the answers of: no model, no clock.
package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

// Trainers makes trainers whose log probability of a label is -1, and halves with each step. Log tells what they were asked.
type Trainers struct {
	mutex sync.Mutex
	log   []string
	taken int
	lost  bool
	// Gate, where it is not nil, is read before each pass.
	Gate chan struct{}
	// Slots are those of the trainer that trainings of "base" share; 0: each has its own.
	Slots int
}

// Shared is the name of that trainer, and SharedBytes what it needs.
const (
	Shared      = "together"
	SharedBytes = 1000
)

func (t *Trainers) note(format string, arguments ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, arguments...))
}

// Log is what the trainers were asked so far.
func (t *Trainers) Log() []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return append([]string{}, t.log...)
}

// Base knows "base", which has a head of its own, and "tied", which has none.
func (t *Trainers) Base(_ context.Context, name string) (tinker.Base, error) {
	if name != "base" && name != "tied" {
		return tinker.Base{}, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "base_model", Message: "no such model"}
	}
	return tinker.Base{Name: name, Architecture: "scripted", Tokenizer: name, Context: 64, Head: name == "base"}, nil
}

// New makes a trainer, with a slot where there are such.
func (t *Trainers) New(ctx context.Context, base string, adapters tinker.Adapters, room tinker.Room) (tinker.Trainer, error) {
	made := &trainer{all: t}
	for base == "base" && t.Slots > 0 && !made.shares {
		if made.shares = t.take(); made.shares {
			break
		}
		if err := room.Slot(ctx, Shared); err != nil {
			return nil, err
		}
	}
	if !made.shares {
		if err := room.Trainer(ctx, 0); err != nil {
			return nil, err
		}
	}
	t.note("new %s rank %d head %v", base, adapters.Rank, adapters.Head)
	return made, nil
}

// take takes a slot where one is free.
func (t *Trainers) take() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.taken == t.Slots {
		return false
	}
	t.taken++
	return true
}

// Renew is a new shared trainer in place of the one that was lost.
func (t *Trainers) Renew() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.lost = false
}

// Fatal is the count of tokens of a pass that takes the values: of all, where they share.
const Fatal = 13

type trainer struct {
	all     *Trainers
	steps   int
	pending bool
	lost    bool
	shares  bool
}

func (t *trainer) values(pass *tinker.Pass) (loss float64, all [][]float32) {
	value := float32(-1)
	for i := 0; i < t.steps; i++ {
		value /= 2
	}
	for _, one := range pass.Sequences {
		row := make([]float32, len(one.Tokens))
		for i := range row {
			row[i] = value
		}
		all = append(all, row)
	}
	return pass.Value(all), all
}

func (t *trainer) wait() {
	if t.all.Gate != nil {
		<-t.all.Gate
	}
}

func (t *trainer) Forward(_ context.Context, pass *tinker.Pass) ([][]float32, error) {
	t.wait()
	t.all.note("forward %d", pass.Tokens())
	_, all := t.values(pass)
	return all, nil
}

func (t *trainer) ForwardBackward(_ context.Context, pass *tinker.Pass) (float64, [][]float32, error) {
	t.wait()
	t.all.note("backward %d", pass.Tokens())
	if pass.Tokens() == Fatal {
		t.lose()
		return 0, nil, &inference.Error{Kind: inference.Internal, Message: "the values are lost"}
	}
	if t.Lost() {
		return 0, nil, &inference.Error{Kind: inference.Internal, Message: "the values are lost"}
	}
	t.pending = true
	loss, all := t.values(pass)
	return loss, all, nil
}

func (t *trainer) Step(_ context.Context, update tinker.Update) (map[string]float64, error) {
	if !t.pending {
		return nil, &inference.Error{Kind: inference.Invalid, Message: "there are no gradients"}
	}
	t.all.note("step %g", update.LearningRate)
	t.steps++
	t.pending = false
	return map[string]float64{"step": float64(t.steps)}, nil
}

func (t *trainer) Pending() bool { return t.pending }

func (t *trainer) lose() {
	t.all.mutex.Lock()
	defer t.all.mutex.Unlock()
	t.lost = true
	t.all.lost = t.all.lost || t.shares
}

func (t *trainer) Lost() bool {
	t.all.mutex.Lock()
	defer t.all.mutex.Unlock()
	return t.lost || t.shares && t.all.lost
}

func (t *trainer) Shared() string {
	if t.shares {
		return Shared
	}
	return ""
}

func (t *trainer) Bytes() int64 {
	if t.shares {
		return SharedBytes
	}
	return 100
}

func (t *trainer) Close() {
	t.all.note("close")
	if t.shares {
		t.all.mutex.Lock()
		defer t.all.mutex.Unlock()
		t.all.taken--
	}
}

func (t *trainer) write(folder string) error {
	if t.pending {
		return &inference.Error{Kind: inference.Invalid, Message: "gradients wait for a step"}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	text, _ := json.Marshal(t.steps)
	return os.WriteFile(filepath.Join(folder, "steps"), text, 0o600)
}

func (t *trainer) SaveState(_ context.Context, folder string) error {
	t.all.note("save %d", t.steps)
	return t.write(folder)
}

func (t *trainer) SaveAdapters(_ context.Context, folder string) error {
	t.all.note("adapters %d", t.steps)
	return t.write(folder)
}

func (t *trainer) Live(context.Context) (tinker.Live, error) {
	t.all.note("live %d", t.steps)
	return live{t.all}, nil
}

type live struct{ all *Trainers }

func (l live) Close() { l.all.note("live closed") }

func (t *trainer) LoadState(_ context.Context, folder string, optimizer bool) error {
	text, err := os.ReadFile(filepath.Join(folder, "steps"))
	if err == nil {
		err = json.Unmarshal(text, &t.steps)
	}
	t.all.note("load %d optimizer %v", t.steps, optimizer)
	return err
}
