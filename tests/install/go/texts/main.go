// Texts that C cannot end at their first NUL, and texts of nothing, cross from Go and back. Argument: a model whose
// tokens are bytes.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"tessera.dev/tessera"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func wanted(what string, found, wanted any) {
	if f, w := fmt.Sprintf("%q", found), fmt.Sprintf("%q", wanted); f != w {
		check(fmt.Errorf("%s: found %s, wanted %s", what, f, w))
	}
}

func main() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	model, err := tessera.LoadModel(os.Args[1])
	check(err)
	tokenizer, err := model.Tokenizer()
	check(err)
	for _, text := range []string{"", "a\x00b"} {
		ids, err := tokenizer.Encode(text)
		check(err)
		back, err := tokenizer.Decode(ids)
		check(err)
		wanted("encoded and decoded", back, text)
	}

	generator, err := tessera.NewGenerator(runtime, model, tessera.Options{"max_tokens": 1, "echo": true})
	check(err)
	const prompt = "a\x00b"
	ctx := context.Background()
	echo := collect(generator.Stream(ctx, prompt, nil))
	wanted("echo", echo[:min(len(prompt), len(echo))], prompt)
	// Settings of one text: a sample for each seed, the same for the same, and the report names it.
	sample := func(seed int) string {
		options := tessera.Options{"seed": seed, "temperature": 2.0, "max_tokens": 20, "echo": false}
		return collect(generator.Stream(ctx, "ab", options))
	}
	first := sample(1)
	wanted("sample of another seed differs", sample(2) != first, true)
	wanted("sample of the same seed", sample(1), first)
	report, err := generator.Report()
	check(err)
	wanted("seed in the report", strings.Contains(report, `"seed":1,`), true)
	// Nothing is a text to continue; bytes alone have no token to begin with.
	err = generator.Start("")
	wanted("begun from nothing", err != nil && strings.Contains(err.Error(), "the prompt is empty"), true)
}

func collect(stream *tessera.Stream) string {
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Piece().Text)
	}
	check(stream.Err())
	return text.String()
}

func min(a, b int) int { // of the language since Go 1.21
	if a < b {
		return a
	}
	return b
}
