package chat

import (
	"encoding/json"
	"strings"

	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// choice is one text of a reply.
type choice struct {
	text, reasoning strings.Builder
	calls           []toolCall
	probabilities   []openai.PlaceProbability
	finish          string
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams alone
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type probabilities struct {
	Content []openai.PlaceProbability `json:"content"`
	Refusal *string                   `json:"refusal"`
}

// delta is what a chunk adds.
type delta struct {
	Role             string     `json:"role,omitempty"`
	Content          *string    `json:"content,omitempty"`
	ReasoningContent *string    `json:"reasoning_content,omitempty"`
	Reasoning        *string    `json:"reasoning,omitempty"`
	Calls            []toolCall `json:"tool_calls,omitempty"`
}

type chunkChoice struct {
	Index         int            `json:"index"`
	Delta         delta          `json:"delta"`
	Probabilities *probabilities `json:"logprobs"`
	Finish        *string        `json:"finish_reason"`
}

type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
	Usage   any           `json:"usage,omitempty"` // null in all but the last, where it is asked for
	Timings *timings      `json:"timings,omitempty"`
}

func (x *exchange) chunk(choices ...chunkChoice) []byte {
	made := chunk{ID: x.id, Object: "chat.completion.chunk", Created: x.created, Model: x.model, Choices: choices}
	switch {
	case x.streaming.CountsUsage:
		made.Usage = x.usage
	case x.streaming.TellsUsage:
		made.Usage = null
	}
	return openai.Event(made)
}

// Begin gives each text its role.
func (x *exchange) Begin(_ inference.Info, usage []inference.Usage) []byte {
	x.usage = openai.SumUsage(usage)
	var bytes []byte
	for i := range x.choices {
		nothing := ""
		bytes = append(bytes, x.chunk(chunkChoice{Index: i, Delta: delta{Role: "assistant", Content: &nothing}})...)
	}
	return bytes
}

// Piece is a chunk for the reasoning, one for the content, one for calls and one for the end, as far as the event has them.
func (x *exchange) Piece(_ int, event inference.Event) []byte {
	if event.Index < 0 || event.Index >= len(x.choices) {
		return nil
	}
	if x.noReasoning {
		event.Reasoning = ""
	}
	text := &x.choices[event.Index]
	calls := x.take(text, event)
	if !x.streaming.Streamed {
		return nil
	}
	x.usage.Add(event)
	var bytes []byte
	var found *probabilities
	if x.probable && len(event.Probabilities) > 0 {
		found = &probabilities{Content: openai.Probabilities(event.Probabilities)}
	}
	send := func(made chunkChoice) {
		made.Index = event.Index
		made.Probabilities, found = found, nil // told once
		bytes = append(bytes, x.chunk(made)...)
	}
	if event.Reasoning != "" {
		made := delta{}
		made.ReasoningContent, made.Reasoning = x.named(event.Reasoning)
		send(chunkChoice{Delta: made})
	}
	if event.Text != "" || found != nil && len(calls) == 0 {
		send(chunkChoice{Delta: delta{Content: &event.Text}})
	}
	if len(calls) > 0 {
		send(chunkChoice{Delta: delta{Calls: calls}})
	}
	if event.Finish != "" {
		send(chunkChoice{Finish: &text.finish})
	}
	return bytes
}

// take adds an event to its text, and gives the calls that it adds, numbered. A call that was cut has its arguments as far as they go,
// and is no reason for the finish "tool_calls".
func (x *exchange) take(text *choice, event inference.Event) (calls []toolCall) {
	first := len(text.calls)
	add := func(call inference.ToolCall) {
		if x.oneCall && len(text.calls) > 0 {
			return
		}
		index := len(text.calls)
		text.calls = append(text.calls, toolCall{&index, call.ID, "function", functionCall{call.Name, call.Arguments}})
	}
	for _, call := range event.Calls {
		add(call)
	}
	if event.Finish != "" {
		text.finish = openai.FinishReason(event.Finish, len(text.calls))
	}
	if event.CutCall != nil {
		add(*event.CutCall)
	}
	if !x.streaming.Streamed {
		text.text.WriteString(event.Text)
		text.reasoning.WriteString(event.Reasoning)
		if x.probable {
			text.probabilities = append(text.probabilities, openai.Probabilities(event.Probabilities)...)
		}
	}
	return text.calls[first:]
}

// named gives reasoning under the names of the settings.
func (x *exchange) named(text string) (content, short *string) {
	if text == "" {
		return nil, nil
	}
	if x.reasoning != ReasoningShort {
		content = &text
	}
	if x.reasoning != ReasoningContent {
		short = &text
	}
	return content, short
}

// End is the usage and the timings where they are asked for, and the mark of the end.
func (x *exchange) End(usage []inference.Usage) []byte {
	x.usage = openai.SumUsage(usage)
	if x.timed {
		x.timings = newTimings(usage)
	}
	if !x.streaming.Streamed {
		return nil
	}
	if !x.streaming.TellsUsage && !x.timed {
		return []byte(openai.Done)
	}
	last := chunk{x.id, "chat.completion.chunk", x.created, x.model, []chunkChoice{}, nil, x.timings}
	if x.streaming.TellsUsage {
		last.Usage = x.usage
	}
	return append(openai.Event(last), openai.Done...)
}

type message struct {
	Role             string          `json:"role"`
	Content          *string         `json:"content"`
	Refusal          *string         `json:"refusal"`
	Annotations      json.RawMessage `json:"annotations"`
	ReasoningContent *string         `json:"reasoning_content,omitempty"`
	Reasoning        *string         `json:"reasoning,omitempty"`
	Calls            []toolCall      `json:"tool_calls,omitempty"`
}

type wholeChoice struct {
	Index         int            `json:"index"`
	Message       message        `json:"message"`
	Probabilities *probabilities `json:"logprobs"`
	Finish        string         `json:"finish_reason"`
}

type completion struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []wholeChoice `json:"choices"`
	Usage   openai.Usage  `json:"usage"`
	Timings *timings      `json:"timings,omitempty"`
}

// Whole is the reply in one piece.
func (x *exchange) Whole() []byte {
	made := completion{x.id, "chat.completion", x.created, x.model, []wholeChoice{}, x.usage, x.timings}
	for i := range x.choices {
		text := &x.choices[i]
		whole := wholeChoice{Index: i, Finish: text.finish}
		whole.Message = message{Role: "assistant", Annotations: json.RawMessage("[]"), Calls: text.calls}
		for k := range whole.Message.Calls {
			whole.Message.Calls[k].Index = nil
		}
		if content := text.text.String(); content != "" || len(text.calls) == 0 {
			whole.Message.Content = &content
		}
		whole.Message.ReasoningContent, whole.Message.Reasoning = x.named(text.reasoning.String())
		if x.probable {
			whole.Probabilities = &probabilities{Content: append([]openai.PlaceProbability{}, text.probabilities...)}
		}
		made.Choices = append(made.Choices, whole)
	}
	return wire.JSON(made)
}
