package tessera

import (
	"encoding/json"

	"tessera.dev/tessera/raw"
)

// Chat is a chat template: it turns the messages of a conversation into the text and the tokens that a model was trained
// on. Immutable; any goroutine. The header lists its options under tsr_chat_new and tsr_chat_render.
type Chat handle

// Message is one of a conversation. Where more than role and content is needed, give what marshals to JSON objects of
// that form, or the JSON itself, in place of []Message.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Close frees it; see the package.
func (c *Chat) Close() { (*handle)(c).close() }

// NewChat takes the model's template. Options: name, template.
func NewChat(model *Model, options Options) (*Chat, error) {
	h, err := (*handle)(model).holdWith(raw.Tsr_chat_free, options, raw.Tsr_chat_new)
	return (*Chat)(h), err
}

// NewChatText takes a template's text. tokenizer may be nil: then nothing can be encoded.
func NewChatText(text string, tokenizer *Tokenizer) (*Chat, error) {
	t, done, err := (*handle)(tokenizer).optional("tokenizer")
	defer done()
	if err != nil {
		return nil, err
	}
	h, err := hold(raw.Tsr_chat_free, func(out *uintptr) uintptr { return raw.Tsr_chat_new_text(text, t, out) })
	return (*Chat)(h), err
}

// messagesJSON is JSON as it is, and anything else as JSON.
func messagesJSON(messages any) (string, error) {
	switch given := messages.(type) {
	case string:
		return given, nil
	case []byte:
		return string(given), nil
	}
	made, err := json.Marshal(messages)
	if err != nil {
		return "", refuse("messages: %v", err)
	}
	return string(made), nil
}

// Render gives the text of a conversation: []Message, JSON, or what marshals to it.
func (c *Chat) Render(messages any, options Options) (rendered string, err error) {
	return c.ask(messages, options, raw.Tsr_chat_render)
}

// RenderRanges is JSON: the text, which bytes of it the messages made, and which the assistant says.
func (c *Chat) RenderRanges(messages any, options Options) (report string, err error) {
	return c.ask(messages, options, raw.Tsr_chat_render_ranges)
}

func (c *Chat) ask(messages any, options Options, call func(uintptr, uintptr, string, *uintptr) uintptr) (string, error) {
	h, done := (*handle)(c).use()
	defer done()
	given, err := messagesJSON(messages)
	if err != nil {
		return "", err
	}
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return call(h, o, given, out) })
}

// Fit gives the conversation without its oldest turns, so that it has at most mostTokens, as JSON: "messages", "dropped" (count of
// messages) and "tokens". What the system says stays, and so does the last turn.
func (c *Chat) Fit(messages any, mostTokens int64, options Options) (fitted string, err error) {
	return c.ask(messages, options, func(h, o uintptr, given string, out *uintptr) uintptr {
		return raw.Tsr_chat_fit(h, o, given, mostTokens, out)
	})
}

// Parse gives the message that a model's answer is, as JSON: its content, its reasoning, the tools that it calls, and as
// "cut_call" a call within which it ends. answer is what the pieces' texts make, with the control tokens of Markers written
// out. Options: prompt, in_thinking, tools, partial, seed.
func (c *Chat) Parse(answer string, options Options) (message string, err error) {
	h, done := (*handle)(c).use()
	defer done()
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_chat_parse(h, o, answer, out) })
}

// Markers are the control tokens that Parse reads, and their texts. Their pieces have none.
func (c *Chat) Markers() (texts map[int32]string, err error) {
	made, err := (*handle)(c).text(raw.Tsr_chat_markers)
	if err != nil {
		return nil, err
	}
	return texts, json.Unmarshal([]byte(made), &texts)
}

// Encode gives the tokens of a conversation; Generator.StartTokens takes them.
func (c *Chat) Encode(messages any, options Options) ([]int32, error) {
	ids, _, err := c.encode(messages, options, false)
	return ids, err
}

// EncodeAssistant also says of each token whether the assistant says it: what a model is trained on.
func (c *Chat) EncodeAssistant(messages any, options Options) (ids []int32, assistant []bool, err error) {
	return c.encode(messages, options, true)
}

func (c *Chat) encode(messages any, options Options, masked bool) ([]int32, []bool, error) {
	h, done := (*handle)(c).use()
	defer done()
	given, err := messagesJSON(messages)
	if err != nil {
		return nil, nil, err
	}
	ids := make([]int32, len(given)+1024)
	var marks []byte
	var count uint64
	for {
		var mask *byte
		if masked {
			marks = make([]byte, len(ids))
			mask = &marks[0]
		}
		err = options.with(func(o uintptr) uintptr { return raw.Tsr_chat_encode(h, o, given, ids, mask, &count) })
		if err != nil {
			return nil, nil, err
		}
		if count <= uint64(len(ids)) {
			break
		}
		ids = make([]int32, count)
	}
	var assistant []bool
	if masked {
		assistant = make([]bool, count)
		for i := range assistant {
			assistant[i] = marks[i] != 0
		}
	}
	return ids[:count], assistant, nil
}
