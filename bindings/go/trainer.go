package tessera

import (
	"tessera/raw"
)

// Dataset is token ids cut into samples. Immutable. Options: seq, eval_fraction, shuffle, seed, and of texts
// special.
type Dataset handle

// Close frees it; see the package.
func (d *Dataset) Close() { (*handle)(d).close() }

// OpenDataset reads and tokenises a text file.
func OpenDataset(path string, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	tokenizerC, tokenizerDone := (*handle)(tokenizer).use()
	defer tokenizerDone()
	h, err := holdWith(raw.Tsr_dataset_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_file(path, tokenizerC, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Dataset)(h), nil
}

// Trainer fine-tunes a model on all devices given. The header lists its options under tsr_trainer_new.
type Trainer handle

// Close frees it; see the package.
func (t *Trainer) Close() { (*handle)(t).close() }

// NewTrainer plans, and prepares the devices; it copies what it needs of model and dataset.
func NewTrainer(r *Runtime, model *Model, dataset *Dataset, options Options) (*Trainer, error) {
	c, done := (*handle)(r).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	datasetC, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return nil, err
	}
	h, err := holdWith(raw.Tsr_trainer_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_trainer_new(c, modelC, datasetC, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Trainer)(h), nil
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
	c, done := (*handle)(t).use()
	defer done()
	out := raw.NewTsr_step()
	defer raw.DeleteTsr_step(out)
	out.SetStruct_size(raw.Tsr_raw_step_size())
	if err := failure(raw.Tsr_trainer_step(c, out)); err != nil {
		return Step{}, err
	}
	return Step{out.GetStep(), out.GetLoss(), out.GetGrad_norm(), out.GetLr(), out.GetSeconds()}, nil
}

// Evaluate is the mean loss over the dataset's evaluation part.
func (t *Trainer) Evaluate() (float64, error) {
	c, done := (*handle)(t).use()
	defer done()
	var loss float64
	err := failure(raw.Tsr_trainer_evaluate(c, &loss))
	return loss, err
}

// Save replaces the checkpoint folder, at once or not at all.
func (t *Trainer) Save(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	c, done := (*handle)(t).use()
	defer done()
	return failure(raw.Tsr_trainer_save(c, folder))
}

// CheckCheckpointFolder says whether Save could write folder now, before the first step.
func CheckCheckpointFolder(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	return failure(raw.Tsr_trainer_check_folder(folder))
}

// Resume goes on from a checkpoint. Parameters that did not train are not in it: the model has to be the same.
func (t *Trainer) Resume(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	c, done := (*handle)(t).use()
	defer done()
	return failure(raw.Tsr_trainer_resume(c, folder))
}

// CheckpointInfo is JSON: what a checkpoint holds, and the adapters of the model that it is of.
func CheckpointInfo(folder string) (string, error) {
	if err := noNUL("folder", folder); err != nil {
		return "", err
	}
	return text(func(out *uintptr) uintptr { return raw.Tsr_checkpoint_info(folder, out) })
}

// Store writes the present values of all parameters into model.
func (t *Trainer) Store(model *Model) error {
	c, done := (*handle)(t).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	return failure(raw.Tsr_trainer_store(c, modelC))
}

// SaveModel writes the .tsr file that Store and then model's Save would write; model stays as it is, and one
// tensor at a time is in host memory. Options: compress.
func (t *Trainer) SaveModel(model *Model, path string, options Options) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	c, done := (*handle)(t).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_trainer_save_model(c, modelC, path, o) })
}

// Report is JSON: plan, memory, communication.
func (t *Trainer) Report() (string, error) {
	c, done := (*handle)(t).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_trainer_report(c, out) })
}

// Cancel ends the call in progress on another goroutine with an Error of code Cancelled.
func (t *Trainer) Cancel() {
	c, done := (*handle)(t).use()
	defer done()
	raw.Tsr_trainer_cancel(c)
}
