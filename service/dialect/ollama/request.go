package ollama

import (
	"fmt"
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/conversation"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/variables"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

const (
	mostMessages = 100000
	mostCalls    = 1024
	mostTools    = 4096
)

// request is what a body of /api/chat or /api/generate asks for.
type request struct {
	model    string
	chat     bool
	streamed bool
	options  inference.Options
	talk     conversation.Talk
	prompt   string // of generate
	system   string
	raw      bool // the prompt is not put into a template
	load     bool // there is no prompt: the model is loaded alone
	hidden   bool // reasoning is not told
	logprobs bool
	tools    bool
}

// modelName is without the tag that Ollama gives every name.
func modelName(body *fields.Object) string {
	if !body.Has("model") && body.Has("name") {
		name, _ := body.Text("name")
		return strings.TrimSuffix(name, ":latest")
	}
	body.Pass("name")
	return strings.TrimSuffix(body.NeedText("model"), ":latest")
}

// read reads what both have.
func read(call *dialect.Call, chat bool) (*request, *fields.Object, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, nil, err
	}
	r := &request{model: modelName(body), chat: chat, streamed: true, options: inference.Options{}}
	if flag, ok := body.Flag("stream"); ok {
		r.streamed = flag
	}
	readOptions(body, r.options)
	readFormat(body, r.options)
	r.readThink(body)
	r.logprobs, _ = body.Flag("logprobs")
	likeliest, _ := body.Integer("top_logprobs", 0, openai.MostLikeliest)
	if r.logprobs {
		r.options["logprobs"] = likeliest
	}
	body.Pass("truncate", "shift") // a conversation that is too long is refused
	return r, body, nil
}

// readThink reads whether the model reasons: a boolean, or how much.
func (r *request) readThink(body *fields.Object) {
	var variables variables.Variables
	switch value, ok := body.Value("think"); {
	case !ok:
		return
	case value.Kind() == fields.Bool:
		r.hidden = !value.Flag()
		variables.Reason(value.Flag())
	default:
		if effort, ok := body.Choice("think", "low", "medium", "high", "max"); ok {
			variables.Think(effort)
		}
	}
	r.options["variables"] = variables.JSON()
}

func readChat(call *dialect.Call) (*request, error) {
	r, body, err := read(call, true)
	if err != nil {
		return nil, err
	}
	elements, _ := body.List("messages", 0, mostMessages)
	r.readMessages(elements)
	r.readTools(body)
	if err := r.checkLoad(body, len(elements) == 0); err != nil {
		return nil, err
	}
	if r.talk.EndsWith("assistant") && !r.talk.EndsWithCall() {
		r.options["continue_final_message"] = int64(1)
	}
	return r, body.Done()
}

// checkLoad is for a request without a prompt.
func (r *request) checkLoad(body *fields.Object, empty bool) error {
	r.load = empty
	if unload := readKeep(body); unload && empty {
		return &inference.Error{Kind: inference.Conflict, Code: fields.ValueRefused, Param: "keep_alive",
			Message: "'keep_alive' is 0 without a prompt, which unloads a model: models are unloaded by POST /models/unload"}
	}
	return nil
}

func (r *request) readMessages(elements []fields.Value) {
	var calls pairing
	for _, element := range elements {
		item := element.Object()
		var message conversation.Message
		item.NeedText("role")
		message.Role, _ = item.Choice("role", "system", "user", "assistant", "tool")
		message.Content, _ = item.Text("content")
		message.Reasoning, _ = item.Text("thinking")
		given, _ := item.List("tool_calls", 0, mostCalls)
		for _, call := range given {
			message.Calls = append(message.Calls, calls.add(readCall(call.Object())))
		}
		message.CallID, _ = item.Text("tool_call_id")
		message.Name, _ = item.Text("name")
		if name, ok := item.Text("tool_name"); ok {
			message.Name = name
		}
		if message.Role == "tool" {
			calls.answer(&message)
		}
		item.Only("images", "[]")
		item.Done()
		r.talk.Add(message)
	}
}

