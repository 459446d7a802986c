package openai

import (
	"encoding/json"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/inference"
)

// Template reads the variables and documents of the chat template, and whether the last message is continued, into options.
func Template(body *fields.Object, options inference.Options) {
	var set variables.Variables
	if effort, ok := body.Choice("reasoning_effort", variables.Efforts...); ok {
		set.Think(effort)
	}
	if given, ok := body.Object("chat_template_kwargs"); ok {
		for _, name := range given.Names() {
			if value, ok := given.Value(name); ok {
				set.Set(name, append(json.RawMessage(nil), value.Raw()...))
			} else {
				set.Set(name, json.RawMessage("null"))
			}
		}
	}
	if len(set) > 0 {
		options["variables"] = set.JSON()
	}
	if value, ok := body.Value("documents"); ok {
		for _, document := range value.List(0, mostMessages) {
			document.Object()
		}
		options["documents"] = string(value.Raw())
	}
	if flag, ok := body.Flag("continue_final_message"); ok && flag {
		options["continue_final_message"] = int64(1)
	}
}
