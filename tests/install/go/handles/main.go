// Nil, zero and closed handles are refused with errors, never with a panic; Close may meet any other call. Arguments: a
// model whose tokens are bytes, a text.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"tessera.dev/tessera"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// refused ends the program unless err is of code InvalidArgument and says `wanted`.
func refused(what string, err error, wanted string) {
	var found *tessera.Error
	if !errors.As(err, &found) || found.Code != tessera.InvalidArgument || !strings.Contains(found.Message, wanted) {
		must(0, fmt.Errorf("%s: found %v, wanted an invalid argument with %q", what, err, wanted))
	}
}

func second[T any](_ T, err error) error { return err }

func main() {
	path, text := os.Args[1], os.Args[2]
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(path))
	tokenizer := must(model.Tokenizer())
	dataset := must(tessera.OpenDataset(text, tokenizer, tessera.Options{"seq": 32}))
	options := tessera.Options{"batch": 2}
	trainer := must(tessera.NewTrainer(runtime, model, dataset, options))

	refused("no runtime", second(tessera.NewTrainer(nil, model, dataset, options)), "runtime")
	refused("no model", second(tessera.NewTrainer(runtime, nil, dataset, options)), "model")
	refused("no dataset", second(tessera.NewTrainer(runtime, model, nil, options)), "dataset")
	refused("no runtime", second(tessera.NewGenerator(nil, model, nil)), "runtime")
	refused("no model", second(tessera.NewGenerator(runtime, nil, nil)), "model")
	refused("no runtime", second(tessera.NewScorer(nil, model, nil)), "runtime")
	refused("no model", second(tessera.NewScorer(runtime, nil, nil)), "model")
	refused("no model", second(tessera.NewEmbedder(runtime, nil, nil)), "model")
	refused("no tokenizer", second(tessera.OpenDataset(text, nil, nil)), "tokenizer")
	refused("nothing to store into", trainer.Store(nil), "model")

	var none *tessera.Trainer
	var zero tessera.Trainer
	closed := must(tessera.NewTrainer(runtime, model, dataset, options))
	closed.Close()
	for _, t := range []*tessera.Trainer{none, &zero, closed} {
		refused("step", second(t.Step()), "trainer")
		refused("evaluation", second(t.Evaluate()), "trainer")
		refused("report", second(t.Report()), "trainer")
		refused("storing", t.Store(model), "trainer")
		refused("saving", t.Save("nowhere"), "trainer")
		refused("resuming", t.Resume("nowhere"), "trainer")
		t.Cancel()
		t.Close()
	}
	refused("generator", (*tessera.Generator)(nil).Start("a"), "generator")
	refused("generator", (*tessera.Generator)(nil).StartWith("a", nil), "generator")
	refused("generator", second((*tessera.Generator)(nil).Report()), "generator")
	refused("generator", second((*tessera.Generator)(nil).Next(0)), "generator")
	refused("scorer", second((*tessera.Scorer)(nil).Score([][]int32{{1, 2}}, nil)), "scorer")
	refused("scorer", second((*tessera.Scorer)(nil).Report()), "scorer")
	refused("embedder", second((*tessera.Embedder)(nil).Embed([]string{"a"}, nil)), "embedder")
	refused("embedder", second((*tessera.Embedder)(nil).Report()), "embedder")
	refused("model", second((*tessera.Model)(nil).Info()), "model")
	refused("runtime", second((*tessera.Runtime)(nil).Backends()), "runtime")
	refused("tokenizer", second((*tessera.Tokenizer)(nil).Encode("a")), "tokenizer")

	// None is a choice where it may be given; what is closed is a mistake.
	lost := must(tessera.NewByteTokenizer())
	lost.Close()
	refused("closed tokenizer", model.SetTokenizer(lost), "tokenizer is closed")
	must(model.Tokenizer())
	gone := must(tessera.OpenDataset(text, tokenizer, nil))
	gone.Close()
	refused("closed dataset", second(tessera.NewTrainer(runtime, model, gone, options)), "dataset is closed")

	// C would read these up to their NUL.
	refused("path", second(tessera.LoadModel(path+"\x00.gguf")), "NUL")
	refused("key", second(tessera.NewTrainer(runtime, model, dataset, tessera.Options{"batch\x00": 2})), "NUL")
	refused("value", second(tessera.NewTrainer(runtime, model, dataset, tessera.Options{"devices": "cpu:1\x00"})), "NUL")

	// As where a context ends while its trainer is closed.
	for i := 0; i < 50; i++ {
		t := must(tessera.NewTrainer(runtime, model, dataset, options))
		var both sync.WaitGroup
		both.Add(3)
		go func() {
			defer both.Done()
			for j := 0; j < 1000; j++ {
				t.Cancel()
			}
		}()
		go func() { defer both.Done(); t.Step(); t.Step() }()
		go func() { defer both.Done(); t.Close() }()
		both.Wait()
	}
}
