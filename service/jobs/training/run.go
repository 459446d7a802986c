package training

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"tessera.dev/service/jobs"
	"tessera.dev/service/tuning"
	"tessera.dev/tessera"
)

const (
	checkpointsOfRun = 10               // in addition to those at the ends of epochs
	saveTime         = 10 * time.Minute // most time between two checkpoints
	epochModels      = 3                // the last epochs whose models are kept
	warmupShare      = 10
	mostWarmup       = 100
)

// training is a run in progress.
type training struct {
	task     jobs.Task
	observer jobs.Observer
	model    *tessera.Model
	trainer  *tessera.Trainer
	run      *tessera.Run
	last     tuning.Measures
	saved    time.Time
}

// Run makes the training, or goes on with it where its folder has a checkpoint.
func (r *Runner) Run(ctx context.Context, task jobs.Task, observer jobs.Observer) (string, error) {
	if err := os.MkdirAll(task.Folder, 0o700); err != nil {
		return "", err
	}
	t := &training{task: task, observer: observer, saved: time.Now()}
	defer t.close()
	if err := t.prepare(ctx, r); err != nil {
		return "", said(err, task, "training_failed", "training_file")
	}
	if err := t.begin(ctx); err != nil {
		return "", said(err, task, "training_failed", "")
	}
	for t.run.Next() {
		if err := t.tell(ctx, t.run.Event()); err != nil {
			return "", said(err, task, "training_failed", "")
		}
	}
	if err := t.run.Err(); err != nil {
		return "", said(err, task, "training_failed", "")
	}
	return t.result(), nil
}

func (t *training) close() {
	t.run.Close()
	t.trainer.Close()
	t.model.Close()
}

func (t *training) path(name string) string { return filepath.Join(t.task.Folder, name) }

func (t *training) result() string {
	if t.task.Settings.Full {
		return t.path("model.tsr")
	}
	return t.path("adapter")
}

// prepare makes model, data and trainer, the same each time.
func (t *training) prepare(ctx context.Context, r *Runner) error {
	base, tokenizer, template, err := open(t.task)
	if err != nil {
		return err
	}
	plan := t.task.Plan
	t.model = base
	if !t.task.Settings.Full {
		defer base.Close()
		if t.model, err = withAdapters(base, t.task); err != nil {
			return err
		}
	}
	options := dataOptions(t.task, template, plan.Context)
	if t.task.Method == tuning.Preference { // what the reference says of the rows is computed once
		options["cache"] = t.path("cache")
	}
	data, err := tessera.OpenDatasetContext(ctx, t.task.Training, tokenizer, options, nil)
	if err != nil {
		return said(err, t.task, "invalid_training_file", "training_file")
	}
	defer data.Close()
	t.trainer, err = tessera.PrepareTrainer(ctx, r.runtime, t.model, data, r.trainerOptions(t.task), nil)
	return err
}

// withAdapters are new ones, or those that the model has already.
func withAdapters(base *tessera.Model, task jobs.Task) (*tessera.Model, error) {
	if task.Source.Adapter != "" {
		return base.LoadAdapters(task.Source.Adapter, nil)
	}
	return base.WithAdapters(tessera.Options{"rank": task.Plan.Rank, "alpha": task.Plan.Alpha})
}

func (r *Runner) trainerOptions(task jobs.Task) tessera.Options {
	plan := task.Plan
	options := tessera.Options{"devices": r.config.Devices, "batch": plan.Batch, "steps": plan.Steps, "lr": plan.Rate * plan.Multiplier,
		"schedule": "linear", "warmup": clamp(plan.Steps/warmupShare, 0, mostWarmup), "seed": task.Seed}
	if r.config.Parallel != "" {
		options["parallel"] = r.config.Parallel
	}
	if task.Method == tuning.Preference {
		options["loss"], options["beta"] = "dpo", plan.Beta
	}
	memory := r.config.Memory
	if task.Memory > 0 && (memory == 0 || task.Memory < memory) {
		memory = task.Memory
	}
	if memory > 0 {
		options["memory_limit"] = memory
	}
	return options
}

