package tessera

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"tessera.dev/tessera/raw"
)

// RunEventKind says what a RunEvent tells.
type RunEventKind int32

const (
	RunEnd        RunEventKind = 0 // all is done, or the run was stopped
	RunStep       RunEventKind = 1 // an optimizer step
	RunEvaluation RunEventKind = 2 // an evaluation of held-out data
	RunSample     RunEventKind = 3 // a text of the model
	RunCheckpoint RunEventKind = 4 // a checkpoint is whole
	RunProgress   RunEventKind = 5 // a slice of the result is written
	RunNote       RunEventKind = 6 // why a run ends early; what a file cannot hold
	RunWarning    RunEventKind = 7 // what was not written, and is tried again
)

// RunEvent is what happened in a run.
type RunEvent struct {
	Kind    RunEventKind
	Step    int64   // steps that the trainer has made
	Loss    float64 // with RunStep and RunEvaluation
	Details string  // JSON object, which the header describes at TSR_RUN_*
}

// Run is a training run: a training from its first step to its result, with evaluations, samples, checkpoints, early
// stopping, metrics and report, as `tessera train` makes it:
//
//	run, err := tessera.NewRunContext(ctx, trainer, options)
//	for run.Next() {
//		event := run.Event()
//		...
//	}
//	if err := run.Err(); err != nil { ... }
//
// One goroutine at a time uses a run; between two calls it may use the trainer. Only Stop may come from any other.
type Run struct {
	handle  *handle
	ctx     context.Context
	event   RunEvent
	outcome string
	err     error
}

// NewRun resumes the trainer where option resume says so, and opens the files of the run. The header lists the options under
// "training run".
func NewRun(t *Trainer, options Options) (*Run, error) {
	return NewRunContext(context.Background(), t, options)
}

// NewRunContext is NewRun. The context's end stops the run as Stop does, and is then the error of its end.
func NewRunContext(ctx context.Context, t *Trainer, options Options) (*Run, error) {
	var h *handle
	err := until(ctx, t.Cancel, func() (err error) {
		h, err = (*handle)(t).holdWith(raw.Tsr_run_free, options, raw.Tsr_run_new)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Run{handle: h, ctx: ctx}, nil
}

// CheckRun says whether a run with these options could begin, before long work. Model and dataset may be nil, and are not
// looked at then.
func CheckRun(options Options, model *Model, dataset *Dataset) error {
	m, modelDone, err := (*handle)(model).optional("model")
	defer modelDone()
	if err != nil {
		return err
	}
	d, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	return options.with(func(o uintptr) uintptr { return raw.Tsr_run_check(o, m, d) })
}

// ResumedFolder is the checkpoint's folder that option resume means by name: the folder itself, or that next to a model or
// adapters. ErrNotFound where there is none.
func ResumedFolder(name string) (string, error) {
	if err := noNUL("name", name); err != nil {
		return "", err
	}
	if err := ready(); err != nil {
		return "", err
	}
	folder, _, err := shortText(func(buffer []byte, size *uint64) uintptr {
		return raw.Tsr_run_resumed_folder(name, buffer, size)
	})
	return folder, err
}

func (r *Run) inner() *handle {
	if r == nil {
		return nil
	}
	return r.handle
}

// Close frees it, once the checkpoint that is being written is whole; see the package.
func (r *Run) Close() { r.inner().close() }

// call is a function that goes on with the run, until the context stops it.
func (r *Run) call(function func(c uintptr) uintptr) error {
	ctx := r.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	begun := false
	err := until(ctx, r.Stop, func() error {
		begun = true
		return r.handle.call(function)
	})
	if !begun { // the context has ended: the run still saves a checkpoint
		r.Stop()
		err = r.handle.call(function)
	}
	if errors.Is(err, ErrCancelled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Next goes on until the next event. It is false at the end of the run, and after an error; then another Next tries again
// what failed.
func (r *Run) Next() bool {
	if r == nil {
		return false
	}
	found := raw.NewTsr_run_event()
	defer raw.DeleteTsr_run_event(found)
	found.SetStruct_size(raw.Tsr_raw_run_event_size())
	r.event = RunEvent{}
	if r.err = r.call(func(c uintptr) uintptr { return raw.Tsr_run_next(c, found) }); r.err != nil {
		return false
	}
	r.event = RunEvent{RunEventKind(found.GetKind()), found.GetStep(), found.GetLoss(), found.GetDetails()}
	if r.event.Kind != RunEnd {
		return true
	}
	r.err = r.end()
	return false
}

// end reads the outcome. Its error is the context's, where that ended the run.
func (r *Run) end() error {
	var details struct{ Outcome string }
	if err := json.Unmarshal([]byte(r.event.Details), &details); err != nil {
		return &Error{Code: Internal, Message: err.Error()}
	}
	r.outcome = details.Outcome
	if r.ctx != nil && strings.HasPrefix(r.outcome, "stopped at") {
		return r.ctx.Err()
	}
	return nil
}

// Event is what the last Next found; of kind RunEnd once that was false.
func (r *Run) Event() RunEvent {
	if r == nil {
		return RunEvent{}
	}
	return r.event
}

// Err is the error that made the last Next false; nil at the end of the run, except where the context stopped it.
func (r *Run) Err() error {
	if r == nil {
		return refuse("the run is nil, wanted one of NewRun")
	}
	return r.err
}

// Outcome says how the run ended: "finished", "stopped early at step 60" by patience, or "stopped at step 60" by Stop; ""
// while it goes on.
func (r *Run) Outcome() string {
	if r == nil {
		return ""
	}
	return r.outcome
}

// Finish goes on to the end of the run.
func (r *Run) Finish() error {
	if r == nil {
		return r.Err()
	}
	if r.err = r.call(raw.Tsr_run_finish); r.err == nil {
		r.Next()
	}
	return r.err
}

// Stop lets the run save a checkpoint after the step in progress and end, without a result. Any goroutine.
func (r *Run) Stop() {
	c, done := r.inner().use()
	defer done()
	raw.Tsr_run_stop(c)
}

// Evaluate is an evaluation now, which counts as that of this step: JSON as that of Trainer.EvaluateAll.
func (r *Run) Evaluate() (string, error) { return r.inner().text(raw.Tsr_run_evaluate) }

// Save makes a checkpoint now, whole when it returns.
func (r *Run) Save() error { return r.inner().call(raw.Tsr_run_save) }

// LoadBest loads the values of the best step into the trainer, once the run has ended. ErrNotFound where it has no checkpoint of
// that step.
func (r *Run) LoadBest() error { return r.inner().call(raw.Tsr_run_load_best) }

// Report is JSON: steps, losses, evaluations, the best step, checkpoints, the result.
func (r *Run) Report() (string, error) { return r.inner().text(raw.Tsr_run_report) }
