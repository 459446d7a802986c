package completions

import (
	"strings"
	"unicode/utf8"

	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// choice is one text of a reply.
type choice struct {
	text          strings.Builder
	offsets       offsets
	probabilities *probabilities
	finish        string
}

type choiceBody struct {
	Text          string         `json:"text"`
	Index         int            `json:"index"`
	Probabilities *probabilities `json:"logprobs"`
	Finish        *string        `json:"finish_reason"`
}

type completion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []choiceBody `json:"choices"`
	Usage   any          `json:"usage,omitempty"` // null in all chunks but the last, where it is asked for
}

func (x *exchange) body(choices []choiceBody, usage any) completion {
	return completion{x.id, "text_completion", x.created, x.model, choices, usage}
}

// Begin gives the texts their prompts, as far as these are known as text.
func (x *exchange) Begin(_ inference.Info, usage []inference.Usage) (bytes []byte) {
	x.usage = openai.SumUsage(usage)
	if !x.echo || x.probable {
		return nil
	}
	for i, prompt := range x.prompts {
		if prompt.Tokens == nil {
			bytes = append(bytes, x.tellPrompt(i, prompt.Words, nil)...)
		}
	}
	return bytes
}

// tellPrompt begins, or goes on with, all texts of a prompt.
func (x *exchange) tellPrompt(request int, text string, found *probabilities) (bytes []byte) {
	for i := request * x.texts; i < (request+1)*x.texts; i++ {
		bytes = append(bytes, x.tell(i, text, found, "")...)
	}
	return bytes
}

// Piece is one chunk for a piece of text, or of the prompt, and for the end.
func (x *exchange) Piece(request int, event inference.Event) (bytes []byte) {
	if event.Index < 0 || event.Index >= x.texts || request < 0 || request >= len(x.prompts) {
		return nil
	}
	if len(event.Prompt) > 0 && x.echo {
		bytes = x.piecePrompt(request, event.Prompt)
	}
	if x.nothing {
		event.Text, event.Probabilities, event.Tokens = "", nil, nil
		if event.Finish != "" {
			event.Finish = inference.Length
		}
	}
	x.usage.Add(event)
	index := request*x.texts + event.Index
	var found *probabilities
	if x.probable && len(event.Probabilities) > 0 {
		found = newProbabilities()
		found.add(&x.choices[index].offsets, event.Probabilities)
	}
	finish := ""
	if event.Finish != "" {
		finish = openai.FinishReason(event.Finish, 0)
	}
	if event.Text == "" && found == nil && finish == "" {
		return bytes
	}
	return append(bytes, x.tell(index, event.Text, found, finish)...)
}

// piecePrompt tells a part of the prompt by its tokens. Each text counts its own characters, from the same beginning.
func (x *exchange) piecePrompt(request int, tokens []inference.TokenProbability) []byte {
	bytes := x.begun[request]
	for _, token := range tokens {
		bytes = append(bytes, token.Bytes...)
	}
	whole := wholeCharacters(bytes)
	x.begun[request] = bytes[whole:]
	text := string(bytes[:whole])
	if !x.probable {
		return x.tellPrompt(request, text, nil)
	}
	first := &x.choices[request*x.texts].offsets
	found := newProbabilities()
	found.add(first, tokens)
	for i := request*x.texts + 1; i < (request+1)*x.texts; i++ {
		x.choices[i].offsets = offsets{first.characters, append([]byte(nil), first.begun...)}
	}
	return x.tellPrompt(request, text, found)
}

// wholeCharacters counts the bytes before a character that is not complete.
func wholeCharacters(bytes []byte) int {
	for i := 1; i <= len(bytes) && i < utf8.UTFMax; i++ {
		if at := len(bytes) - i; utf8.RuneStart(bytes[at]) {
			if !utf8.FullRune(bytes[at:]) {
				return at
			}
			break
		}
	}
	return len(bytes)
}

// tell adds to a text, and gives the chunk where chunks are sent.
func (x *exchange) tell(index int, text string, found *probabilities, finish string) []byte {
	if x.streaming.Streamed {
		made := choiceBody{text, index, found, nil}
		if finish != "" {
			made.Finish = &finish
		}
		var usage any
		switch {
		case x.streaming.CountsUsage:
			usage = x.usage
		case x.streaming.TellsUsage:
			usage = (*openai.Usage)(nil)
		}
		return openai.Event(x.body([]choiceBody{made}, usage))
	}
	choice := &x.choices[index]
	choice.text.WriteString(text)
	choice.finish = finish
	if found != nil {
		if choice.probabilities == nil {
			choice.probabilities = newProbabilities()
		}
		choice.probabilities.append(found)
	}
	return nil
}

// End is the usage where it is asked for, and the mark of the end.
func (x *exchange) End(usage []inference.Usage) []byte {
	x.usage = openai.SumUsage(usage)
	if x.nothing {
		x.usage.Completion, x.usage.Total = 0, x.usage.Prompt
	}
	if !x.streaming.Streamed {
		return nil
	}
	if !x.streaming.TellsUsage {
		return []byte(openai.Done)
	}
	return append(openai.Event(x.body([]choiceBody{}, x.usage)), openai.Done...)
}

// Whole is the reply in one piece.
func (x *exchange) Whole() []byte {
	choices := make([]choiceBody, len(x.choices))
	for i := range choices {
		choice := &x.choices[i]
		if x.probable && choice.probabilities == nil {
			choice.probabilities = newProbabilities()
		}
		choices[i] = choiceBody{strings.ToValidUTF8(choice.text.String(), "\ufffd"), i, choice.probabilities, &choice.finish}
	}
	return wire.JSON(x.body(choices, x.usage))
}
