package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/tessera"
)

// runTrainer is a trainer of six steps, with held-out rows, and its model and data.
func runTrainer(t *testing.T) (*tessera.Trainer, *tessera.Model, *tessera.Dataset) {
	t.Helper()
	model := newModel(t)
	data := must2(tessera.NewDataset(prose, must2(model.Tokenizer()), tessera.Options{"seq": 16, "eval_fraction": 0.1}))
	return must2(tessera.NewTrainer(newRuntime(t), model, data, tessera.Options{"batch": 4, "steps": 6, "lr": 1e-3})), model, data
}

// runOptions write to a folder, with evaluations and checkpoints every second step.
func runOptions(out string) tessera.Options {
	return tessera.Options{"out": out, "eval_every": 2, "checkpoint_every": 2, "keep_best": true, "samples": "A",
		"sample_tokens": 2, "metrics": out + ".jsonl"}
}

// events are the kinds of a run's events and their steps, of neighbours of one kind and step one alone, to its end or an error.
func events(run *tessera.Run) string {
	var all []string
	for run.Next() {
		event := run.Event()
		name := [...]string{"end", "step", "evaluation", "sample", "checkpoint", "progress", "note", "warning"}[event.Kind]
		if text := fmt.Sprint(name, " ", event.Step); len(all) == 0 || all[len(all)-1] != text {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

func runReport(t *testing.T, run *tessera.Run) (report struct {
	Step, Steps int
	Saved       int `json:"saved_step"`
	OutStep     int `json:"out_step"`
	Losses      []float64
	Evaluations []struct{ Loss float64 }
	Best        float64 `json:"best_loss"`
	Checkpoint  string
	Outcome     string
}) {
	t.Helper()
	check(t, json.Unmarshal([]byte(must2(run.Report())), &report))
	return report
}

func Test_runs_tell_what_happens_in_order_and_write_the_best(t *testing.T) {
	trainer, model, data := runTrainer(t)
	out := filepath.Join(t.TempDir(), "tuned.tsr")
	options := runOptions(out)
	check(t, tessera.CheckRun(options, model, data))
	check(t, tessera.CheckOptions("run", options))
	run := must2(tessera.NewRun(trainer, options))
	defer run.Close()
	trainer.Close() // the run keeps it
	wanted(t, "outcome before", run.Outcome(), "")
	// A checkpoint is whole at the latest before the next one is begun.
	wanted(t, "events", events(run), "step 1, step 2, evaluation 2, sample 2, step 3, step 4, evaluation 4, sample 4, checkpoint 2, "+
		"step 5, step 6, evaluation 6, sample 6, checkpoint 4, checkpoint 6, progress 6")
	check(t, run.Err())
	wanted(t, "outcome", run.Outcome(), "finished")
	wanted(t, "last event", run.Event().Kind, tessera.RunEnd)
	wanted(t, "next", run.Next(), false)
	report := runReport(t, run)
	wanted(t, "steps", fmt.Sprint(report.Step, report.Steps, report.Saved, report.OutStep), "6 6 6 6")
	wanted(t, "rows", fmt.Sprint(len(report.Losses), len(report.Evaluations)), "6 3")
	wanted(t, "report", fmt.Sprint(report.Checkpoint, report.Outcome), fmt.Sprint(out+".checkpoint", "finished"))
	wanted(t, "best", report.Best, report.Evaluations[2].Loss)
	wanted(t, "evaluation", strings.Contains(must2(run.Evaluate()), `"perplexity":`), true)
	check(t, run.LoadBest())
	wanted(t, "folder", must2(tessera.ResumedFolder(out)), out+".checkpoint")
	must2(tessera.LoadModel(out))
	wanted(t, "log", strings.Count(string(must2(os.ReadFile(out+".jsonl"))), "\n"), 1+6+3+3+3+1)
}

func Test_stopped_runs_leave_a_checkpoint_from_which_another_goes_on(t *testing.T) {
	folder := t.TempDir()
	whole := filepath.Join(folder, "whole.tsr")
	trainer, _, _ := runTrainer(t)
	run := must2(tessera.NewRun(trainer, runOptions(whole)))
	check(t, run.Finish())
	wanted(t, "outcome", run.Outcome(), "finished")
	run.Close()

	out := filepath.Join(folder, "tuned.tsr")
	options := runOptions(out)
	trainer, _, _ = runTrainer(t)
	run = must2(tessera.NewRun(trainer, options))
	wanted(t, "first", run.Next(), true)
	check(t, run.Save())
	wanted(t, "saved", runReport(t, run).Saved, 1)
	run.Stop()
	wanted(t, "rest", events(run), "checkpoint 1")
	check(t, run.Err())
	wanted(t, "outcome", run.Outcome(), "stopped at step 1")
	run.Close()
	_, err := os.Stat(out)
	wanted(t, "no result", os.IsNotExist(err), true)
	refused(t, second(tessera.NewRun(trainer, options)), tessera.ErrExists, "step 1")

	options["resume"] = out
	trainer, _, _ = runTrainer(t)
	ctx, cancel := context.WithCancel(context.Background())
	run = must2(tessera.NewRunContext(ctx, trainer, options))
	wanted(t, "next", run.Next(), true)
	wanted(t, "step", run.Event().Step, 2)
	cancel()
	wanted(t, "rest", events(run), "evaluation 2, sample 2, checkpoint 2")
	wanted(t, "error", errors.Is(run.Err(), context.Canceled), true)
	wanted(t, "outcome", run.Outcome(), "stopped at step 2")
	run.Close()
	wanted(t, "none with an ended context", errors.Is(second(tessera.NewRunContext(ctx, trainer, options)), context.Canceled), true)

	trainer, _, _ = runTrainer(t)
	run = must2(tessera.NewRun(trainer, options))
	check(t, run.Finish())
	wanted(t, "losses", len(runReport(t, run).Losses), 4)
	run.Close()
	wanted(t, "the same bits", string(must2(os.ReadFile(out))) == string(must2(os.ReadFile(whole))), true)
}

func Test_runs_that_cannot_be_are_refused(t *testing.T) {
	trainer, model, data := runTrainer(t)
	none := tessera.Options{"checkpoint_every": 0}
	for _, make := range []func(tessera.Options) error{
		func(o tessera.Options) error { return second(tessera.NewRun(trainer, o)) },
		func(o tessera.Options) error { return tessera.CheckRun(o, model, data) },
	} {
		refused(t, make(tessera.Options{"evaluate_every": 1}), tessera.ErrInvalidArgument, "evaluate_every")
		refused(t, make(tessera.Options{"patience": 2}), tessera.ErrInvalidArgument, "eval_every")
		refused(t, make(tessera.Options{"merge": true, "out": "a.tsr"}), tessera.ErrInvalidArgument, "merge")
		refused(t, make(tessera.Options{"resume": "nowhere"}), tessera.ErrNotFound, "nowhere")
	}
	check(t, tessera.CheckRun(nil, nil, nil))
	run := must2(tessera.NewRun(trainer, none))
	refused(t, run.Save(), tessera.ErrFailedPrecondition, "no checkpoints")
	refused(t, run.LoadBest(), tessera.ErrFailedPrecondition, "goes on")
	wanted(t, "a warning first", fmt.Sprint(run.Next(), run.Event().Kind == tessera.RunWarning), "true true")
	wanted(t, "its text", strings.Contains(run.Event().Details, "nothing of this run is kept"), true)
	check(t, run.Finish())
	refused(t, run.LoadBest(), tessera.ErrNotFound, "keep_best")
	refused(t, second(tessera.ResumedFolder("nowhere")), tessera.ErrNotFound, "nowhere")
	refused(t, second(tessera.ResumedFolder("a\x00b")), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(tessera.NewRun(nil, nil)), tessera.ErrInvalidArgument, "trainer")
	data.Close()
	refused(t, tessera.CheckRun(none, nil, data), tessera.ErrInvalidArgument, "dataset is closed")

	run.Close()
	for _, gone := range []*tessera.Run{nil, {}, run} {
		wanted(t, "next", gone.Next(), false)
		refused(t, gone.Err(), tessera.ErrInvalidArgument, "run is")
		refused(t, gone.Finish(), tessera.ErrInvalidArgument, "run is")
		refused(t, gone.Save(), tessera.ErrInvalidArgument, "run")
		refused(t, second(gone.Report()), tessera.ErrInvalidArgument, "run")
		gone.Stop()
		gone.Close()
	}
}
