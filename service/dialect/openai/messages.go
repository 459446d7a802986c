package openai

import (
	"encoding/json"
	"strings"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/wire"
)

// Message is a message of a conversation, in the engine's form.
type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Name      string `json:"name,omitempty"`
	Reasoning string `json:"reasoning_content,omitempty"`
	Calls     []Call `json:"tool_calls,omitempty"`
	CallID    string `json:"tool_call_id,omitempty"`
}

// Call is a call of a tool that the assistant made.
type Call struct {
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is a called function. Arguments is an object, or a JSON string where the arguments' text is not an object.
type Function struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Arguments returns a call's arguments, given as a text, as an object, since templates take objects; a text that is not an object
// becomes a JSON string.
func Arguments(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("{}")
	}
	if value, err := fields.Parse([]byte(text)); err == nil && value.Kind() == fields.Members {
		return append(json.RawMessage(nil), value.Raw()...)
	}
	return wire.JSON(text)
}

// mostMessages, mostParts and mostCalls bound lists within a body, whose bytes are bounded too.
const (
	mostMessages = 1 << 16
	mostParts    = 1 << 16
	mostCalls    = 1024
)

// replayed are members of answers that clients send back with a conversation: none of them is text of it.
var replayed = []string{
	"annotations", "provider_specific_fields", "reasoning_details", "id", "status", "parsed", "weight", "cache_control", "refusal",
	"prompt_cache_breakpoint",
}

// Messages reads a conversation.
func Messages(body *fields.Object, member string) []Message {
	var messages []Message
	names := map[string]string{} // of functions, by the ids of their calls
	for _, value := range body.NeedList(member, 1, mostMessages) {
		item := value.Object()
		message := readMessage(item)
		for _, call := range message.Calls {
			names[call.ID] = call.Function.Name
		}
		if message.Role == "tool" && message.Name == "" {
			message.Name = names[message.CallID]
		}
		messages = append(messages, message)
		item.Pass(replayed...)
		item.Done()
	}
	return messages
}

func readMessage(item *fields.Object) Message {
	var message Message
	item.NeedText("role")
	message.Role, _ = item.Choice("role", "system", "developer", "user", "assistant", "tool")
	message.Name, _ = item.Text("name")
	if value, ok := item.Value("content"); ok {
		message.Content = Content(value)
	} else if message.Role != "assistant" && message.Role != "" {
		item.Fail("content", fields.Missing, "is missing; a text or a list of parts is wanted")
	}
	switch message.Role {
	case "assistant":
		readAnswer(item, &message)
	case "tool":
		message.CallID = item.NeedText("tool_call_id")
	}
	item.Refuse("function_call", "calls are in 'tool_calls'")
	item.Refuse("audio", "messages are texts")
	return message
}

// readAnswer reads the members that only the assistant's messages have. Clients write reasoning under three names.
func readAnswer(item *fields.Object, message *Message) {
	for _, name := range []string{"reasoning", "thinking", "reasoning_content"} {
		if text, ok := item.Text(name); ok && text != "" {
			message.Reasoning = text
		}
	}
	if refusal, ok := item.Text("refusal"); ok && message.Content == "" {
		message.Content = refusal
	}
	calls, _ := item.List("tool_calls", 0, mostCalls)
	for _, value := range calls {
		call := value.Object()
		made := Call{Type: "function"}
		made.ID, _ = call.Text("id")
		call.Only("type", `"function"`)
		function := call.NeedObject("function")
		made.Function.Name = function.NeedText("name")
		made.Function.Arguments = readArguments(function)
		function.Done()
		call.Pass("index", "provider_specific_fields", "extra_content", "parsed")
		call.Done()
		message.Calls = append(message.Calls, made)
	}
}

// readArguments reads a call's arguments, which are a text in OpenAI's form and an object in others'.
func readArguments(function *fields.Object) json.RawMessage {
	function.Pass("parsed_arguments", "parsed")
	value, ok := function.Value("arguments")
	switch {
	case !ok:
		return json.RawMessage("{}")
	case value.Kind() == fields.Members:
		return append(json.RawMessage(nil), value.Raw()...)
	}
	return Arguments(value.Text())
}

// refusedParts are parts of content that no model here reads.
var refusedParts = map[string]string{
	"image_url": "images", "input_image": "images", "image": "images", "input_audio": "audio", "audio_url": "audio",
	"video_url": "videos", "file": "files", "input_file": "files",
}

// Content returns the text of a message's content: a text, or a list of parts, whose texts are joined with line breaks.
func Content(value fields.Value) string {
	if value.Kind() == fields.Text {
		return value.Text()
	}
	if value.Kind() != fields.List {
		value.Fail(fields.InvalidType, "is %s; a text or a list of parts is wanted", value.Kind())
		return ""
	}
	var texts []string
	for _, each := range value.List(0, mostParts) {
		part := each.Object()
		switch kind := part.NeedText("type"); {
		case kind == "text":
			text, ok := part.Text("text")
			if !ok {
				part.Fail("text", fields.Missing, "is missing; a text is wanted")
			}
			texts = append(texts, text)
		case kind == "refusal":
			text, _ := part.Text("refusal")
			texts = append(texts, text)
		case refusedParts[kind] != "":
			part.Fail("type", fields.ValueRefused, "is %q: %s are not supported, content is text", kind, refusedParts[kind])
		default:
			part.Fail("type", fields.InvalidValue, "is %q; text is wanted", kind)
		}
		part.Pass("cache_control", "prompt_cache_breakpoint", "annotations")
		part.Done()
	}
	return strings.Join(texts, "\n")
}

// Conversation returns messages as JSON for a template. A template that does not know the role developer gets its messages as
// those of the system, each joined to the system's message right before it.
func Conversation(messages []Message, template string) json.RawMessage {
	if strings.Contains(template, "developer") {
		return wire.JSON(messages)
	}
	made := make([]Message, 0, len(messages))
	joined := map[int][]string{} // texts of messages of the system, by index
	for i, message := range messages {
		if message.Role == "developer" {
			message.Role = "system"
			if last := len(made) - 1; i > 0 && made[last].Role == "system" {
				if joined[last] == nil {
					joined[last] = []string{made[last].Content}
				}
				joined[last] = append(joined[last], message.Content)
				continue
			}
		}
		made = append(made, message)
	}
	for i, texts := range joined {
		made[i].Content = strings.Join(texts, "\n\n")
	}
	return wire.JSON(made)
}
