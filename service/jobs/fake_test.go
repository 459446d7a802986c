package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/jobs"
	"tessera.dev/service/store"
	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

// steppedRunner makes a step for each value that it is given, and keeps its place in the folder.
type steppedRunner struct {
	steps   chan struct{}
	refusal error // of Check
	failure error // of Run, after its first step
}

func (r *steppedRunner) Check(context.Context, jobs.Task) (tuning.Plan, []string, error) {
	return tuning.Plan{Epochs: 1, Batch: 1, Steps: 4, StepsPerEpoch: 4, Examples: 4, Tokens: 40, Multiplier: 1}, []string{"a note"}, r.refusal
}

func (r *steppedRunner) Run(ctx context.Context, task jobs.Task, observer jobs.Observer) (string, error) {
	place := filepath.Join(task.Folder, "checkpoint")
	if err := os.MkdirAll(task.Folder, 0o700); err != nil {
		return "", err
	}
	done, _ := os.ReadFile(place)
	for step := len(done) + 1; int64(step) <= task.Plan.Steps; step++ {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-r.steps:
		}
		observer.Step(tuning.Measures{Step: int64(step), Loss: 1 / float64(step), Accuracy: math.NaN(), ValidLoss: math.NaN(), ValidAccuracy: math.NaN()}, 1)
		done = append(done, '.')
		if err := os.WriteFile(place, done, 0o600); err != nil {
			return "", err
		}
		if r.failure != nil {
			return "", r.failure
		}
	}
	result := filepath.Join(task.Folder, "adapter")
	return result, os.WriteFile(result, []byte("result"), 0o600)
}

