package api_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tessera.dev/tessera"
)

// Every text that may reach C, of bytes that are no text: an error or a result, and the process goes on.
func Test_texts_that_are_not_UTF8_do_no_harm(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	tokenizer := must2(model.Tokenizer())
	generator := must2(tessera.NewGenerator(r, model, tessera.Options{"max_tokens": 2}))
	data := must2(tessera.NewDatasetTokens(make([]int32, 500), tessera.Options{"seq": 16}))
	for _, text := range []string{"\xff", "\xed\xa0\x80", "a\x80b", "\xf5\xf5", strings.Repeat("\xc3", 30)} {
		ids := must2(tokenizer.Encode(text))
		wanted(t, "encoded and decoded", must2(tokenizer.Decode(ids)), text)
		must2(generator.Generate(context.Background(), text, nil))
		_, _ = generator.Generate(context.Background(), "a", tessera.Options{"stop": text})
		_, _ = tessera.NewModel(text, nil)
		_, _ = tessera.LoadModel(text)
		_, _ = tessera.ParseGraph(text)
		_, _ = tessera.OpenDevices(r, text)
		_, _ = tessera.NewChatText(text, nil)
		_, _ = tessera.CheckPlan(text)
		_, _ = tessera.EstimatePlan(text, tessera.Options{"cluster": text})
		_, _ = tessera.NewRuntime(tessera.Options{text: text})
		_, _ = tessera.NewTrainer(r, model, data, tessera.Options{"parallel": text})
		_, _ = tessera.NewPlan(r, model, tessera.Options{"pins": text})
		_, _ = model.WithAdapters(tessera.Options{"on": text})
		_ = model.SetMetadata(text, text)
		_, _ = model.Info()
		path := filepath.Join(t.TempDir(), "m.tsr")
		if err := model.Save(path); err == nil {
			must2(must2(tessera.LoadModel(path)).Info())
		}
		_ = model.SetMetadata(text, "")
		graph := must2(tessera.NewGraph())
		_, _ = graph.Input(text, tessera.F32, 1)
		_ = graph.Scope(text)
		_, _ = graph.Node(text, nil)
		_, _ = graph.Print()
	}
}

func Test_error_texts_arrive_whole(t *testing.T) {
	name := "/" + strings.Repeat("no/", 300) + "ä.tsr"
	_, err := tessera.LoadModel(name)
	wanted(t, "a long message", err != nil && strings.Contains(err.Error(), name), true)
	_, err = tessera.NewRuntime(tessera.Options{strings.Repeat("ü", 400): 1})
	refused(t, err, tessera.ErrInvalidArgument, "[800 bytes]") // long names are shown from both ends
	refused(t, err, tessera.ErrInvalidArgument, "ü'; there are log_capacity, log_level, mpi_comm, plugin_path")
}

func Test_lists_of_options_and_large_arrays_cross(t *testing.T) {
	large := make([]int32, 1<<22)
	for i := range large {
		large[i] = int32(i % 256)
	}
	data := must2(tessera.NewDatasetTokens(large, tessera.Options{"seq": 1024}))
	wanted(t, "tokens", strings.Contains(must2(data.Info()), `"tokens":4194304,`), true)
	tokenizer := must2(tessera.NewByteTokenizer())
	text := must2(tokenizer.Decode(large))
	wanted(t, "bytes", len(text), len(large))
	wanted(t, "ids", len(must2(tokenizer.Encode(text))), len(large))
	for _, axes := range []any{[]int{0}, []int32{0}, []int64{0}} {
		graph := must2(tessera.NewGraph())
		x := must2(graph.Input("x", tessera.F32, 2, 3))
		_, dims, err := graph.Type(must2(graph.Node("reduce_sum", tessera.Options{"axes": axes}, x)))
		check(t, err)
		wanted(t, "extent", dims[len(dims)-1], 3)
	}
	graph := must2(tessera.NewGraph())
	x := must2(graph.Input("x", tessera.F32, 2))
	refused(t, second(graph.Node("reduce_sum", tessera.Options{"axes": []int{5}}, x)), tessera.ErrInvalidArgument, "5")
	refused(t, second(graph.Node("reduce_sum", tessera.Options{"axes": []float64{1}}, x)), tessera.ErrInvalidArgument, "[]float64")
	refused(t, second(graph.Node("square", nil, tessera.Value(1<<31))), tessera.ErrInvalidArgument, "")
}

// Immutable handles, models and runtimes from many goroutines, while others close them.
func Test_many_goroutines_use_and_close_the_same_handles(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	tokenizer := must2(model.Tokenizer())
	plan := must2(tessera.NewPlan(r, model, nil))
	data := must2(tessera.NewDatasetTokens(make([]int32, 500), tessera.Options{"seq": 16}))
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			for j := 0; j < 200; j++ {
				for _, err := range []error{
					second(tokenizer.Encode("a computer")), second(model.Info()), second(model.Read("output")),
					second(plan.Info()), second(data.Batch(int64(j), 2)), second(r.Backends()),
				} {
					if err != nil && !errors.Is(err, tessera.ErrInvalidArgument) {
						t.Error(err)
						return
					}
				}
				if number == 0 && j == 100 {
					tokenizer.Close()
					model.Close()
					plan.Close()
					data.Close()
					r.Close()
				}
			}
		}(i)
	}
	all.Wait()
}

func Test_paths_that_cannot_be_written_are_errors(t *testing.T) {
	model := newModel(t)
	folder := t.TempDir()
	refused(t, model.Save(filepath.Join(folder, "nowhere", "m.tsr")), tessera.ErrNotFound, "nowhere")
	check(t, os.WriteFile(filepath.Join(folder, "half.tsr"), []byte("TSR"), 0o600))
	refused(t, second(tessera.LoadModel(filepath.Join(folder, "half.tsr"))), tessera.ErrCorrupt, "")
	refused(t, tessera.CheckModelPath(folder), tessera.ErrInvalidArgument, "")
}
