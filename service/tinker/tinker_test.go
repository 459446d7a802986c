package tinker_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/service/tinker/scripted"
)

const tenant = "somebody"

// bench is a service over scripted trainers.
type bench struct {
	*tinker.Service
	t        *testing.T
	trainers *scripted.Trainers
	models   *scripted.Models
	store    *scripted.Store
	session  string
}

func newBench(t *testing.T, config tinker.Config) *bench {
	b := &bench{t: t, trainers: &scripted.Trainers{}, models: &scripted.Models{}, store: &scripted.Store{Folder: t.TempDir()}}
	b.open(config)
	id, err := b.NewSession(context.Background(), tenant, "", tinker.Session{})
	if err != nil {
		t.Fatal(err)
	}
	b.session = id
	return b
}

func (b *bench) open(config tinker.Config) {
	b.t.Helper()
	config.Trainers, config.Models, config.Store = b.trainers, b.models, b.store
	if config.PollTime == 0 {
		config.PollTime = 5 * time.Second
	}
	made, err := tinker.New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Service = made
	b.t.Cleanup(made.Close)
}

func (b *bench) run(number int64) string { return b.runOf("base", number) }

func (b *bench) runOf(base string, number int64) string {
	b.t.Helper()
	f, err := b.NewRun(context.Background(), tenant, tinker.RunOrder{Session: b.session, Number: number, Base: base,
		Adapters: tinker.Adapters{Rank: 8, Head: true, MLP: true, Attention: true}})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.result(f).(*tinker.Created).Run
}

