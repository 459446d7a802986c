// Package chat is POST /v1/chat/completions of OpenAI's API, with the members that vLLM and llama.cpp add and the engine has.
package chat

import (
	_ "embed" // the document
	"encoding/json"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// Reasoning says under which names replies have the reasoning of models.
type Reasoning int

// The names.
const (
	ReasoningContent Reasoning = iota // reasoning_content
	ReasoningShort                    // reasoning
	ReasoningBoth
)

// Settings are the operator's.
type Settings struct {
	Reasoning Reasoning
}

//go:embed openapi.json
var document []byte

// New is the dialect.
func New(settings Settings) dialect.Dialect {
	decode := func(call *dialect.Call) (dialect.Exchange, error) { return decode(call, settings) }
	return dialect.Dialect{
		Endpoints: []dialect.Endpoint{{Method: "POST", Path: "/v1/chat/completions", Decode: decode, Errors: openai.Errors}},
		Document:  openai.Document(document),
	}
}

// exchange is a request, and its reply as far as it is.
type exchange struct {
	id         string
	created    int64
	model      string
	messages   []openai.Message
	options    inference.Options
	toolChoice string
	toolName   string
	tenant     string

	streaming   openai.Streaming
	probable    bool // log probabilities are told
	timed       bool // timings are told
	oneCall     bool
	noReasoning bool
	reasoning   Reasoning

	choices []choice
	usage   openai.Usage
	timings *timings
}

func decode(call *dialect.Call, settings Settings) (dialect.Exchange, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	x := &exchange{
		id: "chatcmpl-" + call.ID, created: call.Now.Unix(), tenant: call.Tenant, options: inference.Options{},
		reasoning: settings.Reasoning,
	}
	x.model = body.NeedText("model")
	x.messages = openai.Messages(body, "messages")
	x.toolChoice, x.toolName = openai.ReadTools(body, x.options)
	if parallel, ok := body.Flag("parallel_tool_calls"); ok {
		x.oneCall = !parallel
	}
	x.readLimit(body)
	openai.Sampling(body, x.options)
	x.choices = make([]choice, openai.Texts(body, x.options))
	openai.Limit(body, x.options)
	x.readForm(body)
	x.noReasoning = openai.Template(body, x.options)
	x.readPrompt(body)
	x.readReply(body)
	refuse(body)
	openai.Pass(body)
	if err := body.Done(); err != nil {
		return nil, err
	}
	return x, nil
}

// readLimit reads the limit of tokens under its three names; -1 is none.
func (x *exchange) readLimit(body *fields.Object) {
	first, limit := "", int64(-1)
	for _, name := range []string{"max_completion_tokens", "max_tokens", "n_predict"} {
		value, ok := body.Integer(name, -1, openai.MostTokens)
		if !ok {
			continue
		}
		if value == 0 {
			body.Fail(name, fields.BelowMinimum, "is 0; at least 1 is wanted")
		}
		if first != "" && value != limit {
			body.Fail(name, fields.InvalidValue, "is %d, and '%s' is %d; one of them is wanted", value, first, limit)
		}
		first, limit = name, value
	}
	if limit > 0 {
		x.options["max_tokens"] = limit
	}
}

// readForm reads constraints. They are of the content: a reply that has to be a call has none.
func (x *exchange) readForm(body *fields.Object) {
	form := inference.Options{}
	openai.Constraints(body, form)
	if x.toolChoice == "required" || x.toolChoice == "named" {
		return
	}
	for name, value := range form {
		x.options[name] = value
	}
}

// readPrompt reads how the text of the conversation is made.
func (x *exchange) readPrompt(body *fields.Object) {
	_, continues := x.options["continue_final_message"]
	if begins, ok := body.Flag("add_generation_prompt"); ok && begins == continues {
		body.Fail("add_generation_prompt", fields.ValueRefused, "is %v; with 'continue_final_message' false is wanted, true without it", begins)
	}
	body.Only("add_special_tokens", "false")
	body.Only("echo", "false")
	if text, ok := body.Text("chat_template"); ok && text != "" {
		x.options["template"] = text
	}
}

// readReply reads what is told of the texts.
func (x *exchange) readReply(body *fields.Object) {
	x.streaming = openai.ReadStreaming(body)
	x.timed, _ = body.Flag("timings_per_token")
	x.probable, _ = body.Flag("logprobs")
	likeliest, _ := body.Integer("top_logprobs", 0, openai.MostLikeliest)
	if likeliest > 0 { // asks for both
		x.probable = true
	}
	if x.probable {
		x.options["logprobs"] = likeliest
	}
	if shown, ok := body.Flag("include_reasoning"); ok && !shown {
		x.noReasoning = true
	}
}

// refuse names what other services have and this one has not.
func refuse(body *fields.Object) {
	body.Only("modalities", `["text"]`)
	body.Only("verbosity", `"medium"`)
	body.Refuse("audio", "answers are texts")
	body.Refuse("functions", "give 'tools'")
	body.Refuse("function_call", "give 'tool_choice'")
	body.Refuse("web_search_options", "the service has no connection to the web")
	body.Refuse("moderation", "the service has no model that moderates")
	body.Refuse("prompt_logprobs", "completions with 'echo' and 'logprobs' have them")
	body.Only("return_token_ids", "false")
}

func (x *exchange) Model() string { return x.model }

func (x *exchange) Requests(known inference.Info) ([]inference.Request, error) {
	messages := openai.Conversation(x.messages, known.Template)
	x.messages = nil // long ones are not kept for as long as the reply lasts
	return []inference.Request{{
		Messages: messages, Options: x.options,
		ToolChoice: x.toolChoice, ToolName: x.toolName, Tenant: x.tenant,
	}}, nil
}

func (x *exchange) Streamed() bool { return x.streaming.Streamed }

func (x *exchange) ContentType() string { return openai.ContentType(x.streaming.Streamed) }

func (x *exchange) Ping() []byte {
	if !x.streaming.Streamed {
		return nil
	}
	return []byte(openai.Ping)
}

func (x *exchange) Broken(failure *inference.Error) []byte { return openai.Broken(failure) }

var null = json.RawMessage("null")
