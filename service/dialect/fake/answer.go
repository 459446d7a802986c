package fake

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"tessera.dev/service/inference"
)

// Answer is what a model without an engine says: it repeats the last message, calls tools that it is obliged to call, follows schemas
// with the smallest values, and continues prompts with numbers. stop, max_tokens, n, logprobs and prompt_logprobs are obeyed.
func (m *Models) Answer(request inference.Request) (events []inference.Event, err error) {
	if likeliest, ok := request.Options["prompt_logprobs"].(int64); ok {
		ids := request.Prompt.Tokens
		if ids == nil {
			ids = m.words.encode(request.Prompt.Words)
		}
		event := inference.Event{Prompt: m.probabilities(ids, likeliest)}
		event.Prompt[0].Probability, event.Prompt[0].Likeliest = math.NaN(), nil
		events = append(events, event)
	}
	texts := int64(1)
	if n, ok := request.Options["n"].(int64); ok {
		texts = n
	}
	for i := 0; i < int(texts); i++ {
		events = append(events, m.text(request, i)...)
	}
	return events, nil
}

func (m *Models) text(request inference.Request, index int) (events []inference.Event) {
	if request.ToolChoice == "required" || request.ToolChoice == "named" {
		call := makeCall(request, index)
		// Its arguments have a token a byte, where a limit cuts them.
		if limit, ok := request.Options["max_tokens"].(int64); ok && limit < int64(len(call.Arguments)) {
			call.Arguments = call.Arguments[:limit]
			return []inference.Event{{Index: index, CutCall: &call, Tokens: make([]int32, limit), Finish: inference.Length}}
		}
		return []inference.Event{{Index: index, Calls: []inference.ToolCall{call}, Tokens: []int32{1}}, {Index: index, Finish: inference.ToolCalls}}
	}
	if thinks(request) {
		events = append(events, inference.Event{Index: index, Reasoning: "They want", Tokens: []int32{1}},
			inference.Event{Index: index, Reasoning: " a text.", Tokens: []int32{2}})
	}
	text, finish, stopped := words(request), inference.Stop, ""
	var stops []string
	if list, ok := request.Options["stop"].(string); ok {
		if err := json.Unmarshal([]byte(list), &stops); err != nil {
			panic(err) // dialects give sound JSON
		}
	}
	for _, stop := range stops {
		if at := strings.Index(text, stop); at >= 0 {
			text, stopped = text[:at], stop
		}
	}
	pieces := split(text)
	if limit, ok := request.Options["max_tokens"].(int64); ok && int64(len(pieces)) > limit {
		pieces, finish, stopped = pieces[:limit], inference.Length, ""
	}
	likeliest, probable := request.Options["logprobs"].(int64)
	for _, piece := range pieces {
		event := inference.Event{Index: index, Text: piece, Tokens: m.words.encode(piece)}
		if probable {
			event.Probabilities = m.probabilities(event.Tokens, likeliest)
		}
		events = append(events, event)
	}
	return append(events, inference.Event{Index: index, Finish: finish, StopText: stopped})
}

func thinks(request inference.Request) bool {
	variables, _ := request.Options["variables"].(string)
	return strings.Contains(variables, `"enable_thinking":true`)
}

// probabilities are halves: the token's own, and those of made tokens after it.
func (m *Models) probabilities(ids []int32, likeliest int64) (found []inference.TokenProbability) {
	for _, id := range ids {
		piece, _ := m.words.piece(id)
		token := inference.TokenProbability{Token: id, Bytes: piece, Probability: -0.5}
		for i := int64(0); i < likeliest; i++ {
			other := inference.TokenProbability{Token: 1000 + int32(i), Bytes: []byte(fmt.Sprint(" w", i)), Probability: -0.5 * float64(i+1)}
			if i == 0 {
				other.Token, other.Bytes = id, piece
			}
			token.Likeliest = append(token.Likeliest, other)
		}
		found = append(found, token)
	}
	return found
}

func words(request inference.Request) string {
	options := request.Options
	if schema, ok := options["json_schema"].(string); ok {
		return smallest(json.RawMessage(schema))
	}
	if options["json"] != nil {
		return `{"a": 1}`
	}
	if choices, ok := options["choices"].(string); ok {
		var list []string
		if err := json.Unmarshal([]byte(choices), &list); err != nil {
			panic(err) // dialects give sound JSON
		}
		return list[0]
	}
	if request.Messages == nil {
		return " one two three four five six seven eight nine ten eleven twelve"
	}
	lines := conversation(request.Messages)
	_, said, _ := strings.Cut(lines[len(lines)-1], ": ")
	return "You said: " + said
}

// makeCall calls the named tool, or the first.
func makeCall(request inference.Request, index int) inference.ToolCall {
	var tools []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	list, _ := request.Options["tools"].(string)
	if err := json.Unmarshal([]byte(list), &tools); err != nil {
		panic(err) // dialects give sound JSON
	}
	chosen := tools[0].Function
	for _, tool := range tools {
		if tool.Function.Name == request.ToolName {
			chosen = tool.Function
		}
	}
	return inference.ToolCall{ID: fmt.Sprintf("call%05d", index), Name: chosen.Name, Arguments: smallest(chosen.Parameters)}
}

// smallest is a value of a plain schema: objects with all their properties, and the first of what may be chosen.
func smallest(schema json.RawMessage) string {
	var whole struct {
		Definitions map[string]json.RawMessage `json:"$defs"`
	}
	if json.Unmarshal(schema, &whole) != nil {
		return "{}"
	}
	return definitions(whole.Definitions).smallest(schema)
}

type definitions map[string]json.RawMessage

type plainSchema struct {
	Reference  string `json:"$ref"`
	Type       any
	Enum       []json.RawMessage
	Const      json.RawMessage
	AnyOf      []json.RawMessage
	Properties map[string]json.RawMessage
	Items      json.RawMessage
}

func (d definitions) smallest(text json.RawMessage) string {
	var schema plainSchema
	if json.Unmarshal(text, &schema) != nil {
		return "{}"
	}
	switch {
	case schema.Reference != "":
		return d.smallest(d[strings.TrimPrefix(schema.Reference, "#/$defs/")])
	case len(schema.Enum) > 0:
		return string(schema.Enum[0])
	case schema.Const != nil:
		return string(schema.Const)
	case len(schema.AnyOf) > 0:
		return d.smallest(schema.AnyOf[0])
	}
	switch schema.Type {
	case "string":
		return `"text"`
	case "integer", "number":
		return "3"
	case "boolean":
		return "true"
	case "null":
		return "null"
	case "array":
		if schema.Items == nil {
			return "[]"
		}
		return "[" + d.smallest(schema.Items) + "]"
	}
	made := map[string]json.RawMessage{}
	for name, property := range schema.Properties {
		made[name] = json.RawMessage(d.smallest(property))
	}
	value, err := json.Marshal(made)
	if err != nil {
		panic(err) // made of sound JSON
	}
	return string(value)
}
