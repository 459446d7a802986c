package openai

import (
	"encoding/json"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/inference"
)

// Template reads the variables and documents of the chat template, and whether the last message is continued, into options. hidden:
// the reply is not to have the reasoning.
func Template(body *fields.Object, options inference.Options) (hidden bool) {
	var set variables.Variables
	if reasoning, ok := body.Object("reasoning"); ok {
		hidden = readReasoning(reasoning, &set)
	}
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
	return hidden
}

// readReasoning reads the object `reasoning` of OpenRouter's clients, and of Responses' that speak chat. A budget is a hint, which the
// engine has no use for, and a summary is all of the reasoning.
func readReasoning(reasoning *fields.Object, set *variables.Variables) (hidden bool) {
	if on, ok := reasoning.Flag("enabled"); ok {
		set.Reason(on)
	}
	if effort, ok := reasoning.Choice("effort", variables.Efforts...); ok {
		set.Think(effort)
	}
	reasoning.Integer("max_tokens", 0, MostTokens)
	reasoning.Choice("summary", "auto", "concise", "detailed")
	hidden, _ = reasoning.Flag("exclude")
	reasoning.Done()
	return hidden
}
