// Package scripted is trainers, models and a store of trainings by primitives that tests say the answers of: no model, no clock.
package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

// Trainers makes trainers whose log probability of a label is -1, and halves with each step. Log tells what they were asked.
type Trainers struct {
	mutex sync.Mutex
	log   []string
	// Gate, where it is not nil, is read before each pass.
	Gate chan struct{}
}

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

// New makes a trainer.
func (t *Trainers) New(_ context.Context, base string, adapters tinker.Adapters) (tinker.Trainer, error) {
	t.note("new %s rank %d head %v", base, adapters.Rank, adapters.Head)
	return &trainer{all: t}, nil
}

// Fatal is the count of tokens of a pass that takes the values.
const Fatal = 13

type trainer struct {
	all     *Trainers
	steps   int
	pending bool
	lost    bool
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
		t.lost = true
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
func (t *trainer) Lost() bool    { return t.lost }
func (t *trainer) Bytes() int64  { return 100 }
func (t *trainer) Close()        { t.all.note("close") }

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

// Models are a base and the snapshots that are published. Each continues a prompt with 7, 8 and the stop token 2.
type Models struct {
	mutex     sync.Mutex
	Snapshots map[string]string
	live      map[string]tinker.Live
}

// List gives the bases.
func (m *Models) List() []inference.Info {
	return []inference.Info{{Name: "base", Does: []string{"generate"}, Context: 64}, {Name: "tied", Does: []string{"generate"}, Context: 64}}
}

// Open gives a model that is there.
func (m *Models) Open(_ context.Context, name string) (inference.Model, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if _, known := m.Snapshots[name]; !known && name != "base" && name != "tied" {
		return nil, &inference.Error{Kind: inference.NotFound, Message: "no such model " + name}
	}
	return &model{name: name}, nil
}

// PublishSnapshot notes a name.
func (m *Models) PublishSnapshot(name, _, folder string) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.Snapshots == nil {
		m.Snapshots = map[string]string{}
	}
	m.Snapshots[name] = folder
	return nil
}

// PublishLive notes a name, and the weights, which it closes with the name.
func (m *Models) PublishLive(name, _ string, weights tinker.Live) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.Snapshots == nil {
		m.Snapshots = map[string]string{}
	}
	if m.live == nil {
		m.live = map[string]tinker.Live{}
	}
	m.Snapshots[name], m.live[name] = "", weights
	return nil
}

// RetractSnapshot forgets one.
func (m *Models) RetractSnapshot(name string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.Snapshots, name)
	if weights := m.live[name]; weights != nil {
		weights.Close()
		delete(m.live, name)
	}
}

// Names are those of the snapshots.
func (m *Models) Names() (names []string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for name := range m.Snapshots {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Unload does nothing.
func (m *Models) Unload(string) error { return nil }

type model struct {
	inference.Model
	name string
}

func (m *model) Info() inference.Info { return inference.Info{Name: m.name} }
func (m *model) Release()             {}

func (m *model) Generate(_ context.Context, request inference.Request) (inference.Stream, error) {
	s := &stream{prompt: int64(len(request.Prompt.Tokens))}
	if _, scored := request.Options["prompt_logprobs"]; scored {
		var all []inference.TokenProbability
		for _, token := range request.Prompt.Tokens {
			all = append(all, inference.TokenProbability{Token: token, Probability: -0.5})
		}
		s.events = append(s.events, inference.Event{Prompt: all})
	}
	count, _ := request.Options["n"].(int)
	for index := 0; index < count; index++ {
		for _, token := range []int32{7, 8} {
			s.events = append(s.events, inference.Event{Index: index, Tokens: []int32{token},
				Probabilities: []inference.TokenProbability{{Token: token, Probability: -0.25}}})
			s.generated++
		}
		s.events = append(s.events, inference.Event{Index: index, Finish: inference.Stop, StopToken: &inference.TokenProbability{Token: 2, Probability: -0.125}})
	}
	return s, nil
}

type stream struct {
	events            []inference.Event
	prompt, generated int64
}

func (s *stream) Next(context.Context) (inference.Event, error) {
	if len(s.events) == 0 {
		return inference.Event{}, io.EOF
	}
	event := s.events[0]
	s.events = s.events[1:]
	return event, nil
}

func (s *stream) Usage() inference.Usage {
	return inference.Usage{Prompt: s.prompt, Generated: s.generated}
}
func (s *stream) Close() {}

// Store keeps rows in memory.
type Store struct {
	Folder string
	mutex  sync.Mutex
	rows   []tinker.Row
	counts map[tinker.Count]int64
	// Full makes each write fail.
	Full bool
}

var errFull = errors.New("the disk is full")

// PutRow writes one.
func (s *Store) PutRow(_ context.Context, row tinker.Row) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.Full {
		return errFull
	}
	for i := range s.rows {
		if s.rows[i].Kind == row.Kind && s.rows[i].ID == row.ID {
			s.rows[i].Data = row.Data
			return nil
		}
	}
	s.rows = append(s.rows, row)
	return nil
}

// DropRow deletes one.
func (s *Store) DropRow(_ context.Context, kind, id string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := range s.rows {
		if s.rows[i].Kind == kind && s.rows[i].ID == id {
			s.rows = append(s.rows[:i:i], s.rows[i+1:]...)
			return nil
		}
	}
	return nil
}

// Row finds one.
func (s *Store) Row(_ context.Context, kind, id string) (tinker.Row, bool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, row := range s.rows {
		if row.Kind == kind && row.ID == id {
			return row, true, nil
		}
	}
	return tinker.Row{}, false, nil
}

// Rows lists some.
func (s *Store) Rows(_ context.Context, query tinker.RowQuery) (found []tinker.Row, all int, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := len(s.rows) - 1; i >= 0; i-- {
		row := s.rows[i]
		if row.Kind != query.Kind || query.Parent != "" && row.Parent != query.Parent || !query.AnyTenant && row.Tenant != query.Tenant {
			continue
		}
		if all++; all > query.Offset && (query.Limit == 0 || len(found) < query.Limit) {
			found = append(found, row)
		}
	}
	return found, all, nil
}

// AddUsage adds counts.
func (s *Store) AddUsage(_ context.Context, counts []tinker.Count) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.counts == nil {
		s.counts = map[tinker.Count]int64{}
	}
	for _, one := range counts {
		count := one.Count
		one.Count = 0
		s.counts[one] += count
	}
	return nil
}

// Usage lists them.
func (s *Store) Usage(_ context.Context, tenant string, from, until int64) (found []tinker.Count, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for one, count := range s.counts {
		if one.Tenant == tenant && one.Hour >= from && one.Hour < until {
			one.Count = count
			found = append(found, one)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Kind < found[j].Kind })
	return found, nil
}

// TinkerFolder is the folder of the test.
func (s *Store) TinkerFolder() string { return s.Folder }
