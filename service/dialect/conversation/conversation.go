// Package conversation builds what chat templates take, in the form of tsr_chat_new: messages, tools, variables.
package conversation

import (
	"encoding/json"

	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
)

// The types are those of OpenAI's chat, which templates take.
type (
	Message  = openai.Message
	Call     = openai.Call
	Function = openai.Function
	Tool     = openai.Tool
)

// NewTool has an object without members as parameters where none are given.
func NewTool(name, description string, parameters []byte) Tool {
	if len(parameters) == 0 {
		parameters = []byte(`{"type":"object","properties":{}}`)
	}
	return Tool{Type: "function", Function: openai.ToolFunction{Name: name, Description: description, Parameters: wire.Compact(parameters)}}
}

// NewCall takes the arguments as the text of a reply. A text that is no JSON object stays a text, as the model wrote it.
func NewCall(id, name, arguments string) Call {
	return Call{ID: id, Type: "function", Function: Function{Name: name, Arguments: openai.Arguments(arguments)}}
}

// NewCustomCall is of a tool whose input is a text.
func NewCustomCall(id, name, input string) Call {
	return NewCall(id, name, string(wire.JSON(map[string]string{"input": input})))
}

// Talk collects messages in order. The parts of one answer (reasoning, text, calls) become one message of the assistant, and
// texts of the user that follow each other one message, as many templates want roles that alternate.
type Talk struct {
	messages []Message
	names    map[string]string // of tools, by the ids of their calls
}

func (t *Talk) last(role string) *Message {
	if count := len(t.messages); count > 0 && t.messages[count-1].Role == role {
		return &t.messages[count-1]
	}
	return nil
}

// join has an empty line between two texts that are not empty.
func join(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "\n\n" + second
}

// System adds words of the system; those that begin a conversation are one message.
func (t *Talk) System(text string) {
	if last := t.last("system"); last != nil {
		last.Content = join(last.Content, text)
		return
	}
	t.messages = append(t.messages, Message{Role: "system", Content: text})
}

// User adds words of the user.
func (t *Talk) User(text string) {
	if last := t.last("user"); last != nil {
		last.Content = join(last.Content, text)
		return
	}
	t.messages = append(t.messages, Message{Role: "user", Content: text})
}

// answer is the assistant's message that may go on; a new one where fits says that the part does not follow.
func (t *Talk) answer(fits func(*Message) bool) *Message {
	if last := t.last("assistant"); last != nil && fits(last) {
		return last
	}
	t.messages = append(t.messages, Message{Role: "assistant"})
	return &t.messages[len(t.messages)-1]
}

// Reasoning adds what the assistant thought before its text.
func (t *Talk) Reasoning(text string) {
	message := t.answer(func(m *Message) bool { return m.Content == "" && m.Calls == nil })
	message.Reasoning = join(message.Reasoning, text)
}

// Answer adds text of the assistant.
func (t *Talk) Answer(text string) {
	message := t.answer(func(m *Message) bool { return m.Calls == nil })
	message.Content = join(message.Content, text)
}

// Call adds a call of the assistant.
func (t *Talk) Call(call Call) {
	if t.names == nil {
		t.names = map[string]string{}
	}
	t.names[call.ID] = call.Function.Name
	message := t.answer(func(*Message) bool { return true })
	message.Calls = append(message.Calls, call)
}

// Result adds the result of a call; known is false where no call has that id.
func (t *Talk) Result(id, text string) (known bool) {
	name, known := t.names[id]
	t.messages = append(t.messages, Message{Role: "tool", Content: text, CallID: id, Name: name})
	return known
}

// Add adds a message as it is.
func (t *Talk) Add(message Message) { t.messages = append(t.messages, message) }

// EndsWith says whose the last message is.
func (t *Talk) EndsWith(role string) bool { return t.last(role) != nil }

// EndsWithCall says whether the last message is a call.
func (t *Talk) EndsWithCall() bool {
	last := t.last("assistant")
	return last != nil && last.Calls != nil
}

// OnlySystem says whether nobody else has spoken.
func (t *Talk) OnlySystem() bool {
	for _, message := range t.messages {
		if message.Role != "system" {
			return false
		}
	}
	return true
}

// JSON is the list of messages.
func (t *Talk) JSON() json.RawMessage { return wire.JSON(t.messages) }
