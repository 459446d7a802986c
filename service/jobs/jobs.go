// Package jobs makes trainings: a queue in the store, one worker, and what the clients of OpenAI's API see of it. How a training
// is made it does not know: package training, below this one, does so with the library.
package jobs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/store"
	"tessera.dev/service/tuning"
)

// expiryTime is the time between two looks for files whose time has come.
const expiryTime = 10 * time.Minute

// Task is a job for a runner.
type Task struct {
	tuning.Job
	Source     tuning.Source
	Training   string // path of the training file
	Validation string // likewise; "" for none
	Folder     string // what the runner writes is in it, and is found there by the next one
}

// Runner checks and makes trainings. An error that is a *tuning.Failure ends the job, ErrPaused pauses it; the context's end is
// a pause too, or the end of the process.
type Runner interface {
	// Check reads the files, and makes a plan of what was asked for. notes are for the user.
	Check(ctx context.Context, task Task) (plan tuning.Plan, notes []string, err error)
	// Run begins, or goes on from what the folder has, and gives the path of the result's files.
	Run(ctx context.Context, task Task, observer Observer) (path string, err error)
}

// Observer is told what happens in a run, by one goroutine.
type Observer interface {
	// Past is the steps of earlier runs, up to the one that this run goes on from.
	Past(steps []tuning.Measures)
	Step(measures tuning.Measures, secondsLeft float64)
	// Evaluation completes the measures of the last step.
	Evaluation(measures tuning.Measures)
	// Epoch is a model of an epoch's end, at a path.
	Epoch(measures tuning.Measures, path string) error
	Note(level, message string)
}

// ErrPaused wraps errors after which a job goes on by itself from its last checkpoint, once somebody resumes it.
type ErrPaused struct{ Reason string }

func (e *ErrPaused) Error() string { return e.Reason }

// Config of a service of jobs.
type Config struct {
	Store    *store.Store
	Registry tuning.Registry
	Runner   Runner
	Log      func(level, message string, fields map[string]any) // nil: none
	// Most jobs of a tenant that have not ended; 0: 100.
	Most int64
}

// Jobs is the service. Any goroutine.
type Jobs struct {
	Config
	wakeCheck, wakeRun chan struct{}
	stop               context.CancelFunc
	done               sync.WaitGroup

	mutex     sync.Mutex
	running   map[string]context.CancelFunc
	estimated map[string]time.Time
}

// New makes the service; Start begins its work.
func New(config Config) *Jobs {
	if config.Log == nil {
		config.Log = func(string, string, map[string]any) {}
	}
	if config.Most == 0 {
		config.Most = 100
	}
	return &Jobs{Config: config, wakeCheck: make(chan struct{}, 1), wakeRun: make(chan struct{}, 1),
		running: map[string]context.CancelFunc{}, estimated: map[string]time.Time{}, stop: func() {}}
}

// Start publishes the models of earlier jobs, and goes on with jobs that have not ended.
func (j *Jobs) Start() error {
	ctx, stop := context.WithCancel(context.Background())
	j.stop = stop
	models, err := j.Store.Models(ctx)
	if err != nil {
		return err
	}
	for _, model := range models {
		if err := j.Registry.Publish(model.Name, model.Base, model.Path); err != nil {
			j.Log("warning", "a tuned model is not served", map[string]any{"model": model.Name, "error": err.Error()})
		}
	}
	if err := j.Store.RecoverJobs(ctx); err != nil {
		return err
	}
	ended, err := j.Store.EndedJobs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ended {
		j.clean(id)
	}
	j.done.Add(3)
	go j.expire(ctx)
	go j.work(ctx, j.wakeCheck, tuning.Validating, tuning.Validating, j.check)
	go j.work(ctx, j.wakeRun, tuning.Queued, tuning.Running, j.run)
	return nil
}

// Close stops the job that runs at its next step, with a checkpoint, from which the next process goes on.
func (j *Jobs) Close() {
	j.stop()
	j.done.Wait()
}

// work claims jobs and does them, one after another.
func (j *Jobs) work(ctx context.Context, wake chan struct{}, from, to tuning.Status, do func(context.Context, *store.Claim)) {
	defer j.done.Done()
	for ctx.Err() == nil {
		claim, err := j.Store.ClaimJob(ctx, from, to)
		if err != nil && ctx.Err() == nil {
			j.Log("error", "no job can be claimed", map[string]any{"error": err.Error()})
		}
		if claim != nil {
			do(ctx, claim)
			continue
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(10 * time.Second):
		}
	}
}

// expire deletes files whose time has come, now and then.
func (j *Jobs) expire(ctx context.Context) {
	defer j.done.Done()
	for ctx.Err() == nil {
		if err := j.Store.Expire(ctx); err != nil && ctx.Err() == nil {
			j.Log("warning", "files whose time has come stay", map[string]any{"error": err.Error()})
		}
		select {
		case <-ctx.Done():
		case <-time.After(expiryTime):
		}
	}
}

