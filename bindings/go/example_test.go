package tessera_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tessera.dev/tessera"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// newModel is a small language model with random weights, whose tokens are bytes.
func newModel() *tessera.Model {
	model, err := tessera.NewModel("llama:L=1,C=32,H=4,F=64,V=256,T=64", tessera.Options{"seed": 1})
	check(err)
	tokenizer, err := tessera.NewByteTokenizer()
	check(err)
	check(model.SetTokenizer(tokenizer))
	return model
}

// Fine-tuning: a model, a text, steps; the model then holds the trained values.
func Example() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	model := newModel() // or tessera.LoadModel(path)
	tokenizer, err := model.Tokenizer()
	check(err)
	text := strings.NewReader(strings.Repeat("to be or not to be, ", 100)) // or an open file
	dataset, err := tessera.ReadDataset(text, tokenizer, tessera.Options{"seq": 32, "eval_fraction": 0.1})
	check(err)
	trainer, err := tessera.NewTrainer(runtime, model, dataset, tessera.Options{
		"devices": "cpu:2", "batch": 8, "steps": 30, "lr": 1e-2,
	})
	check(err)
	defer trainer.Close()
	before, err := trainer.Evaluate()
	check(err)
	for i := 0; i < 30; i++ {
		_, err := trainer.Step()
		check(err)
	}
	after, err := trainer.Evaluate()
	check(err)
	check(trainer.Store(model))
	fmt.Println("the loss falls by half:", after < before/2)
	// Output: the loss falls by half: true
}

func ExampleGenerator_Stream() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	generator, err := tessera.NewGenerator(runtime, newModel(), tessera.Options{"max_tokens": 5, "temperature": 0.0})
	check(err)
	defer generator.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tokens := 0
	stream := generator.Stream(ctx, "Once upon a time", nil)
	for stream.Next() {
		if stream.Piece().Token >= 0 {
			tokens++ // and fmt.Print(stream.Piece().Text)
		}
	}
	check(stream.Err())
	fmt.Println(tokens, stream.Finish())
	// Output: 5 length
}

// Many requests at once, each waited for where it was made.
func ExampleEngine() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	engine, err := tessera.NewEngine(runtime, newModel(), tessera.Options{"max_tokens": 5, "temperature": 0.0})
	check(err)
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, err := engine.Submit("Once upon a time", nil)
	check(err)
	second, err := engine.Submit("To be or", tessera.Options{"max_tokens": 3})
	check(err)
	for _, request := range []*tessera.Request{second, first} {
		tokens, finish := 0, tessera.FinishNone
		stream := request.Stream(ctx)
		for stream.Next() {
			if event := stream.Event(); event.Token >= 0 {
				tokens++ // and fmt.Print(event.Text)
			} else if event.Kind == tessera.EventEnd {
				finish = event.Finish
			}
		}
		check(stream.Err())
		fmt.Println(request.Number(), tokens, finish)
	}
	// Output:
	// 1 3 length
	// 0 5 length
}

func ExampleError() {
	_, err := tessera.LoadModel("nowhere.tsr")
	fmt.Println(errors.Is(err, tessera.ErrNotFound))
	var failed *tessera.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Code.String())
	}
	// Output:
	// true
	// not_found
}

func ExampleTensorOf() {
	tensor, err := tessera.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	check(err)
	defer tensor.Close()
	values, err := tessera.Values[float32](tensor)
	check(err)
	fmt.Println(tensor, values)
	// Output: f32[2, 3] [1 2 3 4 5 6]
}

func ExampleGraph() {
	graph, err := tessera.NewGraph()
	check(err)
	batch, err := graph.Symbol("B", 0)
	check(err)
	x, err := graph.Input("x", tessera.F32, batch, 4)
	check(err)
	w, err := graph.Parameter("w", tessera.F32, 4, 2)
	check(err)
	y, err := graph.Node("matmul", nil, x, w)
	check(err)
	check(graph.Output("y", y))
	model, err := tessera.NewModelFromGraph(graph, tessera.Options{"seed": 1})
	check(err)
	names, err := model.Parameters()
	check(err)
	_, err = graph.Node("matmul", nil, w, x)
	fmt.Println(names, errors.Is(err, tessera.ErrInvalidArgument))
	// Output: [w] true
}

func ExampleNewPlan() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	plan, err := tessera.NewPlan(runtime, newModel(), tessera.Options{"devices": "cpu:2", "parallel": "dp=2", "batch": 8})
	check(err)
	info, err := plan.Info()
	check(err)
	fmt.Println(strings.Contains(info, `"mesh":"dp=2"`))
	// Output: true
}

func ExampleLoadModelReader() {
	folder, err := os.MkdirTemp("", "tessera")
	check(err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.tsr")
	check(newModel().Save(path))
	file, err := os.ReadFile(path)
	check(err)
	model, err := tessera.LoadModelReader(bytes.NewReader(file), int64(len(file)))
	check(err)
	defer model.Close()
	output, err := model.Read("output")
	check(err)
	fmt.Println(output)
	// Output: f32[256, 32]
}

func ExampleScorer_Score() {
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	scorer, err := tessera.NewScorer(runtime, newModel(), nil)
	check(err)
	defer scorer.Close()
	scores, err := scorer.Score([][]int32{{72, 105}, {72, 111, 33}}, nil)
	check(err)
	fmt.Println(len(scores[0].LogProbs), len(scores[1].LogProbs), scores[1].LogProbs[2] < 0)
	// Output: 2 3 true
}

func ExampleConvertModel() {
	folder, err := os.MkdirTemp("", "tessera")
	check(err)
	defer os.RemoveAll(folder)
	in, out := filepath.Join(folder, "model.tsr"), filepath.Join(folder, "small.tsr")
	check(newModel().Save(in))
	last := 0.0
	_, err = tessera.ConvertModel(context.Background(), in, out, tessera.Options{"type": "q8_0"}, func(done float64) { last = done })
	check(err)
	fmt.Println(last)
	// Output: 1
}

func ExampleRuntime_NextLog() {
	runtime, err := tessera.NewRuntime(tessera.Options{"log_level": "info"})
	check(err)
	for {
		record, found, err := runtime.NextLog()
		check(err)
		if !found {
			break
		}
		fmt.Println(record.Level, record.Message)
	}
	// Output:
}
