package responses

import (
	"encoding/base64"
	"strings"

	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
)

const mostItems = 100000

// readInput reads a text, or the items of a conversation. An empty one, by which Codex probes a server, is an empty text of the user.
func (r *request) readInput(body *fields.Object) {
	switch value, ok := body.Value("input"); {
	case !ok:
		body.Fail("input", fields.Missing, "is missing; a text or a list of items is wanted")
	case value.Kind() == fields.Text:
		r.talk.User(value.Text())
	case value.Kind() == fields.List:
		for _, element := range value.List(0, mostItems) {
			r.readItem(element.Object())
		}
	default:
		value.Fail(fields.InvalidType, "is %s; a text or a list of items is wanted", value.Kind())
	}
	if r.talk.OnlySystem() {
		r.talk.User("")
	}
}

// readItem takes items without type, id and status too, as Codex and others send them, and passes over members that it does not know:
// items of other services' responses come back with theirs.
func (r *request) readItem(item *fields.Object) {
	kind, ok := item.Text("type")
	if !ok && item.Has("role") {
		kind = "message"
	}
	switch kind {
	case "message":
		r.readMessage(item)
	case "reasoning":
		if text := readReasoningItem(item); text != "" {
			r.talk.Reasoning(text)
		}
	case "function_call":
		arguments, _ := item.Text("arguments")
		r.talk.Call(conversation.NewCall(item.NeedText("call_id"), item.NeedText("name"), arguments))
	case "function_call_output", "custom_tool_call_output":
		r.readResult(item)
	case "custom_tool_call":
		input, _ := item.Text("input")
		r.talk.Call(conversation.NewCustomCall(item.NeedText("call_id"), item.NeedText("name"), input))
	case "additional_tools":
		r.readTools(item)
	case "item_reference":
		item.Fail("type", fields.NotServed, "is \"item_reference\": items are not stored here; send them whole")
	case "":
		item.Fail("type", fields.Missing, "is missing; a text is wanted")
	default:
		item.Fail("type", fields.NotServed, "is %q; message, reasoning, function_call, function_call_output, custom_tool_call and "+
			"custom_tool_call_output are served", kind)
	}
	item.Rest()
}

func (r *request) readMessage(item *fields.Object) {
	item.NeedText("role")
	role, _ := item.Choice("role", "user", "assistant", "system", "developer")
	content, ok := item.Value("content")
	if !ok {
		item.Fail("content", fields.Missing, "is missing; a text or a list of parts is wanted")
		return
	}
	text := readParts(content, "input_text", "output_text", "text", "refusal")
	switch role {
	case "user":
		r.talk.User(text)
	case "assistant":
		r.talk.Answer(text)
	case "system", "developer":
		r.talk.System(text)
	}
}

func (r *request) readResult(item *fields.Object) {
	id := item.NeedText("call_id")
	output, ok := item.Value("output")
	if !ok {
		item.Fail("output", fields.Missing, "is missing; a text or a list of parts is wanted")
		return
	}
	if known := r.talk.Result(id, readParts(output, "input_text", "output_text", "text", "refusal")); !known && item.Err() == nil {
		item.Fail("call_id", fields.InvalidValue, "is %q, which no function_call before it has", id)
	}
}

// readParts joins the texts of a content, a line each.
func readParts(content fields.Value, kinds ...string) string {
	switch content.Kind() {
	case fields.Text:
		return content.Text()
	case fields.List:
	default:
		content.Fail(fields.InvalidType, "is %s; a text or a list of parts is wanted", content.Kind())
		return ""
	}
	var texts []string
	for _, element := range content.List(0, mostItems) {
		part := element.Object()
		kind := part.NeedText("type")
		known := false
		for _, each := range kinds {
			known = known || each == kind
		}
		switch {
		case !known:
			part.Fail("type", fields.NotServed, "is %q; %s are served", kind, strings.Join(kinds, ", "))
		case kind == "refusal":
			text, _ := part.Text("refusal")
			texts = append(texts, text)
		default:
			text, ok := part.Text("text")
			if !ok {
				part.Fail("text", fields.Missing, "is missing; a text is wanted")
			}
			texts = append(texts, text)
		}
		part.Rest()
	}
	return strings.Join(texts, "\n")
}

// sealPrefix marks an encrypted_content of this service. It hides nothing: the reasoning is the client's own.
const sealPrefix = "tessera1."

func seal(reasoning string) string {
	return sealPrefix + base64.RawURLEncoding.EncodeToString([]byte(reasoning))
}

func unseal(sealed string) string {
	if !strings.HasPrefix(sealed, sealPrefix) {
		return "" // another service's, which nobody else can read
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed, sealPrefix))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "\ufffd")
}

// readReasoningItem prefers the whole reasoning to its summary.
func readReasoningItem(item *fields.Object) string {
	text := ""
	if content, ok := item.Value("content"); ok {
		text = readParts(content, "reasoning_text", "text")
	}
	sealed, _ := item.Text("encrypted_content")
	if text == "" {
		text = unseal(sealed)
	}
	if summary, ok := item.Value("summary"); ok {
		if parts := readParts(summary, "summary_text", "text"); text == "" {
			text = parts
		}
	}
	return text
}
