// Continues a prompt, printing pieces as they come.
//
//	generate MODEL PROMPT [TOKENS [DEVICES]]
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"tessera"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL PROMPT [TOKENS [DEVICES]]\n", os.Args[0])
		os.Exit(2)
	}
	tokens, devices := 100, "cpu:1"
	if len(os.Args) > 3 {
		tokens, _ = strconv.Atoi(os.Args[3])
	}
	if len(os.Args) > 4 {
		devices = os.Args[4]
	}
	if err := run(os.Args[1], os.Args[2], devices, tokens); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path, prompt, devices string, tokens int) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	model, err := tessera.LoadModel(path)
	if err != nil {
		return err
	}
	generator, err := tessera.NewGenerator(runtime, model, tessera.Options{"devices": devices, "max_tokens": tokens})
	if err != nil {
		return err
	}
	if err := generator.Start(prompt); err != nil {
		return err
	}
	for {
		piece, err := generator.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(piece)
	}
}
