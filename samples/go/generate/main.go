// Continues a prompt, printing the text as it comes; the twin of samples/c/generate.c. Interrupted, it ends the text.
//
//	generate MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]        e.g.  generate tuned.tsr "Once upon" 50 cpu:2 0.8
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"tessera.dev/tessera"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]\n", os.Args[0])
		os.Exit(2)
	}
	options := tessera.Options{"max_tokens": 100, "devices": "cpu:1", "temperature": 0.0}
	if len(os.Args) > 3 {
		options["max_tokens"], _ = strconv.Atoi(os.Args[3])
	}
	if len(os.Args) > 4 {
		options["devices"] = os.Args[4]
	}
	if len(os.Args) > 5 {
		options["temperature"], _ = strconv.ParseFloat(os.Args[5], 64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path, prompt string, options tessera.Options) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	defer runtime.Close()
	model, err := tessera.LoadModel(path)
	if err != nil {
		return err
	}
	defer model.Close()
	generator, err := tessera.NewGeneratorContext(ctx, runtime, model, options)
	if err != nil {
		return err
	}
	defer generator.Close()
	stream := generator.Stream(ctx, prompt, nil)
	fmt.Print(prompt)
	for stream.Next() {
		fmt.Print(stream.Piece().Text)
	}
	fmt.Println()
	return stream.Err()
}
