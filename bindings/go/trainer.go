package tessera

import (
	"runtime"
	"tessera/raw"
)

// Dataset is token ids cut into samples. Immutable. Options: seq, eval_fraction, shuffle, seed.
type Dataset struct{ *handle }

// OpenDataset reads and tokenises a text file.
func OpenDataset(path string, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	defer runtime.KeepAlive(tokenizer.handle)
	h, err := holdWith(raw.Tsr_dataset_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_file(path, tokenizer.pointer, o, out)
	})
	if err != nil {
		return nil, err
	}
	return &Dataset{h}, nil
}

// Trainer fine-tunes a model on all devices given. The header lists its options under tsr_trainer_new.
type Trainer struct{ *handle }

// NewTrainer plans, and prepares the devices; it copies what it needs of model and dataset.
func NewTrainer(r *Runtime, model *Model, dataset *Dataset, options Options) (*Trainer, error) {
	defer runtime.KeepAlive(r.handle)
	defer runtime.KeepAlive(model.handle)
	defer runtime.KeepAlive(dataset.handle)
	h, err := holdWith(raw.Tsr_trainer_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_trainer_new(r.pointer, model.pointer, dataset.pointer, o, out)
	})
	if err != nil {
		return nil, err
	}
	return &Trainer{h}, nil
}

// Step is the outcome of one optimizer step.
type Step struct {
	Step     int64 // 1 for the first
	Loss     float64
	GradNorm float64
	LR       float64
	Seconds  float64
}

// Step makes one optimizer step.
func (t *Trainer) Step() (Step, error) {
	defer runtime.KeepAlive(t.handle)
	out := raw.NewTsr_step()
	defer raw.DeleteTsr_step(out)
	out.SetStruct_size(raw.StepSize())
	if err := failure(raw.Tsr_trainer_step(t.pointer, out)); err != nil {
		return Step{}, err
	}
	return Step{out.GetStep(), out.GetLoss(), out.GetGrad_norm(), out.GetLr(), out.GetSeconds()}, nil
}

// Evaluate is the mean loss over the dataset's evaluation part.
func (t *Trainer) Evaluate() (float64, error) {
	defer runtime.KeepAlive(t.handle)
	var loss float64
	err := failure(raw.Tsr_trainer_evaluate(t.pointer, &loss))
	return loss, err
}

// Save replaces the checkpoint folder, at once or not at all.
func (t *Trainer) Save(folder string) error {
	defer runtime.KeepAlive(t.handle)
	return failure(raw.Tsr_trainer_save(t.pointer, folder))
}

// Resume goes on from a checkpoint.
func (t *Trainer) Resume(folder string) error {
	defer runtime.KeepAlive(t.handle)
	return failure(raw.Tsr_trainer_resume(t.pointer, folder))
}

// Store writes the present values of all parameters into model.
func (t *Trainer) Store(model *Model) error {
	defer runtime.KeepAlive(t.handle)
	defer runtime.KeepAlive(model.handle)
	return failure(raw.Tsr_trainer_store(t.pointer, model.pointer))
}

// Report is JSON: plan, memory, communication.
func (t *Trainer) Report() (string, error) {
	defer runtime.KeepAlive(t.handle)
	return text(func(b []byte, n *uint64) uintptr { return raw.Tsr_trainer_report(t.pointer, b, n) })
}

// Cancel ends the call in progress on another goroutine with an Error of code Cancelled.
func (t *Trainer) Cancel() {
	defer runtime.KeepAlive(t.handle)
	raw.Tsr_trainer_cancel(t.pointer)
}
