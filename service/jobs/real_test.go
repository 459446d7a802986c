package jobs_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/jobs"
	"tessera.dev/service/jobs/training"
	"tessera.dev/service/store"
	"tessera.dev/service/tuning"
)

var ctx = context.Background()

// modelPath is a model of 260,000 parameters; tests of real trainings are skipped without it.
func modelPath(t *testing.T) string {
	path := os.Getenv("TESSERA_TEST_MODEL")
	if path == "" {
		t.Skip("TESSERA_TEST_MODEL is not set: the path of a small model, as tests/service/check.sh makes one")
	}
	return path
}

const template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"

// registry has one base model, and what jobs publish.
type registry struct {
	path  string
	mutex sync.Mutex
	made  map[string]string
}

func newRegistry(path string) *registry { return &registry{path: path, made: map[string]string{}} }

func (r *registry) Source(name string) (tuning.Source, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	source := tuning.Source{Path: r.path, Base: "stories", Template: template}
	if name == "stories" {
		return source, nil
	}
	if path, known := r.made[name]; known {
		source.Adapter = path
		return source, nil
	}
	return tuning.Source{}, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("the model %q does not exist", name)}
}

func (r *registry) Publish(name, base, path string) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if earlier, taken := r.made[name]; taken && earlier != path {
		return fmt.Errorf("%s is taken", name)
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	r.made[name] = path
	return nil
}

// service is a store with jobs that run.
type service struct {
	store    *store.Store
	registry *registry
	jobs     *jobs.Jobs
	runner   *training.Runner
}

func begin(folder, model string) (*service, error) {
	s, err := store.Open(folder, store.Options{})
	if err != nil {
		return nil, err
	}
	runner, err := training.New(training.Config{Rank: 4, Threads: 1})
	if err != nil {
		return nil, err
	}
	made := &service{store: s, registry: newRegistry(model), runner: runner}
	made.jobs = jobs.New(jobs.Config{Store: s, Registry: made.registry, Runner: runner, Log: func(level, text string, fields map[string]any) {
		fmt.Fprintln(os.Stderr, level, text, fields)
	}})
	return made, made.jobs.Start()
}

func (s *service) end() {
	s.jobs.Close()
	s.runner.Close()
	s.store.Close()
}

