package scripted

import (
	"context"
	"io"
	"sort"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

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
