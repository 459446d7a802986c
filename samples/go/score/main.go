// Ranks answers to a prompt by how likely a model finds them, as tests of multiple choice do.
//
//	score MODEL PROMPT ANSWER...
package main

import (
	"fmt"
	"os"

	"tessera.dev/tessera"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL PROMPT ANSWER...\n", os.Args[0])
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path, prompt string, answers []string) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	model, err := tessera.LoadModel(path)
	if err != nil {
		return err
	}
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return err
	}
	before, err := tokenizer.Encode(prompt)
	if err != nil {
		return err
	}
	texts := make([][]int32, len(answers))
	for i, answer := range answers {
		if texts[i], err = tokenizer.Encode(prompt + answer); err != nil {
			return err
		}
	}
	scorer, err := tessera.NewScorer(runtime, model, tessera.Options{"bos": "auto", "batch": len(texts)})
	if err != nil {
		return err
	}
	scores, err := scorer.Score(texts, nil)
	if err != nil {
		return err
	}
	for i, answer := range answers {
		sum := 0.0
		for j, logprob := range scores[i].LogProbs {
			if j >= len(before) && j > 0 { // a first token may have no score
				sum += float64(logprob)
			}
		}
		fmt.Printf("%10.4f  %s\n", sum, answer)
	}
	return nil
}
