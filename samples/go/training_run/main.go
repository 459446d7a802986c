// Trains a model on a text with evaluations, the best checkpoint, patience, samples and a report, as `tessera train` does.
// Where an earlier run with the same OUT was killed, it goes on from that one's checkpoint; the twin of samples/c/training_run.c.
//
//	training_run MODEL DATA OUT [STEPS]        e.g.  training_run small.tsr notes.txt tuned.tsr 60
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"tessera.dev/tessera"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL DATA OUT [STEPS]\n", os.Args[0])
		os.Exit(2)
	}
	out, steps := os.Args[3], 60
	if len(os.Args) > 4 {
		steps = must(strconv.Atoi(os.Args[4]))
	}
	options := tessera.Options{"out": out, "eval_every": 10, "keep_best": true, "patience": 3, "keep": 2,
		"samples": "Once upon a time", "report": out + ".html"}
	if folder, err := tessera.ResumedFolder(out); err == nil {
		options["resume"] = folder
	}
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(os.Args[1]))
	dataset := must(tessera.OpenDataset(os.Args[2], must(model.Tokenizer()), tessera.Options{"seq": 32, "eval_fraction": 0.1}))
	trainer := must(tessera.NewTrainer(runtime, model, dataset, tessera.Options{"batch": 8, "lr": 1e-3, "steps": steps}))
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt) // Ctrl-C leaves a checkpoint
	run := must(tessera.NewRunContext(ctx, trainer, options))
	for run.Next() {
		switch event := run.Event(); event.Kind {
		case tessera.RunStep:
			fmt.Printf("step %d loss %.9g\n", event.Step, event.Loss)
		case tessera.RunEvaluation:
			fmt.Printf("eval_loss %.9g\n", event.Loss)
		default:
			fmt.Println(event.Details)
		}
	}
	must(0, run.Err())
	fmt.Println(run.Outcome())
	run.Close()
	tessera.Exit(0) // leaves the other processes, where there are some (mpirun)
}
