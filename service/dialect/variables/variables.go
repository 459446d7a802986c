// Package variables is what chat templates read besides messages and tools; first of all, how much a model is to reason.
package variables

import "tessera.dev/service/dialect/wire"

// Variables are those of a template.
type Variables map[string]any

// Set sets one.
func (v *Variables) Set(name string, value any) {
	if *v == nil {
		*v = Variables{}
	}
	(*v)[name] = value
}

// Reason turns reasoning on or off by the variables that templates read: enable_thinking (Qwen, Gemma, GLM) and thinking (DeepSeek,
// Granite).
func (v *Variables) Reason(on bool) {
	v.Set("enable_thinking", on)
	v.Set("thinking", on)
}

// Efforts are those that Think knows.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// Think sets the effort of reasoning.
func (v *Variables) Think(effort string) {
	v.Reason(effort != "none")
	if effort != "none" {
		v.Grade(effort)
	}
}

// Grade sets only the effort. Templates that grade it (gpt-oss, ...) know low, medium and high, as reasoning_effort.
func (v *Variables) Grade(effort string) {
	switch effort {
	case "minimal":
		effort = "low"
	case "xhigh", "max":
		effort = "high"
	}
	v.Set("reasoning_effort", effort)
}

// JSON is the option of a template; "" where none is set.
func (v Variables) JSON() string {
	if len(v) == 0 {
		return ""
	}
	return string(wire.JSON(map[string]any(v)))
}
