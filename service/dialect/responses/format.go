package responses

import (
	"encoding/json"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/dialect/wire"
)

// textField is the member `text` of the response object.
type textField struct {
	Format    any    `json:"format"`
	Verbosity string `json:"verbosity,omitempty"`
}

type plainFormat struct {
	Type string `json:"type"`
}

type schemaFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Strict      bool            `json:"strict"`
}

// readText reads text.format, and text.verbosity for templates that know it.
func (r *request) readText(body *fields.Object) {
	text, ok := body.Object("text")
	if !ok {
		return
	}
	if verbosity, ok := text.Choice("verbosity", "low", "medium", "high"); ok {
		r.echo.Text.Verbosity = verbosity
		r.variables.Set("verbosity", verbosity)
	}
	if format, ok := text.Object("format"); ok {
		r.readFormat(format)
	}
	text.Done()
}

func (r *request) readFormat(format *fields.Object) {
	format.NeedText("type")
	switch kind, _ := format.Choice("type", "text", "json_object", "json_schema"); kind {
	case "json_object":
		r.options["json_schema"] = openai.AnyObject
		r.echo.Text.Format = plainFormat{kind}
	case "json_schema":
		shown := schemaFormat{Type: kind, Name: format.NeedText("name")}
		if text, ok := format.Text("description"); ok {
			shown.Description = &text
		}
		shown.Strict, _ = format.Flag("strict") // schemas are obeyed where it is false too
		shown.Schema = wire.Compact(orEmpty(format.NeedObject("schema").Raw()))
		r.options["json_schema"] = string(shown.Schema)
		r.echo.Text.Format = shown
	}
	format.Done()
}

func orEmpty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("{}") // with an error
	}
	return raw
}

// reasoningField is the member `reasoning` of the response object.
type reasoningField struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// readReasoning reads the effort, and whether the reply has the reasoning as a summary (all of it) or as content.
func (r *request) readReasoning(body *fields.Object) {
	reasoning, ok := body.Object("reasoning")
	if !ok {
		return
	}
	if effort, ok := reasoning.Choice("effort", variables.Efforts...); ok {
		r.echo.Reasoning.Effort = &effort
		r.variables.Think(effort)
	}
	for _, member := range []string{"summary", "generate_summary"} {
		if summary, ok := reasoning.Choice(member, "auto", "concise", "detailed"); ok {
			r.echo.Reasoning.Summary = &summary
		}
	}
	reasoning.Pass("context", "mode") // templates decide which turns keep theirs
	reasoning.Done()
}
