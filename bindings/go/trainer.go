package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// Trainer fine-tunes a model on all devices given. The header lists its options under tsr_trainer_new.
type Trainer handle

// NewTrainer plans, and prepares the devices; it copies what it needs of model and dataset. Without a dataset (nil) the
// model's graph has a loss of its own, and inputs for Feed.
func NewTrainer(r *Runtime, model *Model, dataset *Dataset, options Options) (*Trainer, error) {
	return NewTrainerContext(context.Background(), r, model, dataset, options)
}

// NewTrainerContext is NewTrainer, which the context's end ends; see Runtime.Cancel.
func NewTrainerContext(ctx context.Context, r *Runtime, model *Model, dataset *Dataset, options Options) (*Trainer, error) {
	c, done := (*handle)(r).use()
	defer done()
	d, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return nil, err
	}
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_trainer_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_trainer_new(c, m, d, o, out)
		})
	})
	return (*Trainer)(h), err
}

// PrepareTrainer is NewTrainer in steps: it shows progress, of what a preference loss's reference says above all, and ends
// with the context.
func PrepareTrainer(ctx context.Context, r *Runtime, model *Model, dataset *Dataset, options Options, progress func(done float64)) (*Trainer, error) {
	c, done := (*handle)(r).use()
	defer done()
	d, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return nil, err
	}
	w, err := (*handle)(model).begin(options, func(m, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_trainer_begin(c, m, d, o, out)
	})
	if err != nil {
		return nil, err
	}
	h, err := w.made(ctx, progress, raw.Tsr_trainer_free, raw.Tsr_trainer_finish)
	return (*Trainer)(h), err
}

// Close frees it; see the package.
func (t *Trainer) Close() { (*handle)(t).close() }

// Feed sets an input of an own graph, which keeps its value until it is fed again; the values are copied.
func (t *Trainer) Feed(input string, value *Tensor) error {
	if err := noNUL("input", input); err != nil {
		return err
	}
	v, done := (*handle)(value).use()
	defer done()
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_feed(c, input, v) })
}

// Step is the outcome of one optimizer step.
type Step struct {
	Step     int64 // 1 for the first
	Loss     float64
	GradNorm float64
	LR       float64
	Seconds  float64
	// Rewards of a preference loss (header: tsr_step); 0 with another loss.
	ChosenReward, RejectedReward, RewardMargin, RewardAccuracy float64
}

func stepOf(out raw.Tsr_step) Step {
	return Step{out.GetStep(), out.GetLoss(), out.GetGrad_norm(), out.GetLr(), out.GetSeconds(),
		out.GetChosen_reward(), out.GetRejected_reward(), out.GetReward_margin(), out.GetReward_accuracy()}
}

// Step makes one optimizer step.
func (t *Trainer) Step() (Step, error) { return t.StepContext(context.Background()) }

// StepContext is Step, which the context's end ends. The values on the devices are lost then: Resume, or close it.
func (t *Trainer) StepContext(ctx context.Context) (Step, error) {
	c, done := (*handle)(t).use()
	defer done()
	out := raw.NewTsr_step()
	defer raw.DeleteTsr_step(out)
	out.SetStruct_size(raw.Tsr_raw_step_size())
	err := until(ctx, t.Cancel, func() error { return failure(raw.Tsr_trainer_step(c, out)) })
	if err != nil {
		return Step{}, err
	}
	return stepOf(out), nil
}

// SetLR is the rate of the next step and of those after it; below 0 the schedule's again.
func (t *Trainer) SetLR(lr float64) error {
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_set_lr(c, lr) })
}

// Evaluate is the mean loss over the dataset's evaluation part; of own graphs, of the inputs fed.
func (t *Trainer) Evaluate() (float64, error) { return t.EvaluateContext(context.Background()) }

// EvaluateContext is Evaluate, which the context's end ends.
func (t *Trainer) EvaluateContext(ctx context.Context) (float64, error) {
	var loss float64
	err := until(ctx, t.Cancel, func() error {
		return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_evaluate(c, &loss) })
	})
	return loss, err
}

