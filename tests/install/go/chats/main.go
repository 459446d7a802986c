// Conversations: text, tokens with the assistant's marked, and their turns through a generator. Argument: a model whose
// tokens are bytes.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"tessera.dev/tessera"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func wanted[T comparable](what string, found, want T) {
	if found != want {
		must(0, fmt.Errorf("%s: found %v, wanted %v", what, found, want))
	}
}

const template = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"

func answer(stream *tessera.Stream) string {
	all := ""
	for stream.Next() {
		all += stream.Piece().Text
	}
	must(0, stream.Err())
	return all
}

func main() {
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(os.Args[1]))
	_, err := tessera.NewChat(model, nil)
	wanted("no template", err != nil && strings.Contains(err.Error(), "no chat template"), true)
	chat := must(tessera.NewChat(model, tessera.Options{"template": template}))
	messages := []tessera.Message{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Yo"}}
	wanted("text", must(chat.Render(messages, nil)), "[user]Hi;[assistant]Yo;")
	wanted("JSON", must(chat.Render(`[{"role": "user", "content": ""}]`, tessera.Options{"add_generation_prompt": true})),
		"[user];[assistant]")
	wanted("ranges", strings.Contains(must(chat.RenderRanges(messages, nil)), `"assistant":[[20,23]]`), true)
	wanted("parsed", must(chat.Parse("Yo", tessera.Options{"tools": "[]"})), `{"role":"assistant","content":"Yo"}`)
	wanted("markers", len(must(chat.Markers())), 0)
	ids, assistant, err := chat.EncodeAssistant(messages, nil)
	must(0, err)
	said := 0
	for i := range ids {
		if assistant[i] {
			said++
		}
	}
	wanted("tokens", fmt.Sprint(len(ids), said), "23 3")
	bare := must(tessera.NewChatText(template, nil))
	_, err = bare.Encode(messages, nil)
	wanted("no tokenizer", err != nil, true)

	generator := must(tessera.NewGenerator(runtime, model, tessera.Options{"temperature": 0.0, "max_tokens": 3}))
	prompt := must(chat.Encode(messages[:1], tessera.Options{"add_generation_prompt": true}))
	ctx := context.Background()
	first := answer(generator.StreamTokens(ctx, prompt, nil))
	answer(generator.StreamTokens(ctx, append(prompt, 65), nil))
	wanted("cached", strings.Contains(must(generator.Report()), fmt.Sprintf(`"reused_tokens":%d,`, len(prompt))), true)
	wanted("again", answer(generator.StreamTokens(ctx, prompt, tessera.Options{"max_tokens": 3})), first)
	chat.Close()
	_, err = chat.Render(messages, nil)
	wanted("closed", err != nil, true)
}