func awake(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// clean removes what a job that has ended needs no more; models stay.
func (j *Jobs) clean(id string) {
	for _, name := range []string{"checkpoint", "checkpoint.lock", "cache", "metrics.jsonl"} {
		if err := os.RemoveAll(filepath.Join(j.Store.JobFolder(id), name)); err != nil {
			j.Log("warning", "a file of a job stays", map[string]any{"job": id, "error": err.Error()})
		}
	}
}

// Create makes a job. It is on the disk when this returns.
func (j *Jobs) Create(ctx context.Context, order tuning.Order, once tuning.Once) (tuning.Job, error) {
	if _, err := j.Registry.Source(order.Model); err != nil {
		return tuning.Job{}, err
	}
	count, err := j.Store.CountJobs(ctx, order.Tenant)
	if err != nil {
		return tuning.Job{}, err
	}
	if count >= j.Most {
		return tuning.Job{}, &inference.Error{Kind: inference.Limited, Code: "too_many_jobs", RetryAfter: 60,
			Message: fmt.Sprintf("%d jobs have not ended, and more may not wait: cancel some, or ask again later", count)}
	}
	if order.Seed < 0 {
		var bits [4]byte
		if _, err := rand.Read(bits[:]); err != nil {
			return tuning.Job{}, err
		}
		order.Seed = int64(binary.LittleEndian.Uint32(bits[:]) >> 1)
	}
	job := tuning.Job{ID: tuning.NewID("ftjob-"), Order: order, Status: tuning.Validating, Created: time.Now().Unix()}
	id, err := j.Store.InsertJob(ctx, job, once, message("info", "Created fine-tuning job: "+job.ID))
	if err != nil {
		return tuning.Job{}, err
	}
	awake(j.wakeCheck)
	return j.Job(ctx, order.Tenant, id)
}

// Job is one.
func (j *Jobs) Job(ctx context.Context, tenant, id string) (tuning.Job, error) {
	job, err := j.Store.Job(ctx, tenant, id)
	return j.estimate(job), err
}

// Jobs lists them, the newest first.
func (j *Jobs) Jobs(ctx context.Context, tenant string, query tuning.JobQuery) ([]tuning.Job, bool, error) {
	jobs, more, err := j.Store.Jobs(ctx, tenant, query)
	for i := range jobs {
		jobs[i] = j.estimate(jobs[i])
	}
	return jobs, more, err
}

func (j *Jobs) estimate(job tuning.Job) tuning.Job {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if end, known := j.estimated[job.ID]; known && job.Status == tuning.Running {
		job.Estimated = end.Unix()
	}
	return job
}

// Events lists those of a job, the newest first.
func (j *Jobs) Events(ctx context.Context, tenant, id string, page tuning.Page) ([]tuning.Event, bool, error) {
	if _, err := j.Store.Job(ctx, tenant, id); err != nil {
		return nil, false, err
	}
	return j.Store.Events(ctx, id, page)
}

// Checkpoints lists those of a job, the newest first.
func (j *Jobs) Checkpoints(ctx context.Context, tenant, id string, page tuning.Page) ([]tuning.Checkpoint, bool, error) {
	if _, err := j.Store.Job(ctx, tenant, id); err != nil {
		return nil, false, err
	}
	return j.Store.Checkpoints(ctx, id, page)
}

// Cancel ends a job.
func (j *Jobs) Cancel(ctx context.Context, tenant, id string) (tuning.Job, error) {
	from := []tuning.Status{tuning.Validating, tuning.Queued, tuning.Running, tuning.Paused}
	job, err := j.move(ctx, tenant, id, from, tuning.Cancelled, "The job was cancelled")
	if err == nil && !j.interrupt(id) {
		j.clean(id)
	}
	return job, err
}

// Pause stops a job at its next step, with a checkpoint.
func (j *Jobs) Pause(ctx context.Context, tenant, id string) (tuning.Job, error) {
	job, err := j.move(ctx, tenant, id, []tuning.Status{tuning.Queued, tuning.Running}, tuning.Paused, "The job was paused")
	if err == nil {
		j.interrupt(id)
	}
	return job, err
}

// Resume queues a job that was paused, at its old place.
func (j *Jobs) Resume(ctx context.Context, tenant, id string) (tuning.Job, error) {
	job, err := j.move(ctx, tenant, id, []tuning.Status{tuning.Paused}, tuning.Queued, "The job goes on")
	awake(j.wakeRun)
	return job, err
}

func (j *Jobs) move(ctx context.Context, tenant, id string, from []tuning.Status, to tuning.Status, what string) (tuning.Job, error) {
	if err := j.Store.MoveJob(ctx, tenant, id, from, to, message("info", what)); err != nil {
		return tuning.Job{}, err
	}
	return j.Job(ctx, tenant, id)
}

// interrupt stops the worker's run of a job; false where there is none.
func (j *Jobs) interrupt(id string) bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	cancel := j.running[id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

func message(level, text string) tuning.Event {
	return tuning.Event{ID: tuning.NewID("ftevent-"), Created: time.Now().Unix(), Level: level, Kind: "message", Message: text}
}
