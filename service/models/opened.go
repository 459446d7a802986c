package models

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// opened is a reference to a loaded model, with a LoRA adapter if the requested name is an adapter's.
type opened struct {
	registry *Registry
	slot     *slot
	loaded   *loaded
	adapter  *adapter // nil for none
	number   int64    // the adapter's number in the engine; -1 for none
	once     sync.Once
}

func (o *opened) prepare() (err error) {
	o.number = -1
	if o.adapter != nil {
		o.number, err = o.registry.adapterNumber(o.adapter, o.loaded)
	}
	return err
}

func (o *opened) Info() inference.Info {
	info := o.loaded.info
	if o.adapter != nil {
		info.Name, info.Base, info.Created = o.adapter.name, o.adapter.base, o.adapter.created
	}
	return info
}

func (o *opened) Release() {
	o.once.Do(func() {
		o.registry.mutex.Lock()
		defer o.registry.mutex.Unlock()
		o.slot.users--
		if o.adapter != nil && o.adapter.users > 0 {
			o.adapter.users--
		}
		o.slot.used = time.Now()
	})
}

// Generate submits a request and returns the stream of its texts.
func (o *opened) Generate(ctx context.Context, request inference.Request) (inference.Stream, error) {
	if o.loaded.engine == nil {
		return nil, invalid("model", fmt.Sprintf("the model %q does not generate texts; it does: %v", o.loaded.info.Name, o.loaded.info.Does))
	}
	options, err := o.options(request)
	if err != nil {
		return nil, err
	}
	tokens := queuedTokens(estimate(request), o.loaded.info.Context)
	if limited := o.loaded.queue.enter(tokens); limited != nil {
		return nil, limited
	}
	submitted, err := o.submit(request, options)
	if err != nil {
		o.loaded.queue.leave(tokens)
		return nil, serviceError(err)
	}
	return newStream(o.loaded, submitted, request, options, tokens), nil
}

func (o *opened) submit(request inference.Request, options tessera.Options) (*tessera.Request, error) {
	switch {
	case request.Messages != nil:
		return o.loaded.engine.SubmitMessages([]byte(request.Messages), options)
	case request.Prompt.Tokens != nil:
		return o.loaded.engine.SubmitTokens(request.Prompt.Tokens, options)
	}
	return o.loaded.engine.Submit(request.Prompt.Words, options)
}

// options returns the engine options for a request.
func (o *opened) options(request inference.Request) (tessera.Options, error) {
	options := withOptions(tessera.Options(request.Options), nil)
	if o.number >= 0 {
		options["adapter"] = o.number
	}
	_, tools := options["tools"]
	switch request.ToolChoice {
	case "", "auto":
	case "none":
		delete(options, "tools")
	case "required", "named":
		if !tools {
			return nil, invalid("tool_choice", "tool_choice obliges a call of a tool, and there are no tools; give `tools`, or leave tool_choice out")
		}
		options["tool_choice"] = "required"
		if request.ToolChoice == "named" {
			switch request.ToolName {
			case "auto", "none", "required": // words of the library's option
				return nil, invalid("tool_choice", fmt.Sprintf("a call of the function %q cannot be obliged, since its name is a choice itself; rename the function", request.ToolName))
			}
			options["tool_choice"] = request.ToolName
		}
	default:
		return nil, invalid("tool_choice", fmt.Sprintf("found %q, wanted auto, none, required or a function's name", request.ToolChoice))
	}
	return options, nil
}

// estimate returns about how many tokens the prompt has: its token ids, or a token for each four bytes.
func estimate(request inference.Request) int64 {
	if request.Prompt.Tokens != nil {
		return int64(len(request.Prompt.Tokens)) + 1
	}
	bytes := len(request.Messages) + len(request.Prompt.Words)
	if tools, ok := request.Options["tools"].(string); ok {
		bytes += len(tools)
	}
	return int64(bytes)/4 + 1
}

func (o *opened) Tokenize(text string, special, around bool) ([]int32, error) {
	flags := tessera.EncodeFlags(0)
	if special {
		flags |= tessera.EncodeSpecial
	}
	if around {
		flags |= tessera.EncodeAround
	}
	ids, err := o.loaded.tokenizer.EncodeWith(text, flags)
	return ids, serviceError(err)
}

func (o *opened) Detokenize(ids []int32) (string, error) {
	size := int32(o.loaded.tokenizer.VocabularySize())
	for i, id := range ids {
		if id < 0 || id >= size {
			return "", invalid(fmt.Sprintf("tokens[%d]", i), fmt.Sprintf("found the token %d, wanted 0 to %d", id, size-1))
		}
	}
	text, err := o.loaded.tokenizer.Decode(ids)
	return text, serviceError(err)
}

func (o *opened) Piece(id int32) []byte { return o.loaded.pieces.piece(id) }

// renderOptions are the names of the options that rendering takes.
var renderOptions = []string{"tools", "documents", "variables", "now", "add_generation_prompt", "continue_final_message"}

func (o *opened) Render(messages json.RawMessage, options inference.Options) (string, []int32, error) {
	chat, err := o.loaded.template()
	if err != nil {
		return "", nil, serviceError(err)
	}
	known := tessera.Options{}
	for _, key := range renderOptions {
		if value, given := options[key]; given {
			known[key] = value
		}
	}
	if _, given := known["add_generation_prompt"]; !given {
		if _, going := known["continue_final_message"]; !going {
			known["add_generation_prompt"] = 1
		}
	}
	text, err := chat.Render([]byte(messages), known)
	if err != nil {
		return "", nil, serviceError(err)
	}
	ids, err := chat.Encode([]byte(messages), known)
	return text, ids, serviceError(err)
}
