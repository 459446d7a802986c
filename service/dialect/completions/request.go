// Package completions is POST /v1/completions of OpenAI's API, with the members that vLLM and llama.cpp add and the engine has.
package completions

import (
	_ "embed" // the document

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

//go:embed openapi.json
var document []byte

// New is the dialect.
func New() dialect.Dialect {
	return dialect.Dialect{
		Endpoints: []dialect.Endpoint{{Method: "POST", Path: "/v1/completions", Decode: decode, Errors: openai.Errors}},
		Document:  openai.Document(document),
	}
}

// mostPrompts is the limit of prompts of a request; defaultTokens the limit of tokens where none is given, as OpenAI has it.
const (
	mostPrompts   = 2048
	defaultTokens = 16
)

// exchange is a request, and its reply as far as it is.
type exchange struct {
	id      string
	created int64
	model   string
	prompts []inference.Text
	options inference.Options
	tenant  string

	texts     int // of each prompt
	streaming openai.Streaming
	echo      bool // each text begins with its prompt
	probable  bool // log probabilities are told
	nothing   bool // max_tokens is 0: one token is generated and not told

	begun   [][]byte // by prompt: the first bytes of a character of it, which the next part completes
	choices []choice // those of the first prompt, then those of the next
	usage   openai.Usage
}

func decode(call *dialect.Call) (dialect.Exchange, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	x := &exchange{id: "cmpl-" + call.ID, created: call.Now.Unix(), tenant: call.Tenant, options: inference.Options{}}
	x.model = body.NeedText("model")
	x.prompts = openai.Prompts(body, "prompt", mostPrompts)
	x.readLimit(body)
	openai.Sampling(body, x.options)
	x.texts = openai.Texts(body, x.options)
	openai.Limit(body, x.options)
	openai.Constraints(body, x.options)
	x.readReply(body)
	refuse(body)
	openai.Pass(body)
	if err := body.Done(); err != nil {
		return nil, err
	}
	x.choices = make([]choice, x.texts*len(x.prompts))
	x.begun = make([][]byte, len(x.prompts))
	return x, nil
}

func (x *exchange) readLimit(body *fields.Object) {
	limit := int64(defaultTokens)
	if value, ok := body.Integer("max_tokens", -1, openai.MostTokens); ok {
		limit = value
	}
	switch {
	case limit == 0:
		x.nothing = true
		x.options["max_tokens"] = int64(1)
	case limit > 0: // else until the context is full
		x.options["max_tokens"] = limit
	}
}

// readReply reads what is told of the texts.
func (x *exchange) readReply(body *fields.Object) {
	x.streaming = openai.ReadStreaming(body)
	likeliest := int64(0)
	if likeliest, x.probable = body.Integer("logprobs", 0, openai.MostLikeliest); x.probable {
		x.options["logprobs"] = likeliest
	}
	x.echo, _ = body.Flag("echo")
	if x.echo && x.probable {
		x.options["prompt_logprobs"] = likeliest
	}
}

// refuse names what other services have and this one has not.
func refuse(body *fields.Object) {
	body.Refuse("suffix", "models here continue texts, they do not fill gaps")
	body.Refuse("prompt_embeds", "prompts are texts and token ids")
	body.Refuse("prompt_logprobs", "'echo' with 'logprobs' has them")
	body.Only("add_special_tokens", "true")
	body.Only("return_token_ids", "false")
}

func (x *exchange) Model() string { return x.model }

// Requests are one a prompt. The text of a prompt of ids is that of its tokens' bytes, which come with log probabilities.
func (x *exchange) Requests(inference.Info) (requests []inference.Request, err error) {
	for _, prompt := range x.prompts {
		options := make(inference.Options, len(x.options)+1)
		for name, value := range x.options {
			options[name] = value
		}
		if prompt.Tokens == nil {
			options["special"] = int64(1)
		} else if x.echo && !x.probable {
			options["prompt_logprobs"] = int64(0)
		}
		requests = append(requests, inference.Request{Prompt: prompt, Options: options, Tenant: x.tenant})
	}
	return requests, nil
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
