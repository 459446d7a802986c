// Texts that C cannot end at their first NUL, and texts of nothing, cross from Go and back. Argument: a model whose
// tokens are bytes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"tessera"
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
	check(generator.Start(prompt))
	var text strings.Builder
	for {
		piece, err := generator.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		text.WriteString(piece)
	}
	wanted("echo", text.String()[:min(len(prompt), text.Len())], prompt)
	// Nothing is a text to continue; bytes alone have no token to begin with.
	err = generator.Start("")
	wanted("begun from nothing", err != nil && strings.Contains(err.Error(), "the prompt is empty"), true)
}

func min(a, b int) int { // of the language since Go 1.21
	if a < b {
		return a
	}
	return b
}
