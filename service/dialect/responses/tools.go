package responses

import (
	"encoding/json"

	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/wire"
)

const mostTools = 4096

// functionTool is a tool in the response object.
type functionTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// readTools reads the tools that are functions. Tools of other types (web_search, namespace, image_generation, custom, ...) are left
// out rather than refused: Codex always sends them, and works without them.
func (r *request) readTools(body *fields.Object) {
	elements, _ := body.List("tools", 0, mostTools)
	for _, element := range elements {
		tool := element.Object()
		if tool.NeedText("type") != "function" {
			tool.Rest()
			continue
		}
		shown := functionTool{Type: "function", Name: tool.NeedText("name")}
		description := ""
		if text, ok := tool.Text("description"); ok {
			description, shown.Description = text, &text
		}
		if flag, ok := tool.Flag("strict"); ok {
			shown.Strict = &flag
		}
		if parameters, ok := tool.Object("parameters"); ok {
			shown.Parameters = wire.Compact(parameters.Raw())
		}
		tool.Rest()
		r.tools = append(r.tools, conversation.NewTool(shown.Name, description, shown.Parameters))
		r.echo.Tools = append(r.echo.Tools, shown)
	}
}

func (r *request) hasTool(name string) bool {
	for _, tool := range r.tools {
		if tool.Function.Name == name {
			return true
		}
	}
	return false
}

// readChoice reads tool_choice, and the limits of calls.
func (r *request) readChoice(body *fields.Object) {
	switch value, ok := body.Value("tool_choice"); {
	case !ok:
	case value.Kind() == fields.Text:
		r.readMode(body, "tool_choice")
		r.echo.ToolChoice = value.Text()
	default:
		choice := value.Object()
		r.readNamedChoice(choice)
		r.echo.ToolChoice = wire.Compact(value.Raw())
	}
	if (r.choice == "required" || r.choice == "named") && len(r.tools) == 0 {
		body.Fail("tool_choice", fields.InvalidValue, "obliges a call, but 'tools' has no function")
	}
	if flag, ok := body.Flag("parallel_tool_calls"); ok {
		if r.echo.ParallelToolCalls = flag; !flag {
			r.mostCalls = 1
		}
	}
	if most, ok := body.Integer("max_tool_calls", 1, 1<<20); ok {
		r.echo.MaxToolCalls = &most
		if r.mostCalls < 0 {
			r.mostCalls = most
		}
	}
}

func (r *request) readMode(object *fields.Object, member string) {
	if mode, _ := object.Choice(member, "none", "auto", "required"); mode != "auto" {
		r.choice = mode
	}
}

func (r *request) readNamedChoice(choice *fields.Object) {
	switch kind := choice.NeedText("type"); kind {
	case "function":
		r.choice, r.chosen = "named", choice.NeedText("name")
		if choice.Err() == nil && !r.hasTool(r.chosen) {
			choice.Fail("name", fields.InvalidValue, "is %q, which is no function of 'tools'", r.chosen)
		}
	case "allowed_tools":
		r.readMode(choice, "mode")
		r.allow(choice.NeedList("tools", 1, mostTools), choice)
	case "":
	default:
		choice.Fail("type", fields.NotServed, "is %q; function and allowed_tools are served", kind)
	}
	choice.Rest()
}

// allow drops the functions that `elements` does not name.
func (r *request) allow(elements []fields.Value, choice *fields.Object) {
	allowed := map[string]bool{}
	for _, element := range elements {
		tool := element.Object()
		if tool.NeedText("type") == "function" {
			allowed[tool.NeedText("name")] = true
		}
		tool.Rest()
	}
	var tools []conversation.Tool
	for _, tool := range r.tools {
		if allowed[tool.Function.Name] {
			tools = append(tools, tool)
		}
	}
	if len(tools) == 0 && choice.Err() == nil {
		choice.Fail("tools", fields.InvalidValue, "has no function of 'tools'")
	}
	r.tools = tools
}
