package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"tessera.dev/service/store"
	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

const (
	flushTime  = time.Second
	flushCount = 256
	mostUnsent = 1 << 16 // events that wait for room on a full disk
)

// recorder writes the events of a run. Those of steps are collected, since each write is synced.
type recorder struct {
	jobs    *Jobs
	claim   *store.Claim
	source  tuning.Source
	last    *tuning.Measures // whose evaluation may still come
	pending []tuning.Event
	flushed time.Time
}

func newRecorder(j *Jobs, claim *store.Claim, source tuning.Source) *recorder {
	return &recorder{jobs: j, claim: claim, source: source, flushed: time.Now()}
}

func (r *recorder) Past(steps []tuning.Measures) {
	for _, step := range steps {
		r.add(r.metrics(step))
	}
	r.flush()
}

func (r *recorder) Step(measures tuning.Measures, left float64) {
	_ = fault.Point("job step")
	r.settle()
	r.last = &measures
	r.jobs.mutex.Lock()
	r.jobs.estimated[r.claim.ID] = time.Now().Add(time.Duration(left * float64(time.Second)))
	r.jobs.mutex.Unlock()
}

func (r *recorder) Evaluation(measures tuning.Measures) {
	if r.last != nil && r.last.Step == measures.Step {
		r.last.ValidLoss, r.last.ValidAccuracy = measures.ValidLoss, measures.ValidAccuracy
	}
}

func (r *recorder) Note(level, text string) { r.add(message(level, text)) }

// settle makes the event of the last step.
func (r *recorder) settle() {
	if r.last != nil {
		r.add(r.metrics(*r.last))
		r.last = nil
	}
}

func (r *recorder) add(event tuning.Event) {
	if len(r.pending) < mostUnsent {
		r.pending = append(r.pending, event)
	}
	if len(r.pending) >= flushCount || time.Since(r.flushed) > flushTime {
		r.flush()
	}
}

func (r *recorder) flush() {
	if err := r.write(); err != nil {
		r.jobs.Log("warning", "events of a job wait", map[string]any{"job": r.claim.ID, "error": err.Error()})
	}
}

func (r *recorder) write() error {
	r.flushed = time.Now()
	if len(r.pending) == 0 {
		return nil
	}
	err := r.jobs.Store.AddEvents(context.Background(), r.claim.ID, r.pending)
	if err == nil {
		r.pending = nil
	}
	return err
}

// close writes what is left, once there is room.
func (r *recorder) close(ctx context.Context) {
	r.settle()
	if err := r.jobs.insist(ctx, r.write); err != nil {
		r.jobs.logLoss(r.claim, err)
	}
}

// Epoch serves a model of an epoch's end.
func (r *recorder) Epoch(measures tuning.Measures, path string) error {
	if r.last != nil && r.last.Step == measures.Step {
		measures = *r.last
	}
	if err := store.SyncTree(path); err != nil {
		return err
	}
	name := fmt.Sprintf("%s:ckpt-step-%d", modelName(r.claim.Job, r.source), measures.Step)
	model := modelOf(r.claim.Job, r.source, name, path)
	if err := r.jobs.Registry.Publish(model.Name, model.Base, model.Path); err != nil {
		return err
	}
	return r.jobs.Store.AddCheckpoint(context.Background(), tuning.Checkpoint{ID: tuning.NewID("ftckpt_"), Job: r.claim.ID,
		Created: time.Now().Unix(), Model: name, Measures: measures}, model)
}

// metrics is the event of a step.
func (r *recorder) metrics(step tuning.Measures) tuning.Event {
	data := map[string]any{"step": step.Step, "total_steps": r.claim.Plan.Steps}
	text := fmt.Sprintf("Step %d/%d: training loss=%.4g", step.Step, r.claim.Plan.Steps, step.Loss)
	for _, each := range []struct {
		name  string
		value float64
	}{{"train_loss", step.Loss}, {"train_mean_token_accuracy", step.Accuracy}, {"valid_loss", step.ValidLoss},
		{"valid_mean_token_accuracy", step.ValidAccuracy}} {
		if !math.IsNaN(each.value) && !math.IsInf(each.value, 0) {
			data[each.name] = each.value
		}
	}
	if !math.IsNaN(step.ValidLoss) {
		text += fmt.Sprintf(", validation loss=%.4g", step.ValidLoss)
	}
	event := message("info", text)
	event.Kind, event.Step = "metrics", step.Step
	event.Data, _ = json.Marshal(data)
	return event
}
