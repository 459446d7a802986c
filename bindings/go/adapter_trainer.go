package tessera

import (
	"context"
	"encoding/json"
	"math"

	"tessera.dev/tessera/raw"
)

// AdapterTrainer trains many low-rank adapters in the same batches over one frozen model. The header says more under
// "adapters side by side". One goroutine at a time, except Cancel.
type AdapterTrainer handle

// NewAdapterTrainer makes a trainer with slots for adapters. Options: those of NewTrainer without a dataset, and adapters,
// adapter_rank, adapter_weights.
func NewAdapterTrainer(ctx context.Context, r *Runtime, model *Model, options Options) (*AdapterTrainer, error) {
	c, done := (*handle)(r).use()
	defer done()
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_adapter_trainer_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_adapter_trainer_new(c, m, o, out)
		})
	})
	return (*AdapterTrainer)(h), err
}

// Add adds an adapter and gives its number. Options: those of Model.WithAdapters, and seed.
func (t *AdapterTrainer) Add(options Options) (int64, error) {
	return t.number(options, raw.Tsr_adapter_trainer_add)
}

func (t *AdapterTrainer) number(options Options, call func(c, o uintptr, out *int64) uintptr) (int64, error) {
	var found int64
	c, done := (*handle)(t).use()
	defer done()
	err := options.with(func(o uintptr) uintptr { return call(c, o, &found) })
	return found, err
}

// Drop ends an adapter, with its passes that wait.
func (t *AdapterTrainer) Drop(adapter int64) error {
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_adapter_trainer_drop(c, adapter) })
}

// Forward queues a pass that gives the log probabilities of a batch's labels, and gives the pass's number.
func (t *AdapterTrainer) Forward(adapter int64, b Batch) (int64, error) {
	rows, err := b.rows()
	if err != nil {
		return 0, err
	}
	return t.number(nil, func(c, _ uintptr, out *int64) uintptr {
		return raw.Tsr_raw_adapter_trainer_forward(c, adapter, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels),
			firstOf(b.Positions), firstOf(b.Segments), out)
	})
}

// ForwardBackward queues a pass that adds the gradients of a loss, as Trainer.ForwardBackward does.
func (t *AdapterTrainer) ForwardBackward(adapter int64, b Batch, loss string, options Options) (int64, error) {
	rows, err := b.rows()
	if err != nil {
		return 0, err
	}
	if err := noNUL("loss", loss); err != nil {
		return 0, err
	}
	return t.number(options, func(c, o uintptr, out *int64) uintptr {
		return raw.Tsr_raw_adapter_trainer_forward_backward(c, adapter, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels),
			firstOf(b.Positions), firstOf(b.Segments), firstFloat(b.Weights), firstFloat(b.SamplerLogprobs),
			firstFloat(b.Advantages), loss, o, out)
	})
}

// Backward queues a pass that adds the gradients of a loss of your own, as Trainer.Backward does.
func (t *AdapterTrainer) Backward(adapter int64, b Batch, gradients []float32) (int64, error) {
	rows, err := b.rows()
	if err != nil {
		return 0, err
	}
	if len(gradients) != len(b.Tokens) {
		return 0, refuse("gradients are as many as tokens")
	}
	return t.number(nil, func(c, _ uintptr, out *int64) uintptr {
		return raw.Tsr_raw_adapter_trainer_backward(c, adapter, rows, b.Seq, firstOf(b.Tokens), firstOf(b.Labels),
			firstOf(b.Positions), firstOf(b.Segments), gradients, out)
	})
}

// Update queues an adapter's optimizer step. Options: those of Trainer.OptimizerStep.
func (t *AdapterTrainer) Update(adapter int64, options Options) (int64, error) {
	return t.number(options, func(c, o uintptr, out *int64) uintptr {
		return raw.Tsr_adapter_trainer_update(c, adapter, o, out)
	})
}

// CancelPass drops a pass that is not finished.
func (t *AdapterTrainer) CancelPass(pass int64) error {
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_adapter_trainer_cancel_pass(c, pass) })
}

// Pass is the result of a pass. Err: why it failed, which leaves other adapters alone.
type Pass struct {
	Number, Adapter int64
	Kind            string  // forward, forward_backward, backward or update
	Loss            float64 // of its rows; of an update, of all rows since the last one; NaN where it is not finite
	Step            int64   // of an update, as GradNorm and LR
	GradNorm, LR    float64
	Logprobs        []float32 // of the labels of its batch
	Err             error
}

// number is a number of the library's JSON, in which one that is not finite is null.
type number float64

// UnmarshalJSON reads null as NaN.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Next computes until a pass is finished; nil: none waits. The context's end ends the run in progress, and loses all values.
func (t *AdapterTrainer) Next(ctx context.Context) (*Pass, error) {
	var found string
	err := until(ctx, t.Cancel, func() (err error) {
		found, err = (*handle)(t).text(raw.Tsr_adapter_trainer_next)
		return err
	})
	if err != nil || found == "" {
		return nil, err
	}
	var read struct {
		Pass, Adapter int64
		Kind          string
		Loss, LR      number
		Step          int64
		GradNorm      number `json:"grad_norm"`
		Error         *struct {
			Code    Code
			Message string
		}
	}
	if err := json.Unmarshal([]byte(found), &read); err != nil {
		return nil, &Error{Code: Internal, Message: err.Error()}
	}
	pass := &Pass{Number: read.Pass, Adapter: read.Adapter, Kind: read.Kind, Loss: float64(read.Loss), Step: read.Step,
		GradNorm: float64(read.GradNorm), LR: float64(read.LR)}
	if read.Error != nil {
		pass.Err = &Error{Code: read.Error.Code, Message: read.Error.Message}
		return pass, nil
	}
	return pass, t.takeLogprobs(pass)
}

func (t *AdapterTrainer) takeLogprobs(pass *Pass) error {
	return (*handle)(t).call(func(c uintptr) uintptr {
		var count uint64
		if status := raw.Tsr_adapter_trainer_logprobs(c, nil, &count); status != 0 || count == 0 {
			return status
		}
		pass.Logprobs = make([]float32, count)
		return raw.Tsr_adapter_trainer_logprobs(c, pass.Logprobs, &count)
	})
}

// Save writes the checkpoint of one adapter, which a Trainer of the model with it alone reads, too.
func (t *AdapterTrainer) Save(adapter int64, folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_adapter_trainer_save(c, adapter, folder) })
}

// Load adds the adapter of a checkpoint, with its optimizer state and step; with the option optimizer 0 its values alone, of any
// optimizer, from step 0.
func (t *AdapterTrainer) Load(folder string, options Options) (int64, error) {
	if err := noNUL("folder", folder); err != nil {
		return 0, err
	}
	return t.number(options, func(c, o uintptr, out *int64) uintptr {
		return raw.Tsr_adapter_trainer_load(c, folder, o, out)
	})
}

// Model gives the model with an adapter's present values.
func (t *AdapterTrainer) Model(adapter int64) (*Model, error) {
	return newModel((*handle)(t).hold(raw.Tsr_model_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_adapter_trainer_model(c, adapter, out)
	}))
}

// Report gives slots, adapters, counts of tokens and memory, as JSON.
func (t *AdapterTrainer) Report() (string, error) {
	return (*handle)(t).text(raw.Tsr_adapter_trainer_report)
}

// Cancel ends the run in progress. Any goroutine.
func (t *AdapterTrainer) Cancel() {
	c, done := (*handle)(t).use()
	defer done()
	raw.Tsr_adapter_trainer_cancel(c)
}

// Close frees the trainer.
func (t *AdapterTrainer) Close() { (*handle)(t).close() }
