package responses

import (
	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// request is a decoded body.
type request struct {
	model     string
	streamed  bool
	options   inference.Options
	talk      conversation.Talk
	tools     []conversation.Tool
	choice    string // inference.Request.ToolChoice
	chosen    string // the tool, where choice is "named"
	mostCalls int64  // of one response; negative for any number
	variables variables.Variables
	logprobs  bool
	encrypted bool   // reasoning is given in encrypted_content too
	echo      object // the response object, with the request's members repeated in it
}

// read decodes a body. counting is set for the input_tokens endpoint, whose body has no sampling members.
func read(call *dialect.Call, counting bool) (*request, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	r := &request{options: inference.Options{}, mostCalls: -1, echo: newObject(call)}
	r.model = body.NeedText("model")
	r.echo.Model = r.model
	if text, ok := body.Text("instructions"); ok {
		r.echo.Instructions = &text
		r.talk.System(text)
	}
	r.readTools(body)
	r.readInput(body)
	r.readChoice(body)
	r.readText(body)
	r.readReasoning(body)
	body.Refuse("previous_response_id", "responses are not stored here; send the whole conversation as 'input'")
	body.Refuse("conversation", "conversations are not stored here; send the whole conversation as 'input'")
	body.Only("truncation", `"disabled"`)
	body.Pass("personality", "client_metadata")
	if r.choice == "required" || r.choice == "named" { // a form is of the text, which such a reply has none of
		delete(r.options, "json_schema")
	}
	if !counting {
		r.readSampling(body)
		r.readEcho(body)
	}
	return r, body.Done()
}

func (r *request) readSampling(body *fields.Object) {
	r.streamed, _ = body.Flag("stream")
	openai.Sampling(body, r.options)
	for member, echo := range map[string]*float64{"temperature": &r.echo.Temperature, "top_p": &r.echo.TopP,
		"presence_penalty": &r.echo.PresencePenalty, "frequency_penalty": &r.echo.FrequencyPenalty} {
		if value, ok := r.options[member].(float64); ok {
			*echo = value
		}
	}
	if most, ok := body.Integer("max_output_tokens", 1, openai.MostTokens); ok {
		r.options["max_tokens"] = most
		r.echo.MaxOutputTokens = &most
	}
	if count, ok := body.Integer("top_logprobs", 0, openai.MostLikeliest); ok {
		r.echo.TopLogprobs = count
		r.logprobs = count > 0
	}
	for _, value := range r.readInclude(body) {
		switch value {
		case "message.output_text.logprobs":
			r.logprobs = true
		case "reasoning.encrypted_content":
			r.encrypted = true
		}
	}
	if r.logprobs {
		r.options["logprobs"] = r.echo.TopLogprobs
	}
	body.Only("background", "false")
	body.Refuse("prompt", "prompts are not stored here; send 'instructions' and 'input'")
	body.Refuse("moderation", "there is no model of moderation here")
	if options, ok := body.Object("stream_options"); ok {
		options.Pass("include_obfuscation", "include_usage")
		options.Done()
	}
}

// included are the values of `include`. The parts of tools that run at OpenAI never occur in a response here.
var included = []string{"message.output_text.logprobs", "reasoning.encrypted_content", "file_search_call.results",
	"web_search_call.results", "web_search_call.action.sources", "message.input_image.image_url",
	"computer_call_output.output.image_url", "code_interpreter_call.outputs"}

func (r *request) readInclude(body *fields.Object) []string {
	value, ok := body.Value("include")
	if !ok {
		return nil
	}
	elements := value.List(0, 100)
	texts := value.Texts(0, 100)
	for i, text := range texts {
		known := false
		for _, each := range included {
			known = known || each == text
		}
		if !known {
			elements[i].Fail(fields.InvalidValue, "is %q, which no response has", text)
		}
	}
	return texts
}

// readEcho reads members that the response repeats, and members that change nothing.
func (r *request) readEcho(body *fields.Object) {
	if metadata, ok := body.Object("metadata"); ok {
		for _, name := range metadata.Names() {
			metadata.Text(name)
		}
		metadata.Done()
		r.echo.Metadata = wire.Compact(metadata.Raw())
	}
	if text, ok := body.Text("safety_identifier"); ok {
		r.echo.SafetyIdentifier = &text
	}
	if text, ok := body.Text("prompt_cache_key"); ok {
		r.echo.PromptCacheKey = &text
	}
	body.Flag("store") // accepted and ignored: responses are never stored
	openai.Pass(body)
	body.Pass("background_options", "context_management", "access_programs", "image")
}

// rendering returns the options for the chat template.
func (r *request) rendering() inference.Options {
	options := inference.Options{}
	if len(r.tools) > 0 {
		options["tools"] = string(wire.JSON(r.tools))
	}
	if variables := r.variables.JSON(); variables != "" {
		options["variables"] = variables
	}
	return options
}

// engine converts r to the engine's request.
func (r *request) engine(tenant string) inference.Request {
	options := r.rendering()
	for name, value := range r.options {
		options[name] = value
	}
	return inference.Request{Messages: r.talk.JSON(), Options: options, ToolChoice: r.choice, ToolName: r.chosen, Tenant: tenant}
}
