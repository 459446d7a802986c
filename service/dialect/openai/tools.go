package openai

import (
	"encoding/json"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// Tool describes a tool that models may call, in the form that templates take.
type Tool struct {
	Type     string       `json:"type"`
	Function ToolFunction `json:"function"`
}

// ToolFunction describes the function of a tool; Parameters is a JSON schema.
type ToolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// MostTools bounds lists of tools.
const MostTools = 1024

// ReadTools reads 'tools', and 'tool_choice' for a request: "", "none", "required", or "named" with the tool's name.
func ReadTools(body *fields.Object, options inference.Options) (choice, name string) {
	var tools []Tool
	list, _ := body.List("tools", 0, MostTools)
	for _, value := range list {
		tools = append(tools, readTool(value.Object()))
	}
	choice, name, tools = readChoice(body, tools)
	if len(tools) > 0 {
		options["tools"] = string(wire.JSON(tools))
	}
	return choice, name
}

func readTool(item *fields.Object) Tool {
	item.NeedText("type")
	item.Only("type", `"function"`)
	tool := Tool{Type: "function"}
	function := item.NeedObject("function")
	tool.Function.Name = function.NeedText("name")
	tool.Function.Description, _ = function.Text("description")
	if parameters, ok := function.Object("parameters"); ok {
		tool.Function.Parameters = append(json.RawMessage(nil), parameters.Raw()...)
	}
	if strict, ok := function.Flag("strict"); ok {
		tool.Function.Strict = &strict
	}
	function.Done()
	item.Pass("cache_control")
	item.Done()
	return tool
}

// readChoice reads tool_choice, and returns the tools without those that allowed_tools does not name.
func readChoice(body *fields.Object, tools []Tool) (choice, name string, left []Tool) {
	value, ok := body.Value("tool_choice")
	if !ok {
		return "", "", tools
	}
	if value.Kind() == fields.Text {
		choice, _ = body.Choice("tool_choice", "none", "auto", "required")
		if choice == "auto" {
			choice = ""
		}
	} else {
		object := value.Object()
		object.NeedText("type")
		switch kind, _ := object.Choice("type", "function", "allowed_tools"); kind {
		case "function":
			choice, name = "named", readName(object, tools)
		case "allowed_tools":
			choice, tools = readAllowed(object.NeedObject("allowed_tools"), tools)
		}
		object.Done()
	}
	if len(tools) == 0 && (choice == "required" || choice == "named") {
		body.Fail("tool_choice", fields.InvalidValue, "asks for a call; 'tools' is empty")
	}
	return choice, name, tools
}

// readName reads {"function": {"name"}}, which must name one of the tools.
func readName(object *fields.Object, tools []Tool) string {
	function := object.NeedObject("function")
	name := function.NeedText("name")
	if !has(tools, name) && name != "" {
		function.Fail("name", fields.InvalidValue, "is %q, which is none of 'tools'", name)
	}
	function.Done()
	return name
}

func has(tools []Tool, name string) bool {
	for _, tool := range tools {
		if tool.Function.Name == name {
			return true
		}
	}
	return false
}

func readAllowed(allowed *fields.Object, tools []Tool) (choice string, left []Tool) {
	allowed.NeedText("mode")
	if mode, _ := allowed.Choice("mode", "auto", "required"); mode == "required" {
		choice = mode
	}
	names := map[string]bool{}
	for _, value := range allowed.NeedList("tools", 1, MostTools) {
		object := value.Object()
		object.NeedText("type")
		object.Only("type", `"function"`)
		names[readName(object, tools)] = true
		object.Done()
	}
	allowed.Done()
	for _, tool := range tools {
		if names[tool.Function.Name] {
			left = append(left, tool)
		}
	}
	return choice, left
}
