package tessera

import (
	"math"

	"tessera.dev/tessera/raw"
)

// RunLog is the course of a training run, in files: JSON lines, TensorBoard's events, an HTML page. Step and Evaluation
// use the trainer, which no other goroutine may use meanwhile.
type RunLog handle

// NewRunLog opens the files that the options name: metrics, tensorboard, report; report_seconds, steps, model, data,
// settings. Where a trainer resumed, later steps in the files are dropped.
func NewRunLog(t *Trainer, options Options) (*RunLog, error) {
	h, err := (*handle)(t).holdWith(raw.Tsr_run_log_free, options, raw.Tsr_run_log_new)
	return (*RunLog)(h), err
}

// Close frees it; a report whose run is not finished says that it stopped.
func (l *RunLog) Close() { (*handle)(l).close() }

// Step adds the trainer's last step: once after each. Later calls log for that step.
func (l *RunLog) Step() error {
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_step(c) })
}

// Evaluation adds a held-out loss, nats a token.
func (l *RunLog) Evaluation(loss float64) error { return l.EvaluationWithAccuracy(loss, math.NaN()) }

// EvaluationWithAccuracy adds a held-out loss, and the share of tokens that are predicted; NaN where it is not known.
func (l *RunLog) EvaluationWithAccuracy(loss, accuracy float64) error {
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_evaluation(c, loss, accuracy) })
}

// Value adds any other number by its name: "rewards/margin".
func (l *RunLog) Value(name string, value float64) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_value(c, name, value) })
}

// Sample adds a prompt and the model's text after it; the first 64 KiB of each.
func (l *RunLog) Sample(prompt, text string) error {
	if err := noNUL("prompt", prompt); err != nil {
		return err
	}
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_sample(c, prompt, text) })
}

// Checkpoint adds a checkpoint that was written.
func (l *RunLog) Checkpoint(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_checkpoint(c, path) })
}

// Summary is JSON: the last and the best losses, speed, the time that is left, and the physical limit of a step.
func (l *RunLog) Summary() (string, error) { return (*handle)(l).text(raw.Tsr_run_log_summary) }

// Finish completes the files. outcome says how the run ended; "" is "finished".
func (l *RunLog) Finish(outcome string) error {
	if err := noNUL("outcome", outcome); err != nil {
		return err
	}
	return (*handle)(l).call(func(c uintptr) uintptr { return raw.Tsr_run_log_finish(c, outcome) })
}
