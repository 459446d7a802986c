// Fine-tunes a model on a text file, on all devices named, and saves it; the twin of samples/c/finetune.c.
//
//	finetune MODEL TEXT OUT [DEVICES [STEPS]]        e.g.  finetune small.tsr notes.txt tuned.tsr cpu:4 100
package main

import (
	"fmt"
	"os"
	"strconv"

	"tessera.dev/tessera"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL TEXT OUT [DEVICES [STEPS]]\n", os.Args[0])
		os.Exit(2)
	}
	devices, steps := "cpu:2", 20
	if len(os.Args) > 4 {
		devices = os.Args[4]
	}
	if len(os.Args) > 5 {
		steps, _ = strconv.Atoi(os.Args[5])
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], devices, steps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tessera.Exit(0) // leaves the other processes, where there are some (mpirun)
}

// Handles free themselves; nothing here is closed by hand, so finalisers do all of it.
func run(modelPath, text, out, devices string, steps int) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	model, err := tessera.LoadModel(modelPath)
	if err != nil {
		return err
	}
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return err
	}
	dataset, err := tessera.OpenDataset(text, tokenizer, tessera.Options{"seq": 32, "eval_fraction": 0.05})
	if err != nil {
		return err
	}
	trainer, err := tessera.NewTrainer(runtime, model, dataset, tessera.Options{
		"devices": devices, "batch": 8, "steps": steps, "lr": 3e-3, "schedule": "cosine", "eval_batches": 4,
	})
	if err != nil {
		return err
	}
	plan, err := trainer.Plan()
	if err != nil {
		return err
	}
	info, err := plan.Info()
	if err != nil {
		return err
	}
	fmt.Println("plan", info)
	for i := 0; i < steps; i++ {
		step, err := trainer.Step()
		if err != nil {
			return err
		}
		fmt.Printf("step %d loss %.9g\n", step.Step, step.Loss)
	}
	loss, err := trainer.Evaluate()
	if err != nil {
		return err
	}
	fmt.Printf("eval_loss %.9g\n", loss)
	if err := trainer.Store(model); err != nil {
		return err
	}
	return model.Save(out)
}