func readCall(call *fields.Object) conversation.Call {
	function := call.NeedObject("function")
	id, _ := call.Text("id")
	made := conversation.NewCall(id, function.NeedText("name"), "")
	if arguments, ok := function.Object("arguments"); ok {
		made.Function.Arguments = wire.Compact(arguments.Raw())
	}
	function.Pass("index")
	function.Done()
	call.Only("type", `"function"`)
	call.Pass("index")
	call.Done()
	return made
}

// pairing brings calls and their results together: clients of Ollama leave ids out, and templates want them.
type pairing struct {
	open  []conversation.Call // without a result
	count int
}

// add gives a call an id where it has none.
func (p *pairing) add(call conversation.Call) conversation.Call {
	p.count++
	if call.ID == "" {
		call.ID = fmt.Sprintf("call%05d", p.count)
	}
	p.open = append(p.open, call)
	return call
}

// answer gives a result the id and the name of the first open call that it may be of.
func (p *pairing) answer(message *conversation.Message) {
	for i, call := range p.open {
		if message.CallID == call.ID || message.CallID == "" && (message.Name == "" || message.Name == call.Function.Name) {
			message.CallID, message.Name = call.ID, call.Function.Name
			p.open = append(p.open[:i:i], p.open[i+1:]...)
			return
		}
	}
}

func (r *request) readTools(body *fields.Object) {
	var tools []conversation.Tool
	elements, _ := body.List("tools", 0, mostTools)
	for _, element := range elements {
		tool := element.Object()
		tool.Only("type", `"function"`)
		function := tool.NeedObject("function")
		description, _ := function.Text("description")
		var parameters []byte
		if given, ok := function.Object("parameters"); ok {
			parameters = given.Raw()
		}
		tools = append(tools, conversation.NewTool(function.NeedText("name"), description, parameters))
		function.Pass("strict")
		function.Done()
		tool.Done()
	}
	if len(tools) > 0 {
		r.options["tools"] = string(wire.JSON(tools))
	}
}

func readGenerate(call *dialect.Call) (*request, error) {
	r, body, err := read(call, false)
	if err != nil {
		return nil, err
	}
	r.prompt, _ = body.Text("prompt")
	r.system, _ = body.Text("system")
	r.raw, _ = body.Flag("raw")
	if r.raw && r.system != "" {
		body.Fail("system", fields.InvalidValue, "is given, and with 'raw' nothing is put around the prompt")
	}
	if err := r.checkLoad(body, r.prompt == ""); err != nil {
		return nil, err
	}
	body.Only("suffix", `""`)
	body.Only("template", `""`)
	body.Only("context", "[]")
	body.Only("images", "[]")
	for _, name := range []string{"width", "height", "steps"} {
		body.Only(name, "0")
	}
	return r, body.Done()
}

// engine is the request of the engine. Without a template a prompt stands for itself.
func (r *request) engine(known inference.Info, tenant string) inference.Request {
	asked := inference.Request{Options: r.options, Tenant: tenant}
	if r.chat {
		asked.Messages = r.talk.JSON()
		return asked
	}
	if r.raw || !does(known, "chat") {
		delete(r.options, "variables")
		if r.raw {
			r.options["special"] = int64(1) // control tokens that are written out
		}
		text := r.prompt
		if r.system != "" {
			text = r.system + "\n\n" + text
		}
		asked.Prompt = inference.Text{Words: text}
		return asked
	}
	var talk conversation.Talk
	if r.system != "" {
		talk.System(r.system)
	}
	talk.User(r.prompt)
	asked.Messages = talk.JSON()
	return asked
}

func does(known inference.Info, what string) bool {
	for _, each := range known.Does {
		if each == what {
			return true
		}
	}
	return false
}