// begin opens the run, and tells what earlier ones did.
func (t *training) begin(ctx context.Context) error {
	plan := t.task.Plan
	every := (plan.Steps + checkpointsOfRun - 1) / checkpointsOfRun
	options := tessera.Options{"out": t.result(), "checkpoint": t.path("checkpoint"), "overwrite": true,
		"checkpoint_every": clamp(every, 1, plan.StepsPerEpoch), "metrics": t.path("metrics.jsonl")}
	if t.task.Validation != "" {
		options["eval_every"] = every
	}
	resumed, err := tessera.ResumedFolder(t.path("checkpoint"))
	if err == nil {
		options["resume"] = resumed
	} else if !errors.Is(err, tessera.ErrNotFound) {
		return err
	}
	if t.run, err = tessera.NewRunContext(ctx, t.trainer, options); err != nil {
		return err
	}
	if resumed == "" {
		return nil
	}
	past, err := readLog(t.path("metrics.jsonl"))
	if err != nil {
		return err
	}
	t.observer.Past(past)
	if len(past) > 0 {
		t.last = past[len(past)-1]
		return t.epoch(ctx, t.last)
	}
	return nil
}

// tell passes an event on.
func (t *training) tell(ctx context.Context, event tessera.RunEvent) error {
	switch event.Kind {
	case tessera.RunStep:
		var details struct {
			Accuracy *float64 `json:"reward_accuracy"`
			Left     float64  `json:"seconds_left"`
		}
		if err := json.Unmarshal([]byte(event.Details), &details); err != nil {
			return err
		}
		nan := math.NaN()
		t.last = tuning.Measures{Step: event.Step, Loss: event.Loss, Accuracy: nan, ValidLoss: nan, ValidAccuracy: nan}
		if details.Accuracy != nil && t.task.Method == tuning.Preference {
			t.last.Accuracy = *details.Accuracy
		}
		t.observer.Step(t.last, details.Left)
		return t.epoch(ctx, t.last)
	case tessera.RunEvaluation:
		var details struct{ Accuracy *float64 }
		if err := json.Unmarshal([]byte(event.Details), &details); err != nil {
			return err
		}
		measures := tuning.Measures{Step: event.Step, ValidLoss: event.Loss, ValidAccuracy: math.NaN()}
		if details.Accuracy != nil {
			measures.ValidAccuracy = *details.Accuracy
		}
		t.observer.Evaluation(measures)
	case tessera.RunCheckpoint:
		t.saved = time.Now()
	case tessera.RunNote, tessera.RunWarning:
		t.note(event)
	}
	if time.Since(t.saved) > saveTime && event.Kind == tessera.RunStep {
		t.saved = time.Now()
		return t.run.Save()
	}
	return nil
}

func (t *training) note(event tessera.RunEvent) {
	level := "info"
	if event.Kind == tessera.RunWarning {
		level = "warn"
	}
	var details struct{ Message string }
	if err := json.Unmarshal([]byte(event.Details), &details); err != nil || details.Message == "" {
		return
	}
	var shown *tuning.Failure
	clean := said(&tessera.Error{Code: tessera.InvalidArgument, Message: details.Message}, t.task, "", "")
	if errors.As(clean, &shown) {
		t.observer.Note(level, shown.Message)
	}
}

// epoch writes the adapters at the ends of the last epochs, except of the very last, whose model is the result.
func (t *training) epoch(ctx context.Context, measures tuning.Measures) error {
	plan := t.task.Plan
	if measures.Step%plan.StepsPerEpoch != 0 || measures.Step == plan.Steps || t.task.Settings.Full ||
		measures.Step/plan.StepsPerEpoch+epochModels <= plan.Epochs {
		return nil
	}
	path := t.path("step-" + strconv.FormatInt(measures.Step, 10))
	if _, err := os.Stat(path); err == nil {
		return t.observer.Epoch(measures, path)
	}
	part := path + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := t.trainer.Store(t.model); err != nil {
		return err
	}
	if _, err := t.model.Export(ctx, part, tessera.Options{"format": "peft"}, nil); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return t.observer.Epoch(measures, path)
}
