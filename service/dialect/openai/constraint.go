package openai

import (
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// AnyObject is the schema of json_object: the library's option json takes texts, numbers and lists too, which clients of that form do
// not expect.
const AnyObject = `{"type":"object"}`

// constraints reads the members that constrain the form of texts, of which at most one may be given.
type constraints struct {
	body    *fields.Object
	options inference.Options
	first   string // path of the member that was given
}

func (c *constraints) set(object *fields.Object, member, option string, value any) {
	path := member
	if object.Path() != "" {
		path = object.Path() + "." + member
	}
	if c.first != "" {
		object.Fail(member, fields.InvalidValue, "is given with '%s'; one of them at most is wanted", c.first)
		return
	}
	c.first = path
	c.options[option] = value
}

// Constraints reads OpenAI's response_format, vLLM's structured_outputs and guided_*, and llama.cpp's grammar and json_schema.
func Constraints(body *fields.Object, options inference.Options) {
	c := &constraints{body: body, options: options}
	if format, ok := body.Object("response_format"); ok {
		c.format(format)
	}
	if outputs, ok := body.Object("structured_outputs"); ok {
		c.schema(outputs, "json")
		if flag, ok := outputs.Flag("json_object"); ok && flag {
			c.set(outputs, "json_object", "json_schema", AnyObject)
		}
		c.text(outputs, "regex", "regex")
		c.text(outputs, "grammar", "grammar")
		c.choice(outputs, "choice")
		outputs.Pass("disable_fallback") // there is none
		outputs.Done()
	}
	c.schema(body, "guided_json")
	c.text(body, "guided_regex", "regex")
	c.text(body, "guided_grammar", "grammar")
	c.choice(body, "guided_choice")
	c.schema(body, "json_schema")
	c.text(body, "grammar", "grammar")
}

// format reads response_format. llama.cpp has the schema next to the type, also for json_object.
func (c *constraints) format(format *fields.Object) {
	format.NeedText("type")
	switch kind, _ := format.Choice("type", "text", "json_object", "json_schema"); kind {
	case "json_object":
		if format.Has("schema") {
			c.schema(format, "schema")
		} else {
			c.set(format, "type", "json_schema", AnyObject)
		}
	case "json_schema":
		if format.Has("schema") && !format.Has("json_schema") {
			c.schema(format, "schema")
			break
		}
		named := format.NeedObject("json_schema")
		named.Text("name")
		named.Text("description")
		named.Flag("strict") // obeyed where it is false too
		if named.Has("schema") {
			c.schema(named, "schema")
		} else {
			c.set(named, "schema", "json", int64(1))
		}
		named.Done()
	}
	format.Done()
}

// schema reads a JSON schema, which is an object or a boolean.
func (c *constraints) schema(object *fields.Object, member string) {
	value, ok := object.Value(member)
	if !ok {
		return
	}
	if value.Kind() != fields.Members && value.Kind() != fields.Bool {
		value.Fail(fields.InvalidType, "is %s; a JSON schema is wanted", value.Kind())
	}
	c.set(object, member, "json_schema", string(value.Raw()))
}

func (c *constraints) text(object *fields.Object, member, option string) {
	if text, ok := object.Text(member); ok {
		if text == "" {
			object.Fail(member, fields.Empty, "is empty")
		}
		c.set(object, member, option, text)
	}
}

func (c *constraints) choice(object *fields.Object, member string) {
	if value, ok := object.Value(member); ok {
		c.set(object, member, "choices", string(wire.JSON(value.Texts(1, 1<<16))))
	}
}