func start(t *testing.T, folder string) *service {
	t.Helper()
	s, err := begin(folder, modelPath(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

func rows(kind string, count int) string {
	var text strings.Builder
	for i := 0; i < count; i++ {
		switch kind {
		case "chat":
			fmt.Fprintf(&text, `{"messages":[{"role":"user","content":"Tell %d"},{"role":"assistant","content":"There was a dog, number %d."}]}`+"\n", i, i)
		case "dpo":
			fmt.Fprintf(&text, `{"input":{"messages":[{"role":"user","content":"Tell %d"}]},"preferred_output":[{"role":"assistant","content":"good dog %d"}],`+
				`"non_preferred_output":[{"role":"assistant","content":"bad cat %d"}]}`+"\n", i, i, i)
		}
	}
	return text.String()
}

func upload(s *store.Store, content string) (string, error) {
	draft, err := s.Draft()
	if err != nil {
		return "", err
	}
	defer draft.Discard()
	if _, err := io.WriteString(draft, content); err != nil {
		return "", err
	}
	file, err := draft.Commit(ctx, tuning.File{Name: "rows.jsonl", Purpose: tuning.FineTune}, tuning.Once{})
	return file.ID, err
}

func order(file, method string) tuning.Order {
	return tuning.Order{Model: "stories", TrainingFile: file, Seed: 7, Method: method, Suffix: "dogs",
		Hyperparameters: tuning.Hyperparameters{Epochs: 3, Batch: 2}, Settings: tuning.Settings{Rate: 1e-3}}
}

func create(t *testing.T, s *service, order tuning.Order) tuning.Job {
	t.Helper()
	job, err := s.jobs.Create(ctx, order, tuning.Once{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// await waits until a job is as wanted.
func await(t *testing.T, s *service, id string, wanted func(tuning.Job) bool) tuning.Job {
	t.Helper()
	var job tuning.Job
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if job, err = s.jobs.Job(ctx, "", id); err != nil {
			t.Fatal(err)
		}
		if wanted(job) {
			return job
		}
		if job.Status.Ended() {
			t.Fatalf("the job ended: %+v %+v", job, job.Failure)
		}
	}
	events, _, _ := s.jobs.Events(ctx, "", id, tuning.Page{Limit: 3})
	pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	t.Fatalf("waited in vain: %+v %+v", job, events)
	return job
}

func succeeded(job tuning.Job) bool { return job.Status == tuning.Succeeded }

// bits are those of the adapters' tensors; the head of the file names the base by a path, which is another in each folder.
func bits(t *testing.T, s *service, job tuning.Job) string {
	t.Helper()
	path := s.registry.made[job.Result]
	content, err := os.ReadFile(filepath.Join(path, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content[8+binary.LittleEndian.Uint64(content):])
	return hex.EncodeToString(sum[:])
}

func mustUpload(t *testing.T, s *service, content string) string {
	t.Helper()
	id, err := upload(s.store, content)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// steps of a job that were recorded, each once, in order.
func checkSteps(t *testing.T, s *service, job tuning.Job) {
	t.Helper()
	metrics, err := s.store.Metrics(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(metrics)) != job.Plan.Steps {
		t.Fatalf("%d steps are recorded, wanted %d", len(metrics), job.Plan.Steps)
	}
	for i, each := range metrics {
		if each.Step != int64(i+1) {
			t.Fatalf("step %d is recorded at place %d", each.Step, i)
		}
	}
}

func TestAJobEndsInAModelWithItsMetrics(t *testing.T) {
	s := start(t, t.TempDir())
	wanted := order(mustUpload(t, s, rows("chat", 20)), tuning.Supervised)
	wanted.ValidationFile = mustUpload(t, s, rows("chat", 5))
	job := create(t, s, wanted)
	if job.Status != tuning.Validating || job.Plan != nil {
		t.Fatal(job)
	}
	job = await(t, s, job.ID, succeeded)
	if job.Plan.Steps != 30 || job.Result != "ft:stories:local:dogs:"+job.ID[len(job.ID)-8:] || job.TrainedTokens != 3*job.Plan.Tokens {
		t.Fatalf("%+v %+v", job, job.Plan)
	}
	if source, err := s.registry.Source(job.Result); err != nil || source.Adapter == "" {
		t.Fatal("the result is no model", err)
	}
	checkSteps(t, s, job)
	_, content, err := s.store.OpenFile(ctx, "", job.ResultFile)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, _ := io.ReadAll(content)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 31 || lines[0] != "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy" ||
		!strings.HasPrefix(lines[30], "30,") || strings.HasSuffix(lines[30], ",,") || !strings.HasSuffix(lines[1], ",,,") {
		t.Fatalf("%s", text)
	}
	checkpoints, more, err := s.jobs.Checkpoints(ctx, "", job.ID, tuning.Page{Limit: 10})
	if err != nil || more || len(checkpoints) != 2 || checkpoints[0].Step != 20 || checkpoints[1].Step != 10 {
		t.Fatal(checkpoints, err)
	}
	further := order(wanted.TrainingFile, tuning.Supervised)
	further.Model = checkpoints[0].Model
	again := await(t, s, create(t, s, further).ID, succeeded)
	if bits(t, s, again) == bits(t, s, job) {
		t.Fatal("training further changed nothing")
	}
	if entries, _ := os.ReadDir(s.store.JobFolder(job.ID)); len(entries) != 3 {
		t.Fatal("a job that has ended keeps more than its models", entries)
	}
}

func TestPreferencesAreLearnt(t *testing.T) {
	s := start(t, t.TempDir())
	job := create(t, s, order(mustUpload(t, s, rows("dpo", 12)), tuning.Preference))
	job = await(t, s, job.ID, succeeded)
	metrics, _ := s.store.Metrics(ctx, job.ID)
	if first, last := metrics[0].Loss, metrics[len(metrics)-1].Loss; last >= first || first < 0.69 || first > 0.70 {
		t.Fatal(metrics)
	}
}

func TestFilesThatAMethodDoesNotLearnFromFailTheJob(t *testing.T) {
	s := start(t, t.TempDir())
	chat, dpo := mustUpload(t, s, rows("chat", 4)), mustUpload(t, s, rows("dpo", 4))
	broken := mustUpload(t, s, rows("chat", 4)+`{"messages":[{"role":"user","content":"x"}],"weight":2}`+"\n")
	for _, each := range []struct{ file, method, said string }{{dpo, tuning.Supervised, "kind preference"}, {chat, tuning.Preference, "kind messages"},
		{broken, tuning.Supervised, "line 5"}} {
		job := create(t, s, order(each.file, each.method))
		job = await(t, s, job.ID, func(job tuning.Job) bool { return job.Status == tuning.Failed })
		if job.Failure.Code != "invalid_training_file" || job.Failure.Param != "training_file" || !strings.Contains(job.Failure.Message, each.said) ||
			strings.Contains(job.Failure.Message, s.store.Folder()) {
			t.Fatalf("%+v", job.Failure)
		}
	}
}

func TestAPausedJobGoesOnToTheSameBits(t *testing.T) {
	s := start(t, t.TempDir())
	file := mustUpload(t, s, rows("chat", 20))
	wanted := order(file, tuning.Supervised)
	wanted.Hyperparameters.Epochs = 12 // long enough to be paused on any machine
	whole := await(t, s, create(t, s, wanted).ID, succeeded)
	job := create(t, s, wanted)
	pauses := 0
	for !succeeded(job) {
		job = await(t, s, job.ID, func(job tuning.Job) bool { return job.Estimated != 0 && pauses < 3 || succeeded(job) })
		if paused, err := s.jobs.Pause(ctx, "", job.ID); err == nil && paused.Status != tuning.Paused {
			t.Fatal(paused)
		} else if err == nil {
			pauses++
			if _, err := s.jobs.Resume(ctx, "", job.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(150 * time.Millisecond)
	}
	if pauses == 0 {
		t.Fatal("the job was never paused")
	}
	if bits(t, s, job) != bits(t, s, whole) {
		t.Fatalf("other bits after %d pauses", pauses)
	}
	checkSteps(t, s, job)
}

func TestACancelledJobEndsAndTheNextOneRuns(t *testing.T) {
	s := start(t, t.TempDir())
	file := mustUpload(t, s, rows("chat", 20))
	long := order(file, tuning.Supervised)
	long.Hyperparameters.Epochs = 50
	first, second := create(t, s, long), create(t, s, order(file, tuning.Supervised))
	await(t, s, first.ID, func(job tuning.Job) bool { return job.Status == tuning.Running })
	if cancelled, err := s.jobs.Cancel(ctx, "", first.ID); err != nil || cancelled.Status != tuning.Cancelled || cancelled.Finished == 0 {
		t.Fatal(cancelled, err)
	}
	for _, call := range []func(context.Context, string, string) (tuning.Job, error){s.jobs.Cancel, s.jobs.Pause, s.jobs.Resume} {
		var known *inference.Error
		if _, err := call(ctx, "", first.ID); !errors.As(err, &known) || known.Kind != inference.Conflict {
			t.Fatal(err)
		}
		if _, err := call(ctx, "another", second.ID); !errors.As(err, &known) || known.Kind != inference.NotFound {
			t.Fatal(err)
		}
	}
	await(t, s, second.ID, succeeded)
}
