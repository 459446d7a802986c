package messages

import (
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// request is what a body asks for.
type request struct {
	model     string
	streamed  bool
	most      int64 // max_tokens
	options   inference.Options
	talk      conversation.Talk
	tools     []conversation.Tool
	choice    string // inference.Request.ToolChoice
	chosen    string
	oneCall   bool
	variables variables.Variables
	omitted   bool // thinking blocks are without their texts
	lenient   bool // members that are not known are passed over
}

// read decodes a body. counting is that of count_tokens.
func read(call *dialect.Call, counting bool) (*request, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	r := &request{options: inference.Options{}, lenient: isBeta(call)}
	r.model = body.NeedText("model")
	r.readTools(body)
	r.readSystem(body)
	r.readMessages(body)
	r.readChoice(body)
	r.readThinking(body)
	r.readOutput(body)
	if !counting {
		r.readSampling(body)
	}
	refuse(body)
	body.Pass(harmless...)
	return r, r.done(body)
}

// isBeta says whether a request may have members that no version of the API has yet: Claude Code sends ?beta=true and names them
// in a header.
func isBeta(call *dialect.Call) bool {
	return call.Header.Get("Anthropic-Beta") != "" || len(call.Query["beta"]) > 0
}

func (r *request) done(object *fields.Object) error {
	if r.lenient {
		object.Rest()
	}
	return object.Done()
}

// harmless are members that change no text: caching, tiers, places, bills, and what shortens a conversation that grows too long
// (here it is refused when it does).
var harmless = []string{
	"metadata", "service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id", "cache_control", "diagnostics", "betas",
	"billing_policy", "fallbacks", "fallback_credit_token", "context_management", "compaction",
}

func refuse(body *fields.Object) {
	body.Only("mcp_servers", "[]")
	body.Refuse("container", "no code is run here")
	if body.Has("thread") { // the SDK's runner of tools goes on without where it finds this code
		body.Fail("thread", threadUnsupported, "is not supported: conversations are not stored here; send all 'messages'")
	}
	body.Pass("thread")
}

const threadUnsupported = "thread_unsupported_request"

func (r *request) readSampling(body *fields.Object) {
	if !body.Has("max_tokens") {
		body.Fail("max_tokens", fields.Missing, "is missing; a number is wanted")
	}
	if most, ok := body.Integer("max_tokens", 1, openai.MostTokens); ok {
		r.most, r.options["max_tokens"] = most, most
	}
	r.streamed, _ = body.Flag("stream")
	if value, ok := body.Number("temperature", 0, 2); ok {
		r.options["temperature"] = value
	}
	if value, ok := body.Number("top_p", 0, 1); ok {
		r.options["top_p"] = value
	}
	if value, ok := body.Integer("top_k", 0, math.MaxInt32); ok {
		r.options["top_k"] = value
	}
	if value, ok := body.Value("stop_sequences"); ok {
		texts := value.Texts(0, 1000)
		for i, element := range value.List(0, 1000) {
			if texts[i] == "" {
				element.Fail(fields.Empty, "is empty")
			}
		}
		if len(texts) > 0 {
			r.options["stop"] = string(wire.JSON(texts))
		}
	}
}

// readThinking reads whether the model reasons. The budget is a hint, which the engine has no use for: reasoning ends with
// max_tokens at the latest. Displays other than "omitted" show all of it: it is neither summarized nor told in updates here.
func (r *request) readThinking(body *fields.Object) {
	thinking, ok := body.Object("thinking")
	if !ok {
		return
	}
	thinking.NeedText("type")
	switch kind, _ := r.advice(thinking, "type", "enabled", "disabled", "adaptive", "between_tools"); kind {
	case "enabled":
		if _, ok := thinking.Integer("budget_tokens", 1, openai.MostTokens); !ok && !thinking.Has("budget_tokens") {
			thinking.Fail("budget_tokens", fields.Missing, "is missing; a number is wanted")
		}
		r.variables.Reason(true)
	case "disabled":
		r.variables.Reason(false)
	}
	if display, ok := r.advice(thinking, "display", "summarized", "omitted", "updates"); ok {
		r.omitted = display == "omitted"
	}
	_ = r.done(thinking)
}

// advice is a choice that guides the model. Requests with beta members may be ahead of this service, as Claude Code's are: in them a
// text that is not known counts as absent.
func (r *request) advice(object *fields.Object, name string, known ...string) (text string, ok bool) {
	if text, ok = object.Text(name); !ok || !r.lenient {
		return object.Choice(name, known...)
	}
	for _, each := range known {
		if text == each {
			return text, true
		}
	}
	return "", false
}

// readOutput reads the effort and the form of texts; output_format is the form's older name.
func (r *request) readOutput(body *fields.Object) {
	if output, ok := body.Object("output_config"); ok {
		if effort, ok := r.advice(output, "effort", "low", "medium", "high", "xhigh", "max"); ok && r.variables["enable_thinking"] != false {
			r.variables.Grade(effort)
		}
		if format, ok := output.Object("format"); ok {
			r.readFormat(format)
		}
		output.Pass("task_budget")
		_ = r.done(output)
	}
	if format, ok := body.Object("output_format"); ok {
		r.readFormat(format)
	}
}

func (r *request) readFormat(format *fields.Object) {
	format.NeedText("type")
	format.Choice("type", "json_schema")
	schema := format.NeedObject("schema")
	if format.Err() == nil && r.choice != "required" && r.choice != "named" { // such a reply has no text
		r.options["json_schema"] = string(wire.Compact(schema.Raw()))
	}
	_ = r.done(format)
}

// rendering are the options of a template. An answer that the last message begins goes on.
func (r *request) rendering() inference.Options {
	options := inference.Options{}
	if len(r.tools) > 0 {
		options["tools"] = string(wire.JSON(r.tools))
	}
	if variables := r.variables.JSON(); variables != "" {
		options["variables"] = variables
	}
	if r.talk.EndsWith("assistant") {
		options["continue_final_message"] = int64(1)
	}
	return options
}

// engine is the request of the engine.
func (r *request) engine(tenant string) inference.Request {
	options := r.rendering()
	for name, value := range r.options {
		options[name] = value
	}
	return inference.Request{Messages: r.talk.JSON(), Options: options, ToolChoice: r.choice, ToolName: r.chosen, Tenant: tenant}
}
