// A model of one's own: a small network built node by node, trained on two devices to tell the quadrants of a plane
// apart (sign of x * y), which no linear model can; the twin of samples/c/own_model.c.
//
//	own_model [DEVICES]
package main

import (
	"fmt"
	"os"

	"tessera.dev/tessera"
)

const (
	batch  = 64
	hidden = 32
	steps  = 300
)

// must ends the program with an error, and otherwise is the value.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// build makes loss = loss_scale * sum over the batch of (w2 tanh(w1 x + b1) - y)^2; B, the batch, is bound when training.
func build() *tessera.Graph {
	graph := must(tessera.NewGraph())
	node := func(op string, attributes tessera.Options, inputs ...tessera.Value) tessera.Value {
		return must(graph.Node(op, attributes, inputs...))
	}
	rows := must(graph.Symbol("B", 0))
	x := must(graph.Input("x", tessera.F32, rows, 2))
	y := must(graph.Input("y", tessera.F32, rows, 1))
	scale := must(graph.Input("loss_scale", tessera.F32)) // the trainer feeds 1 / batch
	w1 := must(graph.Parameter("w1", tessera.F32, 2, hidden))
	b1 := must(graph.Parameter("b1", tessera.F32, hidden))
	w2 := must(graph.Parameter("w2", tessera.F32, hidden, 1))

	h := node("tanh", nil, node("add_bias", nil, node("matmul", nil, x, w1), b1))
	out := node("matmul", nil, h, w2)
	square := node("square", nil, node("sub", nil, out, y))
	sum := node("reduce_sum", tessera.Options{"axes": []int{0, 1}}, square)
	check(graph.Output("out", out))
	check(graph.Output("loss", node("scale_by", nil, sum, scale)))
	return graph
}

// points gives the next coordinate of the square [-1, 1)^2, the same on every machine.
func points() func() float32 {
	state := uint32(1)
	return func() float32 {
		state = state*1664525 + 1013904223
		return float32(state>>8)/(1<<23) - 1
	}
}

func main() {
	devices := "cpu:2"
	if len(os.Args) > 1 {
		devices = os.Args[1]
	}
	runtime := must(tessera.NewRuntime(nil))
	defer runtime.Close()
	model := must(tessera.NewModelFromGraph(build(), nil))
	defer model.Close()
	trainer := must(tessera.NewTrainer(runtime, model, nil, tessera.Options{"devices": devices, "batch": batch, "lr": 0.02}))
	defer trainer.Close()

	x, y := must(tessera.NewTensor(tessera.F32, batch, 2)), must(tessera.NewTensor(tessera.F32, batch, 1))
	coordinates, signs := make([]float32, 2*batch), make([]float32, batch)
	next := points()
	first, last := 0.0, 0.0
	for i := 0; i < steps; i++ {
		for row := range signs {
			coordinates[2*row], coordinates[2*row+1] = next(), next()
			signs[row] = -1
			if coordinates[2*row]*coordinates[2*row+1] > 0 {
				signs[row] = 1
			}
		}
		check(tessera.SetValues(x, coordinates))
		check(tessera.SetValues(y, signs))
		check(trainer.Feed("x", x))
		check(trainer.Feed("y", y))
		step := must(trainer.Step())
		if i == 0 {
			first = step.Loss
		}
		last = step.Loss
		if i%50 == 0 {
			fmt.Printf("step %d loss %.4f\n", i+1, step.Loss)
		}
	}
	fmt.Printf("loss from %.4f to %.4f\n", first, last)
	check(trainer.Store(model)) // model now holds the trained w1, b1, w2
	if last >= first/2 {
		os.Exit(1)
	}
}