func (b *bench) result(f *tinker.Future) any {
	b.t.Helper()
	result, err := b.outcome(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) outcome(f *tinker.Future) (any, error) {
	b.t.Helper()
	_, result, err, ready := b.Retrieve(context.Background(), tenant, f.ID)
	if !ready {
		b.t.Fatalf("the future is not ready: %v", err)
	}
	return result, err
}

func at(number int64, body string) tinker.Numbered {
	return tinker.Numbered{Number: number, Digest: sha256.Sum256([]byte(body)), Bytes: int64(len(body))}
}

func row(count int) []tinker.Datum {
	one := tinker.Datum{Tokens: make([]int32, count), Inputs: map[string]tinker.Tensor{"target_tokens": {Integers: make([]int64, count)}}}
	return []tinker.Datum{one}
}

func (b *bench) pass(run string, number int64, count int) *tinker.Future {
	b.t.Helper()
	f, err := b.Compute(context.Background(), tenant, run, at(number, fmt.Sprint("pass", count)), row(count), tinker.Loss{Name: tinker.CrossEntropy}, true, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *bench) step(run string, number int64) *tinker.Future {
	b.t.Helper()
	f, err := b.Step(context.Background(), tenant, run, at(number, "step"), tinker.DefaultUpdate, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// told is the log without what is not of passes.
func (b *bench) told(prefixes ...string) (found []string) {
	for _, line := range b.trainers.Log() {
		for _, prefix := range prefixes {
			if strings.HasPrefix(line, prefix) {
				found = append(found, line)
			}
		}
	}
	return found
}

func wantKind(t *testing.T, err error, kind inference.Kind, words string) {
	t.Helper()
	var known *inference.Error
	if !errors.As(err, &known) || known.Kind != kind || !strings.Contains(known.Message, words) {
		t.Fatalf("found %v, wanted an error %d with %q", err, kind, words)
	}
}

func TestRequestsAreDoneInTheOrderOfTheirNumbers(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	var futures []*tinker.Future
	for _, number := range []int64{5, 3, 4, 2} {
		futures = append(futures, b.pass(run, number, int(number)))
	}
	futures = append(futures, b.pass(run, 1, 1), b.step(run, 6))
	for _, f := range futures {
		b.result(f)
	}
	wanted := []string{"backward 1", "backward 2", "backward 3", "backward 4", "backward 5", "step 0.0001"}
	if found := b.told("backward", "step"); !reflect.DeepEqual(found, wanted) {
		t.Fatalf("found %v, wanted %v", found, wanted)
	}
}

func TestARepeatedNumberGivesTheFirstFutureAndAnotherBodyIsAConflict(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	first := b.pass(run, 1, 3)
	if again := b.pass(run, 1, 3); again != first {
		t.Fatal("found another future")
	}
	_, err := b.Compute(context.Background(), tenant, run, at(1, "other"), row(4), tinker.Loss{Name: tinker.CrossEntropy}, true, nil)
	wantKind(t, err, inference.Conflict, "seq_id 1 was used")
	b.result(first)
	if again := b.pass(run, 1, 3); again != first {
		t.Fatal("found another future after the end")
	}
	if found := b.told("backward"); len(found) != 1 {
		t.Fatalf("found %v", found)
	}
}

func TestANumberThatNeverComesFailsWhatWaits(t *testing.T) {
	b := newBench(t, tinker.Config{GapTime: 100 * time.Millisecond})
	run := b.run(0)
	_, err := b.outcome(b.pass(run, 3, 3))
	wantKind(t, err, inference.Conflict, "did not come")
	b.result(b.pass(run, 4, 4)) // the hole is sealed
	_, err = b.Compute(context.Background(), tenant, run, at(1, "late"), row(1), tinker.Loss{Name: tinker.CrossEntropy}, true, nil)
	wantKind(t, err, inference.Conflict, "too late")
	_, err = b.Compute(context.Background(), tenant, run, at(1<<40, "far"), row(1), tinker.Loss{Name: tinker.CrossEntropy}, true, nil)
	wantKind(t, err, inference.Invalid, "at most")
}

func TestAWrongBatchUsesItsNumber(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	for number, loss := range []string{"dro", "gspo", "stable_reinforce", "custom", "mine"} {
		f, err := b.Compute(context.Background(), tenant, run, at(int64(number+1), loss), row(2), tinker.Loss{Name: loss}, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.outcome(f)
		wantKind(t, err, inference.Invalid, loss)
	}
	b.result(b.pass(run, 6, 2))
}

func TestCheckpointsOutliveTheServiceAndDoNotChange(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	b.result(b.pass(run, 1, 2))
	f, _ := b.Save(context.Background(), tenant, run, at(2, "early"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	_, err := b.outcome(f)
	wantKind(t, err, inference.Invalid, "gradients wait")
	b.result(b.step(run, 3))
	f, _ = b.Save(context.Background(), tenant, run, at(4, "save"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	path := b.result(f).(*tinker.Saved).Path
	f, _ = b.Save(context.Background(), tenant, run, at(5, "again"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	_, err = b.outcome(f)
	wantKind(t, err, inference.Conflict, "do not change")
	f, _ = b.SaveForSampler(context.Background(), tenant, run, at(6, "sampler"), tinker.SaveOrder{Name: "s", Sampler: -1}, nil)
	sampler := b.result(f).(*tinker.SavedSampler).Path
	for number, wrong := range []tinker.SaveOrder{{Name: "../a"}, {Name: ".."}, {Name: strings.Repeat("a", 200)}, {Name: "a", Life: 10}, {Name: "a", Life: 1 << 40}} {
		wrong.Sampler = -1
		f, _ = b.Save(context.Background(), tenant, run, at(int64(7+number), "wrong"), wrong, nil)
		_, err := b.outcome(f)
		wantKind(t, err, inference.Invalid, "wanted")
	}
	b.Close()
	b.models = &scripted.Models{}
	b.open(tinker.Config{})
	if names := b.models.Names(); len(names) != 1 || names[0] != sampler {
		t.Fatalf("published are %v, wanted %s", names, sampler)
	}
	b.result(b.pass(run, 12, 2)) // the run goes on with its numbers
	if found := b.told("load"); len(found) != 1 || found[0] != "load 1 optimizer true" {
		t.Fatalf("found %v", found)
	}
	made, err := b.NewRun(context.Background(), tenant, tinker.RunOrder{Session: b.session, Number: 1, Origin: &tinker.Origin{Checkpoint: path}})
	if err != nil {
		t.Fatal(err)
	}
	b.result(made)
	if found := b.told("load"); found[1] != "load 1 optimizer false" {
		t.Fatalf("found %v", found)
	}
	_, err = b.NewRun(context.Background(), "another", tinker.RunOrder{Session: b.session, Number: 2, Origin: &tinker.Origin{Checkpoint: path}})
	wantKind(t, err, inference.NotFound, "session")
	if _, err := b.Checkpoint(context.Background(), "another", path); err == nil {
		t.Fatal("another tenant sees the checkpoint")
	}
	if err := b.Delete(context.Background(), tenant, sampler); err != nil || len(b.models.Names()) != 0 {
		t.Fatalf("deleting: %v, published are %v", err, b.models.Names())
	}
}

func TestAnEphemeralSamplerIsInMemory(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	b.result(b.pass(run, 1, 2))
	b.result(b.step(run, 2))
	f, _ := b.SaveForSampler(context.Background(), tenant, run, at(3, "sampler"), tinker.SaveOrder{Sampler: 7}, nil)
	saved := b.result(f).(*tinker.SavedSampler)
	if found := b.told("live", "adapters"); !reflect.DeepEqual(found, []string{"live 1"}) || saved.Path != "" {
		t.Fatalf("found %v and %+v, wanted the weights after a step, and no file", found, saved)
	}
	if entries, _ := os.ReadDir(b.store.Folder); len(entries) != 0 || !reflect.DeepEqual(b.models.Names(), []string{saved.Sampler}) {
		t.Fatalf("%d folders were written; published are %v, wanted %s", len(entries), b.models.Names(), saved.Sampler)
	}
	f, err := b.Sample(context.Background(), tenant, saved.Sampler, at(0, "sample"), "", "", tinker.Prompt{Tokens: []int32{1}, Samples: 1, Temperature: 1, TopP: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.result(f)
}

func TestARunThatWasLostSaysSo(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	b.result(b.pass(run, 1, 2))
	b.Close() // with gradients that wait
	b.open(tinker.Config{})
	_, err := b.Step(context.Background(), tenant, run, at(2, "step"), tinker.DefaultUpdate, nil)
	wantKind(t, err, 410, "checkpoint")
}

func TestTrainingsLeaveTheMemoryForOthers(t *testing.T) {
	b := newBench(t, tinker.Config{MostTrainers: 1})
	first, second := b.run(0), b.run(1)
	for number := int64(1); number < 6; number += 2 {
		for _, run := range []string{first, second} {
			b.result(b.pass(run, number, 2))
			b.result(b.step(run, number+1))
		}
	}
	wanted := []string{"save 1", "save 1", "load 1 optimizer true", "save 2", "load 1 optimizer true", "save 2", "load 2 optimizer true", "save 3", "load 2 optimizer true"}
	found := b.told("save", "load")
	if len(found) != len(wanted) {
		t.Fatalf("found %v", found)
	}
	entries, _ := os.ReadDir(b.store.Folder)
	if len(entries) != 1 {
		t.Fatalf("%d folders stay, wanted 1", len(entries))
	}
}

func TestSamplersGiveTheStopTokenAndCountTokens(t *testing.T) {
	b := newBench(t, tinker.Config{})
	id, err := b.NewSampler(context.Background(), tenant, b.session, 0, "base", "")
	if err != nil {
		t.Fatal(err)
	}
	prompt := tinker.Prompt{Tokens: []int32{1, 2, 3}, Samples: 2, Temperature: 1, TopP: 1, Score: true, Scored: 1}
	f, err := b.Sample(context.Background(), tenant, id, at(0, "sample"), "", "", prompt)
	if err != nil {
		t.Fatal(err)
	}
	found := b.result(f).(*tinker.Samples)
	if len(f.Sequences) != 2 || len(found.Sequences) != 2 || !reflect.DeepEqual(found.Sequences[1].Tokens, []int32{7, 8, 2}) || !found.Sequences[0].Stopped {
		t.Fatalf("found %+v", found)
	}
	if len(found.Prompt) != 3 || found.Prompt[0] == found.Prompt[0] || found.Prompt[2] != -0.5 {
		t.Fatalf("found %v, wanted the last alone", found.Prompt)
	}
	again, err := b.Sample(context.Background(), tenant, id, at(0, "sample"), "", "", prompt)
	if err != nil || again != f {
		t.Fatalf("found another future, %v", err)
	}
	_, err = b.Sample(context.Background(), tenant, id, at(0, "other"), "", "", prompt)
	wantKind(t, err, inference.Conflict, "seq_id 0")
	_, err = b.NewSampler(context.Background(), tenant, b.session, 1, "", "tinker://none/sampler_weights/none")
	wantKind(t, err, inference.NotFound, "checkpoint")
	counts, err := b.Usage(context.Background(), tenant, 0, time.Now().Unix()+1)
	if err != nil || len(counts) != 2 || counts[0].Kind != tinker.PrefillTokens || counts[0].Count != 3 || counts[1].Count != 4 {
		t.Fatalf("found %+v, %v", counts, err)
	}
}

func TestSessionsEndWithTheirClients(t *testing.T) {
	b := newBench(t, tinker.Config{SessionTime: time.Nanosecond})
	deadline := time.Now().Add(20 * time.Second)
	for b.store.Folder != "" && time.Now().Before(deadline) {
		rows, _, _ := b.store.Rows(context.Background(), tinker.RowQuery{Kind: "session", AnyTenant: true})
		if strings.Contains(string(rows[0].Data), `"ended":true`) {
			wantKind(t, b.Heartbeat(context.Background(), tenant, b.session), 410, "ended")
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the session goes on without heartbeats")
}

func TestALostTrainingEndsAlone(t *testing.T) {
	b := newBench(t, tinker.Config{})
	lost, other := b.run(0), b.run(1)
	b.result(b.pass(lost, 1, 2))
	b.result(b.pass(other, 1, 2))
	waits := b.pass(lost, 4, 2)
	if _, err := b.outcome(b.pass(lost, 2, scripted.Fatal)); err == nil {
		t.Fatal("the pass that takes the values succeeded")
	}
	_, err := b.outcome(waits)
	wantKind(t, err, 410, "checkpoint")
	_, err = b.Step(context.Background(), tenant, lost, at(3, "step"), tinker.DefaultUpdate, nil)
	wantKind(t, err, 410, "checkpoint")
	b.result(b.step(other, 2))
}

func TestAnotherTenantSeesNothing(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	f := b.pass(run, 1, 2)
	b.result(f)
	ctx := context.Background()
	if _, _, err, ready := b.Retrieve(ctx, "another", f.ID); ready || err == nil {
		t.Fatal("another tenant reads a result")
	}
	_, err := b.Step(ctx, "another", run, at(2, "step"), tinker.DefaultUpdate, nil)
	wantKind(t, err, inference.NotFound, "model")
	_, err = b.Info(ctx, "another", run)
	wantKind(t, err, inference.NotFound, "run")
	wantKind(t, b.Heartbeat(ctx, "another", b.session), inference.NotFound, "session")
	if runs, all, err := b.Runs(ctx, "another", "", 10, 0); err != nil || all != 0 || len(runs) != 0 {
		t.Fatalf("found %v %v", runs, err)
	}
}

func TestAFullDiskLosesNothingThatWasToldOf(t *testing.T) {
	b := newBench(t, tinker.Config{})
	run := b.run(0)
	b.result(b.pass(run, 1, 2))
	b.result(b.step(run, 2))
	b.store.Full = true
	f, _ := b.Save(context.Background(), tenant, run, at(3, "save"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	if _, err := b.outcome(f); err == nil {
		t.Fatal("a checkpoint was told of that is not kept")
	}
	entries, _ := os.ReadDir(b.store.Folder)
	if len(entries) != 0 {
		t.Fatalf("%d folders stay", len(entries))
	}
	b.store.Full = false
	f, _ = b.Save(context.Background(), tenant, run, at(4, "save"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	b.result(f)
}
