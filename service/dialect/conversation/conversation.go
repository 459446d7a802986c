// Package conversation builds what chat templates take, in the form of tsr_chat_new: messages, tools, variables.
package conversation

import (
	"encoding/json"
	"strings"

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
	turns []*turn
	names map[string]string // of tools, by the ids of their calls
}

// turn is a message whose texts grow.
type turn struct {
	message            Message
	content, reasoning strings.Builder
}

func (t *Talk) last(role string) *turn {
	if count := len(t.turns); count > 0 && t.turns[count-1].message.Role == role {
		return t.turns[count-1]
	}
	return nil
}

// begin adds a message, whose texts may go on.
func (t *Talk) begin(message Message) *turn {
	made := &turn{message: message}
	made.content.WriteString(message.Content)
	made.reasoning.WriteString(message.Reasoning)
	t.turns = append(t.turns, made)
	return made
}

// join has an empty line between two texts that are not empty.
func join(into *strings.Builder, text string) {
	if into.Len() > 0 && text != "" {
		into.WriteString("\n\n")
	}
	into.WriteString(text)
}

// System adds words of the system; those that begin a conversation are one message.
func (t *Talk) System(text string) { t.say("system", text) }

// User adds words of the user.
func (t *Talk) User(text string) { t.say("user", text) }

func (t *Talk) say(role, text string) {
	last := t.last(role)
	if last == nil {
		last = t.begin(Message{Role: role})
	}
	join(&last.content, text)
}

// answer is the assistant's message that may go on; a new one where fits says that the part does not follow.
func (t *Talk) answer(fits func(*turn) bool) *turn {
	if last := t.last("assistant"); last != nil && fits(last) {
		return last
	}
	return t.begin(Message{Role: "assistant"})
}

// Reasoning adds what the assistant thought before its text.
func (t *Talk) Reasoning(text string) {
	made := t.answer(func(each *turn) bool { return each.content.Len() == 0 && each.message.Calls == nil })
	join(&made.reasoning, text)
}

// Answer adds text of the assistant.
func (t *Talk) Answer(text string) {
	made := t.answer(func(each *turn) bool { return each.message.Calls == nil })
	join(&made.content, text)
}

// Call adds a call of the assistant.
func (t *Talk) Call(call Call) {
	if t.names == nil {
		t.names = map[string]string{}
	}
	t.names[call.ID] = call.Function.Name
	made := t.answer(func(*turn) bool { return true })
	made.message.Calls = append(made.message.Calls, call)
}

// Result adds the result of a call; known is false where no call has that id.
func (t *Talk) Result(id, text string) (known bool) {
	name, known := t.names[id]
	t.begin(Message{Role: "tool", Content: text, CallID: id, Name: name})
	return known
}

// Add adds a message as it is.
func (t *Talk) Add(message Message) { t.begin(message) }

// EndsWith says whose the last message is.
func (t *Talk) EndsWith(role string) bool { return t.last(role) != nil }

// EndsWithCall says whether the last message is a call.
func (t *Talk) EndsWithCall() bool {
	last := t.last("assistant")
	return last != nil && last.message.Calls != nil
}

// OnlySystem says whether nobody else has spoken.
func (t *Talk) OnlySystem() bool {
	for _, each := range t.turns {
		if each.message.Role != "system" {
			return false
		}
	}
	return true
}

// JSON is the list of messages.
func (t *Talk) JSON() json.RawMessage {
	messages := make([]Message, len(t.turns))
	for i, each := range t.turns {
		messages[i] = each.message
		messages[i].Content, messages[i].Reasoning = each.content.String(), each.reasoning.String()
	}
	return wire.JSON(messages)
}