func startFake(t *testing.T, folder string, runner *steppedRunner) (*service, func()) {
	t.Helper()
	s, err := store.Open(folder, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	made := &service{store: s, registry: newRegistry("")}
	made.jobs = jobs.New(jobs.Config{Store: s, Registry: made.registry, Runner: runner, Most: 3})
	if err := made.jobs.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end := func() { once.Do(func() { made.jobs.Close(); s.Close() }) }
	t.Cleanup(end)
	return made, end
}

func is(status tuning.Status) func(tuning.Job) bool {
	return func(job tuning.Job) bool { return job.Status == status }
}

func kindOf(err error) inference.Kind {
	var known *inference.Error
	if errors.As(err, &known) {
		return known.Kind
	}
	return 0
}

func TestAJobSurvivesPausesAndARestart(t *testing.T) {
	folder, runner := t.TempDir(), &steppedRunner{steps: make(chan struct{})}
	s, end := startFake(t, folder, runner)
	job := create(t, s, order(mustUpload(t, s, "x"), tuning.Supervised))
	await(t, s, job.ID, is(tuning.Running))
	runner.steps <- struct{}{}
	await(t, s, job.ID, func(job tuning.Job) bool { return job.Estimated != 0 })
	if paused, err := s.jobs.Pause(ctx, "", job.ID); err != nil || paused.Status != tuning.Paused {
		t.Fatal(paused, err)
	}
	if _, err := s.jobs.Pause(ctx, "", job.ID); kindOf(err) != inference.Conflict {
		t.Fatal(err)
	}
	end() // a paused job stays paused
	s, end = startFake(t, folder, runner)
	if found, _ := s.jobs.Job(ctx, "", job.ID); found.Status != tuning.Paused {
		t.Fatal(found.Status)
	}
	if _, err := s.jobs.Resume(ctx, "", job.ID); err != nil {
		t.Fatal(err)
	}
	runner.steps <- struct{}{}
	await(t, s, job.ID, func(job tuning.Job) bool { return job.Estimated != 0 })
	end() // a running job goes on
	s, _ = startFake(t, folder, runner)
	runner.steps <- struct{}{}
	runner.steps <- struct{}{}
	job = await(t, s, job.ID, succeeded)
	checkSteps(t, s, job)
	if s.registry.made[job.Result] == "" || job.TrainedTokens != 40 {
		t.Fatal(job)
	}
	events, _, err := s.jobs.Events(ctx, "", job.ID, tuning.Page{Limit: 100})
	if err != nil || events[0].Message != "The job has successfully completed" {
		t.Fatal(events, err)
	}
}

func TestAFinishedModelIsPublishedBeforeItIsTold(t *testing.T) {
	runner := &steppedRunner{steps: make(chan struct{}, 4)}
	s, end := startFake(t, t.TempDir(), runner)
	job := create(t, s, order(mustUpload(t, s, "x"), tuning.Supervised))
	fault.Set(func(point string) error {
		if point == "job published" {
			if found, err := s.store.Job(ctx, "", job.ID); err != nil || found.Status != tuning.Running {
				t.Error(found.Status, err)
			}
			if s.registry.made["ft:stories:local:dogs:"+job.ID[len(job.ID)-8:]] == "" {
				t.Error("not published")
			}
		}
		return nil
	})
	defer fault.Set(func(string) error { return nil })
	for i := 0; i < 4; i++ {
		runner.steps <- struct{}{}
	}
	job = await(t, s, job.ID, succeeded)
	folder := s.store.Folder()
	end()
	s, _ = startFake(t, folder, runner)
	if s.registry.made[job.Result] == "" {
		t.Fatal("a restart forgets a model")
	}
}

func TestFailuresSayWhatTheUserCanDo(t *testing.T) {
	for _, each := range []struct {
		runner *steppedRunner
		status tuning.Status
		code   string
	}{
		{&steppedRunner{refusal: &tuning.Failure{Code: "invalid_training_file", Message: "line 3", Param: "training_file"}}, tuning.Failed, "invalid_training_file"},
		{&steppedRunner{failure: &tuning.Failure{Code: "not_finite", Message: "the loss is not finite"}}, tuning.Failed, "not_finite"},
		{&steppedRunner{failure: errors.New("/secret/path is broken")}, tuning.Failed, "server_error"},
		{&steppedRunner{failure: &jobs.ErrPaused{Reason: "cannot write"}}, tuning.Paused, ""},
		{&steppedRunner{failure: fmt.Errorf("checkpoint: %w", syscall.ENOSPC)}, tuning.Paused, ""},
	} {
		each.runner.steps = make(chan struct{}, 1)
		each.runner.steps <- struct{}{}
		s, end := startFake(t, t.TempDir(), each.runner)
		job := create(t, s, order(mustUpload(t, s, "x"), tuning.Supervised))
		job = await(t, s, job.ID, is(each.status))
		if each.code != "" && job.Failure.Code != each.code || each.code == "" && job.Failure != nil {
			t.Errorf("%+v: %+v", job, job.Failure)
		}
		if job.Failure != nil && job.Failure.Message == "/secret/path is broken" {
			t.Error("an internal error is shown")
		}
		end()
	}
}

func TestTheDiskIsFullWhenAJobEnds(t *testing.T) {
	runner := &steppedRunner{steps: make(chan struct{}, 4)}
	s, _ := startFake(t, t.TempDir(), runner)
	job := create(t, s, order(mustUpload(t, s, "x"), tuning.Supervised))
	var mutex sync.Mutex
	full := true
	fault.Set(func(point string) error {
		mutex.Lock()
		defer mutex.Unlock()
		if full && point == "content sync" {
			return syscall.ENOSPC
		}
		return nil
	})
	defer fault.Set(func(string) error { return nil })
	for i := 0; i < 4; i++ {
		runner.steps <- struct{}{}
	}
	time.Sleep(200 * time.Millisecond)
	if found, err := s.jobs.Job(ctx, "", job.ID); err != nil || found.Status.Ended() {
		t.Fatal(found, err)
	}
	mutex.Lock()
	full = false
	mutex.Unlock()
	job = await(t, s, job.ID, succeeded)
	if err := s.store.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestJobsAreBoundedAndCreatedOnce(t *testing.T) {
	s, _ := startFake(t, t.TempDir(), &steppedRunner{steps: make(chan struct{})})
	wanted := order(mustUpload(t, s, "x"), tuning.Supervised)
	wanted.Seed = -1
	once := tuning.Once{Route: "POST jobs", Key: "k", Digest: [32]byte{1}}
	first, err := s.jobs.Create(ctx, wanted, once)
	if err != nil || first.Seed < 0 {
		t.Fatal(first, err)
	}
	if again, err := s.jobs.Create(ctx, wanted, once); err != nil || again.ID != first.ID || again.Seed != first.Seed {
		t.Fatal(again, err)
	}
	once.Digest[0]++
	if _, err := s.jobs.Create(ctx, wanted, once); kindOf(err) != inference.Conflict {
		t.Fatal(err)
	}
	create(t, s, wanted)
	create(t, s, wanted)
	if _, err := s.jobs.Create(ctx, wanted, tuning.Once{}); kindOf(err) != inference.Limited {
		t.Fatal(err)
	}
	wanted.Model = "none"
	if _, err := s.jobs.Create(ctx, wanted, tuning.Once{}); kindOf(err) != inference.NotFound {
		t.Fatal(err)
	}
}
