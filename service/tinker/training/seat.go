package training

import (
	"context"
	"os"
	"path/filepath"

	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// seat is the training of one run in a slot of a trainer that others share.
type seat struct {
	trainers *Trainers
	base     *base
	shared   *shared
	number   int64 // of its adapter
	pending  bool
	dead     bool // a pass was cut off, so that gradients are of a part of it
	closed   bool
}

type part = func(library adapterTrainer) (number int64, err error)

// parts are the batches of a pass, and what queues them.
func (t *seat) parts(pass *tinker.Pass, queue func(library adapterTrainer, batch tessera.Batch) (int64, error)) (batches [][]row, parts []part) {
	rows, most := t.base.rowsOf(pass), int(t.trainers.config.Rows)
	for first := 0; first < len(rows); first += most {
		last := first + most
		if last > len(rows) {
			last = len(rows)
		}
		batch := rows[first:last]
		batches = append(batches, batch)
		parts = append(parts, func(library adapterTrainer) (int64, error) { return queue(library, batchOf(batch)) })
	}
	return batches, parts
}

func (t *seat) Forward(ctx context.Context, pass *tinker.Pass) ([][]float32, error) {
	if err := t.base.check(pass); err != nil {
		return nil, err
	}
	batches, parts := t.parts(pass, func(library adapterTrainer, batch tessera.Batch) (int64, error) {
		return library.Forward(t.number, batch)
	})
	found, _, err := t.shared.run(ctx, parts)
	if err != nil {
		return nil, t.failed(err)
	}
	_, logprobs := sumOf(batches, found)
	return logprobs, nil
}

func (t *seat) ForwardBackward(ctx context.Context, pass *tinker.Pass) (float64, [][]float32, error) {
	if err := t.base.check(pass); err != nil {
		return 0, nil, err
	}
	batches, parts := t.parts(pass, func(library adapterTrainer, batch tessera.Batch) (int64, error) {
		return library.ForwardBackward(t.number, batch, pass.Loss, lossOptions(pass))
	})
	found, begun, err := t.shared.run(ctx, parts)
	if err != nil {
		t.pending = t.pending || begun
		t.dead = t.dead || begun && ctx.Err() != nil
		return 0, nil, t.failed(err)
	}
	t.pending = true
	sum, logprobs := sumOf(batches, found)
	return sum, logprobs, nil
}

// sumOf takes the loss and the log probabilities of each sequence out of the results of batches.
func sumOf(batches [][]row, found []*tessera.Pass) (sum float64, logprobs [][]float32) {
	for number, one := range found {
		sum += one.Loss
		logprobs = append(logprobs, logprobsOf(batches[number], one.Logprobs)...)
	}
	return sum, logprobs
}

// Step updates.
func (t *seat) Step(ctx context.Context, update tinker.Update) (map[string]float64, error) {
	found, begun, err := t.shared.run(ctx, []part{func(library adapterTrainer) (int64, error) {
		return library.Update(t.number, stepOptions(update))
	}})
	if err != nil {
		if begun && dropsGradients(err) {
			t.pending = false
		}
		return nil, t.failed(err)
	}
	t.pending = false
	return map[string]float64{"grad_norm": found[0].GradNorm, "step": float64(found[0].Step)}, nil
}

// failed is an error for the client's eyes.
func (t *seat) failed(err error) error {
	if t.Lost() {
		return valuesLost(err)
	}
	return said(err, "data")
}

// SaveState writes adapters and optimizer.
func (t *seat) SaveState(_ context.Context, folder string) error {
	if t.pending {
		return errPending
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return said(t.shared.do(func(library adapterTrainer) error { return library.Save(t.number, filepath.Join(folder, "state")) }), "path")
}

// LoadState begins with a checkpoint; it is called before anything else.
func (t *seat) LoadState(_ context.Context, folder string, optimizer bool) error {
	return said(t.shared.do(func(library adapterTrainer) error {
		if err := library.Drop(t.number); err != nil { // its slot is free for the loaded one
			return err
		}
		number, err := library.Load(filepath.Join(folder, "state"), tessera.Options{"optimizer": optimizer})
		if err == nil {
			t.number = number
		}
		return err
	}), "path")
}

// Live is a model of the base with the adapters as they are.
func (t *seat) Live(context.Context) (tinker.Live, error) {
	model, err := t.model()
	if err != nil {
		return nil, err
	}
	return model, nil
}

func (t *seat) model() (model *tessera.Model, err error) {
	err = t.shared.do(func(library adapterTrainer) (err error) {
		model, err = library.Model(t.number)
		return err
	})
	return model, said(err, "path")
}

// SaveAdapters writes the adapters as PEFT has them.
func (t *seat) SaveAdapters(ctx context.Context, folder string) error {
	model, err := t.model()
	if err != nil {
		return err
	}
	defer model.Close()
	_, err = model.Export(ctx, folder, tessera.Options{"format": "peft"}, nil)
	return said(err, "path")
}

func (t *seat) Shared() string { return t.shared.name }

func (t *seat) Bytes() int64 {
	if t.shared.lostBy() != nil {
		return 0
	}
	return t.shared.bytes
}

func (t *seat) Pending() bool { return t.pending }

func (t *seat) Lost() bool { return t.dead || t.shared.lostBy() != nil }

// Close gives the slot to others, without waiting for what they compute.
func (t *seat) Close() {
	if t.closed {
		return
	}
	t.closed = true
	number := t.number
	t.shared.leave(func(library adapterTrainer) {
		if library != nil {
			_ = library.Drop(number) // it is there, unless loading failed; numbers are not used again
		}
	})
	t.trainers.stand(t.base, t.shared)
}
