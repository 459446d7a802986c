package training

import (
	"fmt"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// row is sequences that are computed one after another in a row of a batch.
type row []tinker.Sequence

func (r row) tokens() (count int) {
	for i := range r {
		count += len(r[i].Tokens)
	}
	return count
}

// rowsOf packs sequences into rows, in their order.
func (b *base) rowsOf(pass *tinker.Pass) (rows []row) {
	for first := 0; first < len(pass.Sequences); {
		last, tokens := first, 0
		for last < len(pass.Sequences) && (last == first || int64(tokens+len(pass.Sequences[last].Tokens)) <= b.Context) {
			tokens += len(pass.Sequences[last].Tokens)
			last++
		}
		rows = append(rows, row(pass.Sequences[first:last]))
		first = last
	}
	return rows
}

// batchOf is a batch of rows, filled up to the longest.
func batchOf(rows []row) tessera.Batch {
	batch := tessera.Batch{}
	weighted, drawn := false, rows[0][0].Logprobs != nil
	for _, one := range rows {
		if count := int64(one.tokens()); count > batch.Seq {
			batch.Seq = count
		}
		for i := range one {
			weighted = weighted || one[i].Weights != nil
		}
	}
	for _, one := range rows {
		for number := range one {
			appendSequence(&batch, &one[number], int32(number), weighted, drawn)
		}
		for left := batch.Seq - int64(one.tokens()); left > 0; left-- { // another document, of no labels
			appendSequence(&batch, &tinker.Sequence{Tokens: []int32{0}, Labels: []int32{-1}, Weights: []float32{0},
				Logprobs: []float32{0}, Advantages: []float32{0}}, int32(len(one)), weighted, drawn)
		}
	}
	return batch
}

func appendSequence(batch *tessera.Batch, one *tinker.Sequence, segment int32, weighted, drawn bool) {
	batch.Tokens = append(batch.Tokens, one.Tokens...)
	batch.Labels = append(batch.Labels, one.Labels...)
	for i := range one.Tokens {
		batch.Positions = append(batch.Positions, int32(i))
		batch.Segments = append(batch.Segments, segment)
		if weighted {
			weight := float32(1)
			if one.Weights != nil {
				weight = one.Weights[i]
			}
			batch.Weights = append(batch.Weights, weight)
		}
	}
	if drawn {
		batch.SamplerLogprobs = append(batch.SamplerLogprobs, one.Logprobs...)
		batch.Advantages = append(batch.Advantages, one.Advantages...)
	}
}

// logprobsOf takes those of each sequence out of those of a batch.
func logprobsOf(rows []row, values []float32) (logprobs [][]float32) {
	width := len(values) / len(rows)
	for number, one := range rows {
		at := number * width
		for i := range one {
			end := at + len(one[i].Tokens)
			logprobs = append(logprobs, values[at:end:end])
			at = end
		}
	}
	return logprobs
}

// lossOptions are the settings of a pass's loss.
func lossOptions(pass *tinker.Pass) tessera.Options {
	options := tessera.Options{}
	if pass.Clips() {
		options["eps_low"], options["eps_high"] = pass.EpsLow, pass.EpsHigh
	}
	if pass.Loss == tinker.DRO {
		options["beta"] = pass.Beta
	}
	return options
}

// stepOptions are the settings of an optimizer step.
func stepOptions(update tinker.Update) tessera.Options {
	return tessera.Options{"lr": update.LearningRate, "beta1": update.Beta1, "beta2": update.Beta2, "eps": update.Eps,
		"weight_decay": update.WeightDecay, "clip_norm": update.ClipNorm}
}

// check refuses sequences that are too long, and tokens that there are not.
func (b *base) check(pass *tinker.Pass) error {
	for i := range pass.Sequences {
		one := &pass.Sequences[i]
		if count := int64(len(one.Tokens)); count > b.Context {
			return &inference.Error{Kind: inference.Invalid, Code: "context_length_exceeded", Param: "data",
				Message: fmt.Sprintf("a sequence has %d tokens, wanted at most %d", count, b.Context)}
		}
		for _, tokens := range [][]int32{one.Tokens, one.Labels} {
			for _, token := range tokens {
				if token < 0 || int64(token) >= b.vocabulary {
					return &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "data",
						Message: fmt.Sprintf("found the token %d, wanted 0 to %d", token, b.vocabulary-1)}
				}
			}
		}
	}
	return nil
}
