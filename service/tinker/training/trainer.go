package training

import (
	"context"

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

// prepare makes the library's trainer where there is none.
func (t *trainer) prepare(ctx context.Context) error {
	if t.library != nil {
		return nil
	}
	options := t.trainers.options(t.base)
	options["seed"] = t.adapters.Seed
	made, err := tessera.NewTrainerContext(ctx, t.trainers.runtime, t.model, nil, options)
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
	if text, err := made.Report(); err == nil {
		t.bytes = arenaBytes(text)
	}
	return nil
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

// lost notes an error that took the values.
func (t *trainer) lost(err error) error {
	if takesValues(err) {
		t.dead = true
		return valuesLost(err)
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
	return t.rows(pass, func(batch tessera.Batch) (float64, []float32, error) {
		value, values, err := t.library.ForwardBackward(ctx, batch, pass.Loss, lossOptions(pass))
		if err == nil {
			t.pending = true
		}
		return value, values, err
	})
}

// rows computes one row after another.
func (t *trainer) rows(pass *tinker.Pass, compute func(batch tessera.Batch) (float64, []float32, error)) (sum float64, logprobs [][]float32, err error) {
	if err := t.base.check(pass); err != nil { // before gradients of the first rows are added
		return 0, nil, err
	}
	for _, one := range t.base.rowsOf(pass) {
		rows := []row{one}
		value, values, err := compute(batchOf(rows))
		if err != nil {
			return 0, nil, t.lost(err)
		}
		sum += value
		logprobs = append(logprobs, logprobsOf(rows, values)...)
	}
	return sum, logprobs, nil
}

// Step updates.
func (t *trainer) Step(ctx context.Context, update tinker.Update) (map[string]float64, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	step, err := t.library.OptimizerStep(ctx, stepOptions(update))
	if err != nil {
		if dropsGradients(err) {
			t.pending = false
		}
		return nil, t.lost(err)
	}
	t.pending = false
	return map[string]float64{"grad_norm": step.GradNorm, "step": float64(step.Step)}, nil
}
