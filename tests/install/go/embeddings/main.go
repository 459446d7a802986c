// Vectors of texts, of no texts, and classes: the same alone and among others. Argument: a model whose tokens are bytes.
package main

import (
	"fmt"
	"math"
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

func main() {
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(os.Args[1]))
	embedder := must(tessera.NewEmbedder(runtime, model, tessera.Options{"batch": 3, "normalize": true, "pooling": "mean"}))
	texts := []string{"a computer", "x", "The tiles of one mosaic lie side by side.", "another text"}
	last := 0.0
	all := must(embedder.Embed(texts, func(done float64) { last = done }))
	wanted("progress", last, 1)
	wanted("rows", len(all), len(texts))
	for i, text := range texts {
		alone := must(embedder.Embed([]string{text}, nil))
		squares := 0.0
		for j, value := range alone[0] {
			wanted("bits", math.Float32bits(all[i][j]), math.Float32bits(value))
			squares += float64(value) * float64(value)
		}
		wanted("length", math.Abs(squares-1) < 1e-5, true)
	}
	wanted("tokens", len(must(embedder.EmbedTokens([][]int32{{1, 2}, {3}}, nil))), 2)
	wanted("no texts", len(must(embedder.Embed(nil, nil))), 0)
	wanted("labels", len(must(embedder.Labels())), 0)
	_, err := embedder.EmbedTokens([][]int32{{1, 100000}}, nil)
	wanted("error", err != nil && strings.Contains(err.Error(), "ids[1] is 100000"), true)
	_, err = tessera.NewEmbedder(runtime, model, tessera.Options{"output": "probabilities"})
	wanted("no classes", err != nil && strings.Contains(err.Error(), "classes"), true)
	wanted("report", strings.Contains(must(embedder.Report()), `"pooling":"mean"`), true)
	embedder.Cancel()
	embedder.Close()
	_, err = embedder.Embed(texts, nil)
	wanted("closed", err != nil, true)
}