// EvaluateAll is an evaluation with all its numbers, as JSON: loss, perplexity, accuracy (the share of labels that
// are predicted), labels, correct, seconds. The context's end ends it.
func (t *Trainer) EvaluateAll(ctx context.Context) (string, error) {
	var found string
	err := until(ctx, t.Cancel, func() (err error) {
		found, err = (*handle)(t).text(raw.Tsr_trainer_evaluate_all)
		return err
	})
	return found, err
}

// Save replaces the checkpoint folder, at once or not at all.
func (t *Trainer) Save(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_save(c, folder) })
}

// CheckCheckpointFolder says whether Save could write folder now, before the first step.
func CheckCheckpointFolder(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	return call(func() uintptr { return raw.Tsr_trainer_check_folder(folder) })
}

// Resume goes on from a checkpoint. Parameters that did not train are not in it: the model has to be the same.
func (t *Trainer) Resume(folder string) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_resume(c, folder) })
}

// SaveState is Save; with the option optimizer 0 it saves parameters alone.
func (t *Trainer) SaveState(folder string, options Options) error {
	return t.state(folder, options, raw.Tsr_trainer_save_state)
}

// LoadState is Resume; with the option optimizer 0 it takes the parameters alone, of any checkpoint, and the training begins
// with them.
func (t *Trainer) LoadState(folder string, options Options) error {
	return t.state(folder, options, raw.Tsr_trainer_load_state)
}

func (t *Trainer) state(folder string, options Options, call func(c uintptr, folder string, o uintptr) uintptr) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	c, done := (*handle)(t).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return call(c, folder, o) })
}

// CheckpointInfo is JSON: what a checkpoint holds, and the adapters of the model that it is of.
func CheckpointInfo(folder string) (string, error) {
	if err := noNUL("folder", folder); err != nil {
		return "", err
	}
	return text(func(out *uintptr) uintptr { return raw.Tsr_checkpoint_info(folder, out) })
}

// CheckRunPaths says whether a new run may write its result to out and its checkpoints to the folder checkpoint; it goes on from
// resumed. Each may be "". Code Exists: an earlier run's are there.
func CheckRunPaths(out, checkpoint, resumed string) error {
	for name, path := range map[string]string{"out": out, "checkpoint": checkpoint, "resumed": resumed} {
		if err := noNUL(name, path); err != nil {
			return err
		}
	}
	return call(func() uintptr { return raw.Tsr_run_check_paths(out, checkpoint, resumed) })
}

// Store writes the present values of all parameters into model.
func (t *Trainer) Store(model *Model) error {
	m, done := (*handle)(model).use()
	defer done()
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_store(c, m) })
}

// SaveModel writes the .tsr file that Store and then model's Save would write; model stays as it is, and one
// tensor at a time is in host memory. Options: compress.
func (t *Trainer) SaveModel(model *Model, path string, options Options) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	c, done := (*handle)(t).use()
	defer done()
	m, modelDone := (*handle)(model).use()
	defer modelDone()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_trainer_save_model(c, m, path, o) })
}

// Read is a parameter, or the optimizer's state of one: "block.0.q.weight.m".
func (t *Trainer) Read(name string) (*Tensor, error) {
	if err := noNUL("name", name); err != nil {
		return nil, err
	}
	return newTensor((*handle)(t).hold(raw.Tsr_tensor_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_trainer_read(c, name, out)
	}))
}

// Write sets what Read reads; the values are copied.
func (t *Trainer) Write(name string, value *Tensor) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	v, done := (*handle)(value).use()
	defer done()
	return (*handle)(t).call(func(c uintptr) uintptr { return raw.Tsr_trainer_write(c, name, v) })
}

// Report is JSON: plan, memory, communication.
func (t *Trainer) Report() (string, error) { return (*handle)(t).text(raw.Tsr_trainer_report) }

// Trace is what ran since the last call, in Chrome's trace format. It needs the option "trace".
func (t *Trainer) Trace() (string, error) { return (*handle)(t).text(raw.Tsr_trainer_take_trace) }

// Plan is the plan that the trainer runs.
func (t *Trainer) Plan() (*Plan, error) {
	return newPlan((*handle)(t).hold(raw.Tsr_plan_free, raw.Tsr_trainer_plan))
}

// Cancel ends the call in progress on another goroutine with an Error of code Cancelled.
func (t *Trainer) Cancel() {
	c, done := (*handle)(t).use()
	defer done()
	raw.Tsr_trainer_cancel(c)
}
