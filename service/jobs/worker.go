package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/store"
	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

// fullDiskPause is the time between two tries to write what must not be lost.
const fullDiskPause = 2 * time.Second

func (j *Jobs) task(claim *store.Claim) (Task, error) {
	source, err := j.Registry.Source(claim.Model)
	if err != nil {
		return Task{}, &tuning.Failure{Code: "model_not_found", Message: err.Error(), Param: "model"}
	}
	task := Task{Job: claim.Job, Source: source, Training: j.Store.ContentPath(claim.TrainingFile), Folder: j.Store.JobFolder(claim.ID)}
	if claim.ValidationFile != "" {
		task.Validation = j.Store.ContentPath(claim.ValidationFile)
	}
	return task, nil
}

// check validates the files of a job, and queues it.
func (j *Jobs) check(ctx context.Context, claim *store.Claim) {
	task, err := j.task(claim)
	var plan tuning.Plan
	var notes []string
	if err == nil {
		plan, notes, err = j.Runner.Check(ctx, task)
	}
	if err != nil {
		j.end(ctx, claim, err)
		return
	}
	events := []tuning.Event{message("info", "Validated the files: "+claim.TrainingFile)}
	for _, note := range notes {
		events = append(events, message("warn", note))
	}
	events = append(events, message("info", fmt.Sprintf("The job is queued: %d examples, %d steps of %d", plan.Examples, plan.Steps, plan.Batch)))
	if err := j.insist(ctx, func() error { return j.Store.PlanJob(ctx, claim, plan, events) }); err != nil {
		j.logLoss(claim, err)
	}
	awake(j.wakeRun)
}

// run makes a training, or goes on with it.
func (j *Jobs) run(ctx context.Context, claim *store.Claim) {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	j.mutex.Lock()
	j.running[claim.ID] = cancel
	j.mutex.Unlock()
	defer func() {
		j.mutex.Lock()
		delete(j.running, claim.ID)
		delete(j.estimated, claim.ID)
		j.mutex.Unlock()
		if job, err := j.Store.Job(context.Background(), claim.Tenant, claim.ID); err == nil && job.Status.Ended() {
			j.clean(claim.ID)
		}
	}()
	what := "The job started"
	if claim.Started != 0 {
		what = "The job goes on from its last checkpoint"
	}
	// From here on a pause finds the run; one that came before is seen by this write.
	if err := j.insist(own, func() error { return j.Store.StartJob(own, claim, message("info", what)) }); err != nil {
		j.logLoss(claim, err)
		return
	}
	task, err := j.task(claim)
	if err != nil {
		j.end(ctx, claim, err)
		return
	}
	observer := newRecorder(j, claim, task.Source)
	path, err := j.Runner.Run(own, task, observer)
	observer.close(own)
	if err == nil {
		err = j.finish(own, claim, task, path)
	}
	if err != nil && own.Err() == nil {
		j.end(ctx, claim, err)
	}
}

// modelName is OpenAI's: ft:BASE:ORGANIZATION:SUFFIX:ID.
func modelName(job tuning.Job, source tuning.Source) string {
	tenant := job.Tenant
	if tenant == "" {
		tenant = "local"
	}
	return strings.Join([]string{"ft", source.Base, tenant, job.Suffix, job.ID[len(job.ID)-8:]}, ":")
}

func modelOf(job tuning.Job, source tuning.Source, name, path string) store.Model {
	made := store.Model{Name: name, Base: source.Base, Path: path, Tenant: job.Tenant, Job: job.ID, Created: time.Now().Unix()}
	if job.Settings.Full {
		made.Base = ""
	}
	return made
}

// finish serves the result, and then says so: a client that reads the name can use it.
func (j *Jobs) finish(ctx context.Context, claim *store.Claim, task Task, path string) error {
	if err := store.SyncTree(path); err != nil {
		return err
	}
	model := modelOf(claim.Job, task.Source, modelName(claim.Job, task.Source), path)
	if err := fault.Point("job result"); err != nil {
		return err
	}
	if err := j.Registry.Publish(model.Name, model.Base, model.Path); err != nil {
		return err
	}
	if err := fault.Point("job published"); err != nil {
		return err
	}
	return j.insist(ctx, func() error {
		steps, err := j.Store.Metrics(ctx, claim.ID)
		if err != nil {
			return err
		}
		metrics, err := j.Store.Draft()
		if err != nil {
			return err
		}
		defer metrics.Discard()
		if err := writeMetrics(metrics, steps); err != nil {
			return err
		}
		return j.Store.FinishJob(ctx, claim, store.Outcome{Model: model, Metrics: metrics, Name: "step_metrics.csv",
			Tokens: claim.Plan.Tokens * claim.Plan.Epochs,
			Events: []tuning.Event{message("info", "New fine-tuned model created: "+model.Name), message("info", "The job has successfully completed")}})
	})
}

// end ends a job that cannot go on: it fails, or where its checkpoint is worth waiting for, it is paused.
func (j *Jobs) end(ctx context.Context, claim *store.Claim, err error) {
	if ctx.Err() != nil || errors.Is(err, store.ErrFenced) || errors.Is(err, context.Canceled) {
		return
	}
	var paused *ErrPaused
	if store.IsFull(err) {
		err = &ErrPaused{Reason: "the disk is full"}
	}
	var failure *tuning.Failure
	write := func() error { return nil }
	switch {
	case errors.As(err, &paused):
		event := message("error", "The job is paused, and can be resumed: "+paused.Reason)
		write = func() error { return j.Store.PauseJob(ctx, claim, event) }
	default:
		if !errors.As(err, &failure) {
			failure = failureOf(err)
			j.Log("error", "a job failed", map[string]any{"job": claim.ID, "error": err.Error()})
		}
		event := message("error", "The job failed: "+failure.Message)
		write = func() error { return j.Store.FailJob(ctx, claim, *failure, event) }
	}
	if err := j.insist(ctx, write); err != nil {
		j.logLoss(claim, err)
	}
	if failure != nil {
		j.clean(claim.ID)
	}
}

// failureOf an error that says nothing to a user.
func failureOf(err error) *tuning.Failure {
	var known *inference.Error
	if errors.As(err, &known) && known.Kind != inference.Internal {
		return &tuning.Failure{Code: known.Code, Message: known.Message, Param: known.Param}
	}
	return &tuning.Failure{Code: "server_error", Message: "an internal error, which the service's log has"}
}

// insist writes as soon as there is room.
func (j *Jobs) insist(ctx context.Context, write func() error) error {
	for warned := false; ; warned = true {
		err := write()
		if !store.IsFull(err) {
			return err
		}
		if !warned {
			j.Log("error", "the disk is full; jobs wait for room", nil)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fullDiskPause):
		}
	}
}

func (j *Jobs) logLoss(claim *store.Claim, err error) {
	if !errors.Is(err, store.ErrFenced) && !errors.Is(err, context.Canceled) {
		j.Log("error", "a job's state is not written", map[string]any{"job": claim.ID, "error": err.Error()})
	}
}
