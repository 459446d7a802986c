package messages

import (
	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
)

const mostTools = 4096

// readTools takes tools of the client's that bring their schema. Others run at Anthropic, or are known only to Claude models.
func (r *request) readTools(body *fields.Object) {
	elements, _ := body.List("tools", 0, mostTools)
	for _, element := range elements {
		tool := element.Object()
		if kind, ok := tool.Text("type"); ok && kind != "custom" {
			tool.Fail("type", fields.NotServed, "is %q; tools of the client's own with 'name' and 'input_schema' are served", kind)
			return
		}
		name := tool.NeedText("name")
		description, _ := tool.Text("description")
		r.tools = append(r.tools, conversation.NewTool(name, description, tool.NeedObject("input_schema").Raw()))
		tool.Pass("cache_control", "allowed_callers", "defer_loading", "eager_input_streaming", "input_examples", "strict")
		_ = r.done(tool)
	}
}

func (r *request) readChoice(body *fields.Object) {
	choice, ok := body.Object("tool_choice")
	if !ok {
		return
	}
	choice.NeedText("type")
	kind, _ := choice.Choice("type", "auto", "any", "tool", "none")
	switch kind {
	case "any":
		r.choice = "required"
	case "tool":
		r.choice, r.chosen = "named", choice.NeedText("name")
		if choice.Err() == nil && !r.hasTool(r.chosen) {
			choice.Fail("name", fields.InvalidValue, "is %q, which is no tool of 'tools'", r.chosen)
		}
	case "none":
		r.choice = "none"
	}
	if r.choice == "required" && len(r.tools) == 0 {
		choice.Fail("type", fields.InvalidValue, "is any, but there are no 'tools'")
	}
	r.oneCall, _ = choice.Flag("disable_parallel_tool_use")
	_ = r.done(choice)
}

func (r *request) hasTool(name string) bool {
	for _, tool := range r.tools {
		if tool.Function.Name == name {
			return true
		}
	}
	return false
}
