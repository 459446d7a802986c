package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// trainer is the training of one run in a trainer of its own. Each step brings the settings of its optimizer.
type trainer struct {
	trainers *Trainers
	base     *base
	model    *tessera.Model // with adapters
	adapters tinker.Adapters
	library  *tessera.Trainer // nil before the first pass
	pending  bool
	origin   *origin // what the library's trainer is to begin with
	bytes    int64
	dead     bool // the values are lost
}

// origin is a folder of a checkpoint.
type origin struct {
	folder    string
	optimizer bool
}

// losses are those that the plan has place for.
const losses = "cross_entropy,importance_sampling,ppo,cispo,dro,gspo"

func (t *trainer) options() tessera.Options {
	options := tessera.Options{"devices": t.trainers.config.Devices, "batch": 1, "seq": t.base.Context, "batch_segments": 1, "losses": losses,
		"seed": t.adapters.Seed, "warmup": 0, "measure_memory": 0}
	if t.trainers.config.Parallel != "" {
		options["parallel"] = t.trainers.config.Parallel
	}
	return options
}

// prepare makes the library's trainer where there is none.
func (t *trainer) prepare(ctx context.Context) error {
	if t.library != nil {
		return nil
	}
	made, err := tessera.NewTrainerContext(ctx, t.trainers.runtime, t.model, nil, t.options())
	if err != nil {
		return said(err, "")
	}
	if t.origin != nil {
		if err := made.LoadState(t.origin.folder, tessera.Options{"optimizer": t.origin.optimizer}); err != nil {
			made.Close()
			return said(err, "path")
		}
	}
	t.library = made
	t.bytes = planned(made)
	return nil
}

// planned are the bytes of a trainer's plan.
func planned(trainer *tessera.Trainer) (bytes int64) {
	text, err := trainer.Report()
	var report struct {
		Devices []struct {
			Arena struct{ Predicted int64 } `json:"arena_bytes"`
		}
	}
	if err != nil || json.Unmarshal([]byte(text), &report) != nil {
		return 0
	}
	for _, device := range report.Devices {
		bytes += device.Arena.Predicted
	}
	return bytes
}

func (t *trainer) Shared() string { return "" }

func (t *trainer) Bytes() int64 { return t.bytes }

func (t *trainer) Pending() bool { return t.pending }

func (t *trainer) Lost() bool { return t.dead }

func (t *trainer) Close() {
	if t.library != nil {
		t.library.Close()
		t.library = nil
	}
	t.model.Close()
}

// lost closes the library's trainer after an error that took its values.
func (t *trainer) lost(err error) error {
	var known *tessera.Error
	if errors.As(err, &known) {
		switch known.Code {
		case tessera.Cancelled, tessera.ValuesLost, tessera.Aborted, tessera.Timeout:
			t.dead = true
			return &inference.Error{Kind: inference.Internal, Code: "values_lost",
				Message: "the training's values are lost, go on from its last checkpoint: " + known.Message}
		}
	}
	return said(err, "data")
}

func (t *trainer) Forward(ctx context.Context, pass *tinker.Pass) ([][]float32, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	_, logprobs, err := t.rows(pass, func(batch tessera.Batch) (float64, []float32, error) {
		values, err := t.library.Forward(ctx, batch)
		return 0, values, err
	})
	return logprobs, err
}

func (t *trainer) ForwardBackward(ctx context.Context, pass *tinker.Pass) (float64, [][]float32, error) {
	if err := t.prepare(ctx); err != nil {
		return 0, nil, err
	}
	options := tessera.Options{}
	if pass.Clips() {
		options["eps_low"], options["eps_high"] = pass.EpsLow, pass.EpsHigh
	}
	if pass.Loss == tinker.DRO {
		options["beta"] = pass.Beta
	}
	return t.rows(pass, func(batch tessera.Batch) (float64, []float32, error) {
		value, values, err := t.library.ForwardBackward(ctx, batch, pass.Loss, options)
		if err == nil {
			t.pending = true
		}
		return value, values, err
	})
}

// rows packs sequences into rows, in their order, and computes one row after another.
func (t *trainer) rows(pass *tinker.Pass, compute func(batch tessera.Batch) (float64, []float32, error)) (sum float64, logprobs [][]float32, err error) {
	if err := t.base.check(pass); err != nil { // before gradients of the first rows are added
		return 0, nil, err
	}
	for first := 0; first < len(pass.Sequences); {
		last, tokens := first, 0
		for last < len(pass.Sequences) && (last == first || int64(tokens+len(pass.Sequences[last].Tokens)) <= t.base.Context) {
			tokens += len(pass.Sequences[last].Tokens)
			last++
		}
		batch := packed(pass.Sequences[first:last], tokens)
		value, values, err := compute(batch)
		if err != nil {
			return 0, nil, t.lost(err)
		}
		sum += value
		at := 0
		for _, one := range pass.Sequences[first:last] {
			logprobs = append(logprobs, values[at:at+len(one.Tokens):at+len(one.Tokens)])
			at += len(one.Tokens)
		}
		first = last
	}
	return sum, logprobs, nil
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

// packed is a row of several sequences.
func packed(sequences []tinker.Sequence, tokens int) tessera.Batch {
	batch := tessera.Batch{Seq: int64(tokens)}
	weighted, drawn := false, sequences[0].Logprobs != nil
	for _, one := range sequences {
		weighted = weighted || one.Weights != nil
	}
	for number, one := range sequences {
		batch.Tokens = append(batch.Tokens, one.Tokens...)
		batch.Labels = append(batch.Labels, one.Labels...)
		for i := range one.Tokens {
			batch.Positions = append(batch.Positions, int32(i))
			batch.Segments = append(batch.Segments, int32(number))
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
	return batch
}

// Step updates.
func (t *trainer) Step(ctx context.Context, update tinker.Update) (map[string]float64, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	step, err := t.library.OptimizerStep(ctx, tessera.Options{"lr": update.LearningRate, "beta1": update.Beta1, "beta2": update.Beta2,
		"eps": update.Eps, "weight_decay": update.WeightDecay, "clip_norm": update.ClipNorm})
	if err != nil {
		var known *tessera.Error
		if errors.As(err, &known) && (known.Code == tessera.NotFinite || known.Code == tessera.FailedPrecondition) {
			t.pending = false // they are dropped
		}
		return nil, t.lost(err)
	}
	t.pending = false
	return map[string]float64{"grad_norm": step.GradNorm, "step": float64(step.Step)}, nil
}
