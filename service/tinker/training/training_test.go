package training

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tessera.dev/service/tinker"
	"tessera.dev/service/tuning"
	"tessera.dev/tessera"
)

// folder is a small model with a head of its own.
type folder struct{ path string }

func (f folder) Source(name string) (tuning.Source, error) {
	return tuning.Source{Path: f.path, Base: name}, nil
}

// ample has room for all.
type ample struct{}

func (ample) Trainer(context.Context, int64) error { return nil }
func (ample) Slot(context.Context, string) error   { return nil }

func newTrainers(t *testing.T) *Trainers {
	t.Helper()
	model, err := tessera.NewModel("llama:L=1,C=32,H=2,F=64,V=96,T=64", tessera.Options{"seed": 3})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	path := filepath.Join(t.TempDir(), "small.tsr")
	if err := model.Save(path); err != nil {
		t.Fatal(err)
	}
	made, err := New(Config{Threads: 1, Context: 32, Models: folder{path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

func (t *Trainers) trainer(test *testing.T) *trainer {
	test.Helper()
	made, err := t.New(context.Background(), "small", tinker.Adapters{Rank: 4, Seed: 5, Head: true, MLP: true, Attention: true}, ample{})
	if err != nil {
		test.Fatal(err)
	}
	test.Cleanup(made.Close)
	return made.(*trainer)
}

// passOf has two sequences, which share a row, and a third that has its own.
func passOf(loss string, seed int32) *tinker.Pass {
	pass := &tinker.Pass{Loss: loss, EpsLow: 0.2, EpsHigh: 0.2}
	for number, count := range []int{7, 20, 31} {
		var one tinker.Sequence
		for i := 0; i < count; i++ {
			one.Tokens = append(one.Tokens, (seed+int32(number*31+i*7))%96)
			one.Labels = append(one.Labels, (seed+int32(number*31+i*7+7))%96)
			one.Weights = append(one.Weights, float32(i%3))
		}
		pass.Sequences = append(pass.Sequences, one)
	}
	return pass
}

func (t *trainer) must(test *testing.T, pass *tinker.Pass) [][]float32 {
	test.Helper()
	_, logprobs, err := t.ForwardBackward(context.Background(), pass)
	if err != nil {
		test.Fatal(err)
	}
	return logprobs
}

func (t *trainer) mustStep(test *testing.T, update tinker.Update) {
	test.Helper()
	if _, err := t.Step(context.Background(), update); err != nil {
		test.Fatal(err)
	}
}

func TestEachStepHasItsOwnSettings(t *testing.T) {
	all := newTrainers(t)
	first := tinker.Update{LearningRate: 1e-2, Beta1: 0.8, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, ClipNorm: 0.5}
	after := func(update tinker.Update) [][]float32 {
		one := all.trainer(t)
		one.must(t, passOf(tinker.CrossEntropy, 1))
		one.must(t, passOf(tinker.CrossEntropy, 2))
		one.mustStep(t, first)
		one.must(t, passOf(tinker.CrossEntropy, 3))
		one.mustStep(t, update)
		found, err := one.Forward(context.Background(), passOf(tinker.CrossEntropy, 4))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	same := after(first)
	if !reflect.DeepEqual(same, after(first)) {
		t.Fatal("equal settings give other bits")
	}
	for name, change := range map[string]func(*tinker.Update){
		"learning_rate": func(u *tinker.Update) { u.LearningRate = 2e-2 }, "beta1": func(u *tinker.Update) { u.Beta1 = 0.5 },
		"beta2": func(u *tinker.Update) { u.Beta2 = 0.9 }, "eps": func(u *tinker.Update) { u.Eps = 1e-2 },
		"weight_decay": func(u *tinker.Update) { u.WeightDecay = 10 }, "grad_clip_norm": func(u *tinker.Update) { u.ClipNorm = 1e-2 },
	} {
		update := first
		change(&update)
		if reflect.DeepEqual(same, after(update)) {
			t.Fatalf("a step with another %s gives the same bits", name)
		}
	}
	one := all.trainer(t)
	one.must(t, passOf(tinker.CrossEntropy, 1))
	wrong := first
	wrong.Beta2 = 1
	if _, err := one.Step(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "'beta2' is 1, wanted") {
		t.Fatalf("found %v, wanted a refusal of beta2", err)
	}
	one.mustStep(t, first) // the gradients wait
}

func TestTwoTrainingsInTurnsAreEachAsAlone(t *testing.T) {
	all := newTrainers(t)
	together, alone := []*trainer{all.trainer(t), all.trainer(t)}, []*trainer{all.trainer(t), all.trainer(t)}
	step := func(number int, one *trainer, round int32) {
		one.must(t, passOf(tinker.CrossEntropy, int32(number)*10+round))
		update := tinker.DefaultUpdate
		update.LearningRate = 1e-2
		one.mustStep(t, update)
	}
	for round := int32(0); round < 3; round++ {
		for number, one := range together {
			step(number, one, round)
		}
	}
	for number, one := range alone {
		for round := int32(0); round < 3; round++ {
			step(number, one, round)
		}
		found, _ := together[number].Forward(context.Background(), passOf(tinker.CrossEntropy, 50))
		wanted, err := one.Forward(context.Background(), passOf(tinker.CrossEntropy, 50))
		if err != nil || len(found) == 0 || !reflect.DeepEqual(found, wanted) {
			t.Fatalf("training %d differs from the same alone (%v)", number, err)
		}
	}
}

func TestStateGoesOnWithTheSameBits(t *testing.T) {
	all := newTrainers(t)
	first := all.trainer(t)
	update := tinker.DefaultUpdate
	update.LearningRate, update.Beta2 = 1e-2, 0.9
	first.must(t, passOf(tinker.CrossEntropy, 1))
	if err := first.SaveState(context.Background(), filepath.Join(t.TempDir(), "early")); err == nil {
		t.Fatal("gradients that wait were saved")
	}
	first.mustStep(t, update)
	saved := filepath.Join(t.TempDir(), "saved")
	if err := first.SaveState(context.Background(), saved); err != nil {
		t.Fatal(err)
	}
	second, fresh := all.trainer(t), all.trainer(t)
	if err := second.LoadState(context.Background(), saved, true); err != nil {
		t.Fatal(err)
	}
	if err := fresh.LoadState(context.Background(), saved, false); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(saved); err != nil { // what was loaded needs it no more
		t.Fatal(err)
	}
	var found [3][][]float32
	for number, one := range []*trainer{first, second, fresh} {
		one.must(t, passOf(tinker.CrossEntropy, 2))
		one.mustStep(t, update)
		found[number], _ = one.Forward(context.Background(), passOf(tinker.CrossEntropy, 3))
	}
	if !reflect.DeepEqual(found[0], found[1]) {
		t.Fatal("the loaded state goes on with other bits")
	}
	if reflect.DeepEqual(found[0], found[2]) {
		t.Fatal("adapters alone go on with the optimizer's state")
	}
}

func TestTheHeadGetsAdaptersWhereItHasItsOwn(t *testing.T) {
	all := newTrainers(t)
	base, err := all.Base(context.Background(), "small")
	if err != nil || !base.Head || base.Context != 32 {
		t.Fatalf("found %+v, %v", base, err)
	}
	one := all.trainer(t)
	names, err := one.model.Parameters()
	if err != nil || !strings.Contains(strings.Join(names, " "), all.bases["small"].head[0]+".lora_a") {
		t.Fatalf("found no adapter of the head among %v", names)
	}
	one.must(t, passOf(tinker.CrossEntropy, 1))
	one.mustStep(t, tinker.Update{LearningRate: 1e-1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12})
	folder := filepath.Join(t.TempDir(), "adapters")
	if err := one.SaveAdapters(context.Background(), folder); err != nil {
		t.Fatal(err)
	}
	loaded, err := all.bases["small"].model.LoadAdapters(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	engine, err := tessera.NewEngine(all.runtime, loaded, tessera.Options{"devices": "cpu:1", "sequences": 1})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	scored := passOf(tinker.CrossEntropy, 9).Sequences[:1]
	copy(scored[0].Labels, scored[0].Tokens[1:])
	request, err := engine.SubmitTokens(append(append([]int32{}, scored[0].Tokens...), scored[0].Labels[len(scored[0].Labels)-1]), tessera.Options{"score_from": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := request.Text(context.Background()); err != nil {
		t.Fatal(err)
	}
	scores, err := engine.Scores(request.Number())
	if err != nil {
		t.Fatal(err)
	}
	trained, err := one.Forward(context.Background(), &tinker.Pass{Loss: tinker.CrossEntropy, Sequences: scored})
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range trained[0] { // both in f32, in other orders of sums
		if math.Abs(float64(value-scores.LogProbs[i])) > 1e-5 {
			t.Fatalf("token %d: the trainer has %v, the sampler %v", i, value, scores.LogProbs[i])
		}
	}
	live, err := one.Live(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	served, err := tessera.NewEngine(all.runtime, all.bases["small"].model, tessera.Options{"devices": "cpu:1", "sequences": 1, "adapters": 1,
		"adapter_rank": one.adapters.Rank, "adapter_on": "blocks,head"})
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	number, err := served.LoadAdapterFromModel(live.(*tessera.Model))
	if err != nil {
		t.Fatal(err)
	}
	if request, err = served.SubmitTokens(append(append([]int32{}, scored[0].Tokens...), scored[0].Labels[len(scored[0].Labels)-1]), tessera.Options{"score_from": 1, "adapter": number}); err != nil {
		t.Fatal(err)
	}
	if _, err := request.Text(context.Background()); err != nil {
		t.Fatal(err)
	}
	if scores, err = served.Scores(request.Number()); err != nil {
		t.Fatal(err)
	}
	for i, value := range trained[0] {
		if math.Abs(float64(value-scores.LogProbs[i])) > 1e-5 { // as above
			t.Fatalf("token %d: the trainer has %v, the base's engine %v", i, value, scores.LogProbs[i])
		}
	}
	read, err := loaded.Parameters()
	if err != nil || len(read) != len(names) {
		t.Fatalf("%d parameters were loaded, wanted %d", len(read), len(names))
	}
}

func TestLossesAreTheValuesOfTheirLogProbabilities(t *testing.T) {
	one := newTrainers(t).trainer(t)
	for _, loss := range []string{tinker.ImportanceSampling, tinker.PPO, tinker.CISPO, tinker.DRO, tinker.GSPO} {
		pass := passOf(loss, 1)
		pass.Beta = 0.3
		for i := range pass.Sequences {
			sequence := &pass.Sequences[i]
			for number := range sequence.Tokens {
				sequence.Logprobs = append(sequence.Logprobs, -4.5+0.1*float32(number%5))
				sequence.Advantages = append(sequence.Advantages, float32(number%7)-3)
			}
			if loss != tinker.GSPO {
				sequence.Weights = nil
			}
		}
		found, logprobs, err := one.ForwardBackward(context.Background(), pass)
		if wanted := pass.Value(logprobs); err != nil || math.Abs(found-wanted) > 1e-4*math.Max(1, math.Abs(wanted)) { // sums of f32
			t.Fatalf("%s is %v, wanted %v (%v)", loss, found, wanted, err)
		}
	}
}

func TestSequencesThatAreTooLongAreRefused(t *testing.T) {
	one := newTrainers(t).trainer(t)
	pass := passOf(tinker.CrossEntropy, 1)
	pass.Sequences[0].Tokens = make([]int32, 33)
	if _, _, err := one.ForwardBackward(context.Background(), pass); err == nil || !strings.Contains(err.Error(), "33 tokens") {
		t.Fatalf("found %v", err)
	}
	pass = passOf(tinker.CrossEntropy, 1)
	pass.Sequences[0].Tokens[0] = 96
	if _, _, err := one.ForwardBackward(context.Background(), pass); err == nil || !strings.Contains(err.Error(), "96") {
		t.Fatalf("found %v", err)
	}
	one.must(t, passOf(tinker.CrossEntropy, 1))
}
