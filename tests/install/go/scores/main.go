// Scores of texts, of no texts and of empty ones: as many numbers as tokens, the same in any batch. Argument: a model
// whose tokens are bytes.
package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	"tessera.dev/tessera"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func wanted[T comparable](what string, found, want T) {
	if found != want {
		must(0, fmt.Errorf("%s: found %v, wanted %v", what, found, want))
	}
}

func main() {
	runtime := must(tessera.NewRuntime(nil))
	model := must(tessera.LoadModel(os.Args[1]))
	tokenizer := must(model.Tokenizer())
	scorer := must(tessera.NewScorer(runtime, model, tessera.Options{"seq": 16, "stride": 8, "batch": 3}))
	texts := [][]int32{}
	for _, text := range []string{"a computer", "", "x", "The tiles of one mosaic lie side by side."} {
		texts = append(texts, must(tokenizer.Encode(text)))
	}
	last := 0.0
	all := must(scorer.Score(texts, func(done float64) { last = done }))
	wanted("progress", last, 1)
	for i, text := range texts {
		wanted("numbers", len(all[i].LogProbs), len(text))
		wanted("greedy", len(all[i].Greedy), len(text))
		alone := must(scorer.Score([][]int32{text}, nil))
		for j, logprob := range alone[0].LogProbs {
			wanted("bits", math.Float32bits(all[i].LogProbs[j]), math.Float32bits(logprob))
			wanted("first", logprob != logprob, j == 0)
			wanted("probability", j == 0 || logprob < 0, true)
		}
	}
	wanted("no texts", len(must(scorer.Score(nil, nil))), 0)
	_, err := scorer.Score([][]int32{{1, 1000}}, nil)
	wanted("error", err != nil && strings.Contains(err.Error(), "ids[1] is 1000"), true)
	wanted("report", strings.Contains(must(scorer.Report()), `"seq":16`), true)
	scorer.Cancel()
	scorer.Close()
	_, err = scorer.Score(texts, nil)
	wanted("closed", err != nil, true)
}
