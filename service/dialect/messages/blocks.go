package messages

import (
	"strings"

	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
)

const (
	mostMessages = 100000
	mostBlocks   = 100000
)

// billing is the beginning of the line that Claude Code puts before its system text. It is of no use to a model, and its value
// changes with each request, so that nothing behind it would be found in the prefix cache.
const billing = "x-anthropic-billing-header:"

// dropBilling cuts that line off.
func dropBilling(text string) string {
	if !strings.HasPrefix(text, billing) {
		return text
	}
	_, rest, _ := strings.Cut(text, "\n")
	return strings.TrimLeft(rest, "\n")
}

func (r *request) readSystem(body *fields.Object) {
	system, ok := body.Value("system")
	if !ok {
		return
	}
	if system.Kind() == fields.Text {
		r.addSystem(dropBilling(system.Text()))
		return
	}
	for _, element := range system.List(0, mostBlocks) {
		block := element.Object()
		r.addSystem(dropBilling(r.readText(block)))
	}
}

func (r *request) addSystem(text string) {
	if text != "" {
		r.talk.System(text)
	}
}

// readText reads a block that has to be a text.
func (r *request) readText(block *fields.Object) string {
	block.NeedText("type")
	if kind, _ := block.Text("type"); kind != "text" {
		block.Fail("type", fields.NotServed, "is %q; text is served", kind)
	}
	return r.readTextBlock(block)
}

func (r *request) readTextBlock(block *fields.Object) string {
	text, ok := block.Text("text")
	if !ok {
		block.Fail("text", fields.Missing, "is missing; a text is wanted")
	}
	block.Pass("cache_control", "citations")
	_ = r.done(block)
	return text
}

func (r *request) readMessages(body *fields.Object) {
	for _, element := range body.NeedList("messages", 1, mostMessages) {
		message := element.Object()
		message.NeedText("role")
		role, _ := message.Choice("role", "user", "assistant", "system")
		content, ok := message.Value("content")
		switch {
		case !ok:
			message.Fail("content", fields.Missing, "is missing; a text or a list of blocks is wanted")
		case content.Kind() == fields.Text:
			r.say(role, content.Text())
		default:
			for _, block := range content.List(0, mostBlocks) {
				r.readBlock(role, block.Object())
			}
		}
		_ = r.done(message)
	}
	switch {
	case body.Err() != nil:
	case r.talk.OnlySystem():
		body.Fail("messages", fields.InvalidValue, "has no text of the user")
	case r.talk.EndsWithCall():
		body.Fail("messages", fields.InvalidValue, "ends with a tool_use, whose tool_result is wanted")
	}
}

func (r *request) say(role, text string) {
	switch role {
	case "user":
		r.talk.User(text)
	case "assistant":
		if text != "" {
			r.talk.Answer(text)
		}
	case "system":
		r.remind(text)
	}
}

// remind adds words of the system within a conversation, as Claude Code has them behind the user's. Most templates know such words at
// the beginning alone, so they are in the user's turn, marked as Claude Code marks its own.
func (r *request) remind(text string) {
	if text != "" {
		r.talk.User("<system-reminder>\n" + text + "\n</system-reminder>")
	}
}

// readBlock reads one block of a message. Those of the user's are texts and results of tools, those of the assistant's texts,
// thinking and calls.
func (r *request) readBlock(role string, block *fields.Object) {
	kind := block.NeedText("type")
	switch {
	case kind == "text":
		r.say(role, r.readTextBlock(block))
		return
	case role == "user" && (kind == "document" || kind == "search_result"):
		r.talk.User(r.readSource(kind, block))
	case role == "user" && kind == "tool_result":
		r.readResult(block)
	case role == "assistant" && kind == "thinking":
		text, _ := block.Text("thinking")
		block.Text("signature")
		if text != "" {
			r.talk.Reasoning(text)
		}
	case role == "assistant" && kind == "redacted_thinking":
		block.Pass("data") // nobody else can read it
	case role == "assistant" && kind == "tool_use":
		id, name := block.NeedText("id"), block.NeedText("name")
		r.talk.Call(conversation.NewCall(id, name, string(block.NeedObject("input").Raw())))
	case kind != "":
		block.Fail("type", fields.NotServed, "is %q in a message of the role %s; text, tool_result, tool_use, thinking and documents of "+
			"text are served", kind, role)
	}
	block.Pass("cache_control", "caller", "toolset_name")
	_ = r.done(block)
}

// readResult reads a tool's result. An error is told in words, as templates have no place for it.
func (r *request) readResult(block *fields.Object) {
	id := block.NeedText("tool_use_id")
	var texts []string
	if content, ok := block.Value("content"); ok && content.Kind() == fields.Text {
		texts = append(texts, content.Text())
	} else if ok {
		for _, element := range content.List(0, mostBlocks) {
			part := element.Object()
			switch kind := part.NeedText("type"); kind {
			case "document", "search_result":
				texts = append(texts, r.readSource(kind, part))
				_ = r.done(part)
			default:
				texts = append(texts, r.readText(part))
			}
		}
	}
	if wrong, _ := block.Flag("is_error"); wrong {
		texts = append([]string{"Error:"}, texts...)
	}
	if known := r.talk.Result(id, strings.Join(texts, "\n")); !known && block.Err() == nil {
		block.Fail("tool_use_id", fields.InvalidValue, "is %q, which no tool_use before it has", id)
	}
}

// readSource gives the text of a document or a search result, behind its title.
func (r *request) readSource(kind string, block *fields.Object) string {
	var texts []string
	if title, ok := block.Text("title"); ok {
		texts = append(texts, title)
	}
	if kind == "search_result" {
		texts = append(texts, block.NeedText("source"))
		for _, element := range block.NeedList("content", 0, mostBlocks) {
			texts = append(texts, r.readText(element.Object()))
		}
	} else {
		if context, ok := block.Text("context"); ok {
			texts = append(texts, context)
		}
		texts = append(texts, r.readDocument(block.NeedObject("source"))...)
	}
	if citations, ok := block.Object("citations"); ok {
		citations.Only("enabled", "false")
		_ = r.done(citations)
	}
	block.Pass("cache_control")
	return strings.Join(texts, "\n")
}

func (r *request) readDocument(source *fields.Object) (texts []string) {
	switch kind := source.NeedText("type"); kind {
	case "text":
		texts = append(texts, source.NeedText("data"))
		source.Only("media_type", `"text/plain"`)
	case "content":
		if content, ok := source.Value("content"); ok && content.Kind() == fields.Text {
			texts = append(texts, content.Text())
		} else if ok {
			for _, element := range content.List(0, mostBlocks) {
				texts = append(texts, r.readText(element.Object()))
			}
		}
	default:
		source.Fail("type", fields.NotServed, "is %q; text and content are served", kind)
	}
	_ = r.done(source)
	return texts
}
