// Package fake has models without an engine and a server of a few lines, for tests of dialects: golden transcripts, and official
// clients against dialect/fake/serve. Models repeat what they are told (Echo), or follow words in it (Scripted).
package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"tessera.dev/service/inference"
)

// Models answer by a script. Each opens at once.
type Models struct {
	Known []inference.Info
	// Script gives the events of a request.
	Script func(request inference.Request) ([]inference.Event, error)
	// Prefixes: names that begin as one of these and a dash are known too. Tests choose by name what a model should do.
	Prefixes bool

	mutex sync.Mutex
	asked []inference.Request
	words vocabulary
}

// Echo has one model of each kind: "chat", "embed", "rank".
func Echo() *Models {
	m := &Models{Known: []inference.Info{
		{Name: "chat", Created: 1700000000, Loaded: true, Context: 4096, Does: []string{"generate", "chat"}, Architecture: "echo",
			Parameters: 1000, Bytes: 2000, Type: "f16", Template: "{{ messages }}"},
		{Name: "embed", Created: 1700000001, Context: 512, Does: []string{"embed"}, Architecture: "echo"},
		{Name: "rank", Created: 1700000002, Does: []string{"score"}, Architecture: "echo"},
		{Name: "org/chat", Base: "chat", Created: 1700000003, Loaded: true, Context: 4096, Does: []string{"generate", "chat"}},
	}}
	m.Script = m.Answer
	return m
}

// Asked are the requests so far.
func (m *Models) Asked() []inference.Request {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return append([]inference.Request(nil), m.asked...)
}

// List gives those that are known.
func (m *Models) List() []inference.Info { return m.Known }

// Open gives one of them.
func (m *Models) Open(_ context.Context, name string) (inference.Model, error) {
	for _, info := range m.Known {
		if info.Name == name || m.Prefixes && strings.HasPrefix(name, info.Name+"-") {
			return &model{m, info}, nil
		}
	}
	return nil, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("there is no model %q; GET /v1/models lists them", name)}
}

type model struct {
	models *Models
	info   inference.Info
}

func (m *model) Info() inference.Info { return m.info }

func (m *model) Release() {}

func (m *model) Generate(ctx context.Context, request inference.Request) (inference.Stream, error) {
	m.models.mutex.Lock()
	m.models.asked = append(m.models.asked, request)
	m.models.mutex.Unlock()
	events, err := m.models.Script(request)
	if err != nil {
		return nil, err
	}
	prompt := int64(len(request.Prompt.Tokens))
	if request.Prompt.Tokens == nil {
		prompt = int64(len(m.models.words.encode(request.Prompt.Words + string(request.Messages))))
	}
	usage := inference.Usage{Prompt: prompt, Cached: prompt / 2, Seed: 7, Queue: 0.25, Prefill: 0.5, Decode: 1.5}
	return &stream{events: events, usage: usage}, nil
}

// Embed gives vectors of eight numbers and length 1 that count letters.
func (m *model) Embed(_ context.Context, texts []inference.Text, _ inference.Options) (vectors [][]float32, tokens int64, err error) {
	for _, text := range texts {
		if text.Tokens != nil {
			text.Words, _ = m.Detokenize(text.Tokens)
		}
		tokens += int64(len(m.models.words.encode(text.Words)))
		counts, sum := make([]float32, 8), 0.0
		for _, each := range []byte(text.Words) {
			counts[each%8]++
		}
		for _, count := range counts {
			sum += float64(count) * float64(count)
		}
		for i := range counts {
			counts[i] = float32(float64(counts[i]) / math.Sqrt(math.Max(sum, 1)))
		}
		vectors = append(vectors, counts)
	}
	return vectors, tokens, nil
}

func (m *model) Score(context.Context, []inference.Text, []int) ([][]inference.TokenProbability, error) {
	return nil, &inference.Error{Kind: inference.Unsupported, Message: "these models do not score"}
}

// Rank counts the words that a document has in common with the query.
func (m *model) Rank(_ context.Context, query string, documents []string) (scores []float64, tokens int64, err error) {
	for _, document := range documents {
		score := 0.0
		for _, word := range strings.Fields(query) {
			if strings.Contains(document, word) {
				score += 0.25
			}
		}
		scores = append(scores, score)
		tokens += int64(len(m.models.words.encode(query + " " + document)))
	}
	return scores, tokens, nil
}

func (m *model) Tokenize(text string, special, around bool) ([]int32, error) {
	ids := m.models.words.encode(text)
	if around {
		ids = append([]int32{0}, ids...)
	}
	return ids, nil
}

func (m *model) Detokenize(ids []int32) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		piece, ok := m.models.words.piece(id)
		if !ok {
			return "", &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "tokens", Message: fmt.Sprintf("there is no token %d", id)}
		}
		text.Write(piece)
	}
	return text.String(), nil
}

func (m *model) Piece(id int32) []byte {
	piece, _ := m.models.words.piece(id)
	return piece
}

// Render writes a line a message, and one of tools.
func (m *model) Render(messages json.RawMessage, options inference.Options) (text string, tokens []int32, err error) {
	text = strings.Join(conversation(messages), "\n")
	if tools, ok := options["tools"].(string); ok {
		text = "tools: " + tools + "\n" + text
	}
	if options["add_generation_prompt"] == int64(1) {
		text += "\nassistant:"
	}
	return text, m.models.words.encode(text), nil
}

// conversation is "ROLE: CONTENT" of each message.
func conversation(messages json.RawMessage) (lines []string) {
	var list []struct{ Role, Content string }
	if err := json.Unmarshal(messages, &list); err != nil {
		panic(err) // dialects give sound JSON
	}
	for _, message := range list {
		lines = append(lines, message.Role+": "+message.Content)
	}
	return lines
}

// stream tells its events, and counts what they generate.
type stream struct {
	events []inference.Event
	usage  inference.Usage
}

func (s *stream) Next(ctx context.Context) (inference.Event, error) {
	if err := ctx.Err(); err != nil {
		return inference.Event{}, err
	}
	if len(s.events) == 0 {
		return inference.Event{}, io.EOF
	}
	event := s.events[0]
	s.events = s.events[1:]
	s.usage.Generated += int64(len(event.Tokens))
	if event.Reasoning != "" {
		s.usage.Reasoning += int64(len(event.Tokens))
	}
	return event, nil
}

func (s *stream) Usage() inference.Usage { return s.usage }

func (s *stream) Close() {}
