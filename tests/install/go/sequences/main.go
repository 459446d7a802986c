// Sequences from Go: forked, rewound, saved and restored they go on; the twin of tests/install/sequences.c. Arguments: a model,
// a file to write.
package main

import (
	"context"
	"fmt"
	"os"

	"tessera.dev/tessera"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// goOn prints and gives the sequence of the text that follows a sequence, which may be nil, and then these tokens.
func goOn(engine *tessera.Engine, name string, from *tessera.Sequence, more string) *tessera.Sequence {
	ids := make([]int32, len(more))
	for i := range ids {
		ids[i] = int32(more[i])
	}
	var request *tessera.Request
	var err error
	if from == nil {
		request, err = engine.SubmitTokens(ids, tessera.Options{"keep": true})
	} else {
		request, err = engine.SubmitSequence(from, ids, tessera.Options{"keep": true})
	}
	check(err)
	_ = must(request.Text(context.Background()))
	sequence := must(request.Sequence(0))
	fmt.Print(name, ":")
	for _, id := range must(sequence.Tokens()) {
		fmt.Print(" ", id)
	}
	fmt.Println()
	return sequence
}

func main() {
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(os.Args[1]))
	options := tessera.Options{"devices": "cpu:2", "temperature": 0.0, "max_tokens": 8}
	engine := must(tessera.NewEngine(runtime, model, options))
	first := goOn(engine, "first", nil, "A computer")
	fork := must(first.Fork())
	check(fork.Rewind(12))
	goOn(engine, "fork", fork, " x")
	goOn(engine, "original", first, "")
	check(engine.SaveSequence(first, os.Args[2]))
	engine.Close()
	engine = must(tessera.NewEngine(runtime, model, options))
	goOn(engine, "restored", must(engine.RestoreSequence(os.Args[2])), "")
	goOn(engine, "elsewhere", fork, " x")
	engine.Close()
}
