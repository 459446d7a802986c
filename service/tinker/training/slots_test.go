package training

import (
	"bytes"
	"io"
	"path/filepath"
	"reflect"
	"testing"

	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// newSlots is trainers of the library with slots.
func newSlots(t *testing.T, rows int64) *Trainers {
	t.Helper()
	all := newTrainers(t)
	all.config.Slots, all.config.Rank, all.config.Rows = 3, 8, rows
	return all
}

// tenant is what one of several does.
type tenant struct {
	adapters tinker.Adapters
	loss     string
	update   tinker.Update
}

var tenants = []tenant{
	{tinker.Adapters{Rank: 4, Seed: 5, Head: true, MLP: true, Attention: true}, tinker.CrossEntropy, tinker.Update{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12}},
	{tinker.Adapters{Rank: 2, Seed: 9, Attention: true}, tinker.PPO, tinker.Update{LearningRate: 3e-2, Beta1: 0.8, Beta2: 0.9, Eps: 1e-8, WeightDecay: 0.1, ClipNorm: 0.5}},
	{tinker.Adapters{Rank: 8, Seed: 1, MLP: true}, tinker.GSPO, tinker.Update{LearningRate: 2e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-10}},
}

// pass is a tenant's batch of a round.
func (n *tenant) pass(round int32) *tinker.Pass {
	pass := passOf(n.loss, round+int32(n.adapters.Seed))
	for i := range pass.Sequences {
		one := &pass.Sequences[i]
		if n.loss == tinker.CrossEntropy {
			continue
		}
		for t := range one.Tokens {
			one.Logprobs = append(one.Logprobs, -4.5+0.1*float32(t%5))
			one.Advantages = append(one.Advantages, float32(t%7)-3)
		}
		if n.loss == tinker.PPO {
			one.Weights = nil
		}
	}
	return pass
}

func (n *tenant) open(t *testing.T, all *Trainers) tinker.Trainer {
	t.Helper()
	made, err := all.New(ctx, "small", n.adapters, ample{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// work does some rounds, and gives all that it was told.
func (n *tenant) work(one tinker.Trainer, first, last int32) (found []any, err error) {
	for round := first; round < last; round++ {
		for part := int32(0); part < 2; part++ {
			loss, logprobs, err := one.ForwardBackward(ctx, n.pass(round*2+part))
			if err != nil {
				return nil, err
			}
			found = append(found, loss, logprobs)
		}
		metrics, err := one.Step(ctx, n.update)
		if err != nil {
			return nil, err
		}
		values, err := one.Forward(ctx, n.pass(round+50))
		if err != nil {
			return nil, err
		}
		found = append(found, metrics, values)
	}
	return found, nil
}

func TestTenantsInSlotsHaveTheBitsOfEachApart(t *testing.T) {
	for _, rows := range []int64{1, 4} {
		all := newSlots(t, rows)
		results := make([]chan []any, len(tenants))
		for number := range tenants {
			one, made := &tenants[number], tenants[number].open(t, all)
			if made.Shared() == "" {
				t.Fatalf("tenant %d has a trainer of its own", number)
			}
			results[number] = make(chan []any, 1)
			go func(result chan []any) {
				found, err := one.work(made, 0, 4)
				if err != nil {
					t.Error(err)
				}
				result <- found
			}(results[number])
		}
		for number := range tenants {
			together := <-results[number]
			apart, err := tenants[number].work(tenants[number].open(t, newSlots(t, rows)), 0, 4)
			if err != nil || len(apart) == 0 || !reflect.DeepEqual(together, apart) {
				t.Fatalf("%d rows: tenant %d has other bits apart (%v)", rows, number, err)
			}
		}
	}
}

func TestStatesGoOnInASlotAndInATrainerOfItsOwn(t *testing.T) {
	one, slots, own := &tenants[0], newSlots(t, 1), newTrainers(t)
	first := one.open(t, slots)
	before, err := one.work(first, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	if err := first.SaveState(ctx, saved); err != nil {
		t.Fatal(err)
	}
	wanted, err := one.work(first, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	beside := tenants[1].open(t, slots)
	for _, each := range []struct {
		name      string
		trainers  *Trainers
		optimizer bool
	}{{"in a slot", slots, true}, {"in a slot, without the optimizer", slots, false}, {"alone", own, true}, {"alone, without the optimizer", own, false}} {
		next := one.open(t, each.trainers)
		if shares := next.Shared() != ""; shares != (each.trainers == slots) {
			t.Fatalf("%s: it shares a trainer: %v", each.name, shares)
		}
		if err := next.LoadState(ctx, saved, each.optimizer); err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		values, err := next.Forward(ctx, one.pass(51)) // as the first one's last before
		if err != nil {
			t.Fatal(err)
		}
		found, err := one.work(next, 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		if same := reflect.DeepEqual(found, wanted); each.trainers == slots && same != each.optimizer {
			t.Fatalf("%s: the bits are those of the saved one: %v", each.name, same)
		}
		if difference := far(values, before[len(before)-1].([][]float32)); difference > 1e-5 { // f32, in other orders of sums
			t.Fatalf("%s: log probabilities differ by %v", each.name, difference)
		}
		if steps := found[4].(map[string]float64)["step"]; (steps == 3) != each.optimizer {
			t.Fatalf("%s: the step is %v", each.name, steps)
		}
		if difference := far(found[1].([][]float32), wanted[1].([][]float32)); difference > 1e-5 { // as above
			t.Fatalf("%s: log probabilities differ by %v", each.name, difference)
		}
		back := filepath.Join(t.TempDir(), "back")
		if err := next.SaveState(ctx, back); err != nil {
			t.Fatal(err)
		}
		next.Close()
		again := one.open(t, slots)
		if err := again.LoadState(ctx, back, true); err != nil {
			t.Fatalf("%s, and back: %v", each.name, err)
		}
		if _, err := one.work(again, 4, 5); err != nil {
			t.Fatal(err)
		}
		again.Close()
	}
	if _, err := tenants[1].work(beside, 0, 1); err != nil {
		t.Fatal(err)
	}
}

func far(found, wanted [][]float32) (most float32) {
	for i := range wanted {
		for j, value := range wanted[i] {
			difference := found[i][j] - value
			if difference < 0 {
				difference = -difference
			}
			if difference > most {
				most = difference
			}
		}
	}
	return most
}

func TestGradientsThatAreNotFiniteEndAlone(t *testing.T) {
	all := newSlots(t, 4)
	bad, good := tenants[0].open(t, all), tenants[1].open(t, all)
	pass := tenants[0].pass(0)
	for i := range pass.Sequences[0].Weights {
		pass.Sequences[0].Weights[i] = 1e30 // the square of its gradient is no f32
	}
	if _, _, err := bad.ForwardBackward(ctx, pass); err != nil {
		t.Fatal(err)
	}
	_, err := bad.Step(ctx, tenants[0].update)
	wantCode(t, err, "not_finite")
	_, err = bad.Step(ctx, tenants[0].update)
	wantCode(t, err, "failed_precondition") // its gradients are gone
	found, err := tenants[1].work(good, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := tenants[1].work(tenants[1].open(t, newSlots(t, 4)), 0, 2)
	if err != nil || !reflect.DeepEqual(found, wanted) {
		t.Fatalf("the other training has other bits (%v)", err)
	}
	first, err := tenants[0].work(bad, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err = tenants[0].work(tenants[0].open(t, newSlots(t, 4)), 0, 2)
	if err != nil || !reflect.DeepEqual(first, wanted) {
		t.Fatalf("the training is not as before its step that was left out (%v)", err)
	}
}

func bytesOf(t *testing.T, model *tessera.Model, name string) []byte {
	t.Helper()
	value, err := model.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	defer value.Close()
	content := make([]byte, value.Size())
	if _, err := value.ReadAt(content, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return content
}

func TestAdaptersOfASlotAreServed(t *testing.T) {
	all := newSlots(t, 1)
	one := tenants[0].open(t, all)
	if _, err := tenants[0].work(one, 0, 1); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "adapters")
	if err := one.SaveAdapters(ctx, folder); err != nil {
		t.Fatal(err)
	}
	loaded, err := all.bases["small"].model.LoadAdapters(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	live, err := one.Live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	names, err := loaded.Parameters()
	if err != nil || len(names) == 0 {
		t.Fatalf("found %v, %v", names, err)
	}
	for _, name := range names {
		if !bytes.Equal(bytesOf(t, loaded, name), bytesOf(t, live.(*tessera.Model), name)) {
			t.Fatalf("%s differs between the file and the live model", name)
		}
	}
}
