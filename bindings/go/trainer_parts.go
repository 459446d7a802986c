package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// Batch has rows of Seq tokens for a part of a step, one after another. All arrays but Tokens and Labels may be nil; the
// header says the rest under tsr_batch.
type Batch struct {
	Seq             int64
	Tokens          []int32
	Labels          []int32 // the token that is to follow, or -1
	Positions       []int32
	Segments        []int32
	Weights         []float32
	SamplerLogprobs []float32 // of the labels when they were drawn
	Advantages      []float32
}

func (b *Batch) rows() (int64, error) {
	if b.Seq < 1 || len(b.Tokens) == 0 || int64(len(b.Tokens))%b.Seq != 0 {
		return 0, refuse("the tokens are no rows of Seq")
	}
	if len(b.Labels) != len(b.Tokens) {
		return 0, refuse("labels are as many as tokens")
	}
	for _, length := range []int{len(b.Positions), len(b.Segments), len(b.Weights), len(b.SamplerLogprobs), len(b.Advantages)} {
		if length != 0 && length != len(b.Tokens) {
			return 0, refuse("the arrays of a batch are as many as its tokens, or nil")
		}
	}
	return int64(len(b.Tokens)) / b.Seq, nil
}

func firstFloat(values []float32) *float32 {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// Forward gives the log probabilities of a batch's labels, 0 for negative ones. Parts of steps need the option losses.
func (t *Trainer) Forward(ctx context.Context, b Batch) ([]float32, error) {
	rows, err := b.rows()
	if err != nil {
		return nil, err
	}
	items := make([]float32, len(b.Tokens))
	var count uint64
	err = until(ctx, t.Cancel, func() error {
		return (*handle)(t).call(func(c uintptr) uintptr {
			return raw.Tsr_raw_trainer_forward(c, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels), firstOf(b.Positions),
				firstOf(b.Segments), items, &count)
		})
	})
	return items, err
}

// ForwardBackward adds the gradients of a loss, cross_entropy, importance_sampling, ppo, cispo, dro or gspo, and gives its
// value and the log probabilities of the labels. Options: scale, eps_low, eps_high, beta.
func (t *Trainer) ForwardBackward(ctx context.Context, b Batch, loss string, options Options) (float64, []float32, error) {
	rows, err := b.rows()
	if err != nil {
		return 0, nil, err
	}
	if err := noNUL("loss", loss); err != nil {
		return 0, nil, err
	}
	items := make([]float32, len(b.Tokens))
	var value float64
	var count uint64
	err = until(ctx, t.Cancel, func() error {
		c, done := (*handle)(t).use()
		defer done()
		return options.with(func(o uintptr) uintptr {
			return raw.Tsr_raw_trainer_forward_backward(c, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels),
				firstOf(b.Positions), firstOf(b.Segments), firstFloat(b.Weights), firstFloat(b.SamplerLogprobs),
				firstFloat(b.Advantages), loss, o, &value, items, &count)
		})
	})
	return value, items, err
}

// Backward adds the gradients of a loss of your own, given its derivatives by the log probabilities of the labels.
func (t *Trainer) Backward(ctx context.Context, b Batch, gradients []float32) error {
	rows, err := b.rows()
	if err != nil {
		return err
	}
	if len(gradients) != len(b.Tokens) {
		return refuse("gradients are as many as tokens")
	}
	return until(ctx, t.Cancel, func() error {
		return (*handle)(t).call(func(c uintptr) uintptr {
			return raw.Tsr_raw_trainer_backward(c, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels), firstOf(b.Positions),
				firstOf(b.Segments), gradients)
		})
	})
}

// OptimizerStep updates from the gradients added up since the last update. Options, of this step alone: lr, clip_norm, and the
// settings of the optimizer (beta1, beta2, eps, weight_decay, momentum).
func (t *Trainer) OptimizerStep(ctx context.Context, options Options) (Step, error) {
	out := raw.NewTsr_step()
	defer raw.DeleteTsr_step(out)
	out.SetStruct_size(raw.Tsr_raw_step_size())
	err := until(ctx, t.Cancel, func() error {
		c, done := (*handle)(t).use()
		defer done()
		return options.with(func(o uintptr) uintptr { return raw.Tsr_trainer_optimizer_step(c, o, out) })
	})
	if err != nil {
		return Step{}, err
	}
	return stepOf(out), nil
}
