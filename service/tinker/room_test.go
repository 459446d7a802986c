package tinker_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"tessera.dev/service/tinker"
	"tessera.dev/service/tinker/scripted"
)

func TestTrainingsThatShareATrainerTakeTurnsInItsSlots(t *testing.T) {
	b := newBench(t, tinker.Config{MostTrainers: 1})
	b.trainers.Slots = 2
	first, second, third := b.run(0), b.run(1), b.run(2)
	b.result(b.pass(first, 1, 2)) // whose gradients wait, so that it stays
	b.result(b.pass(second, 1, 2))
	if found := b.told("save", "close"); len(found) != 0 {
		t.Fatalf("found %v, wanted both in slots", found)
	}
	b.result(b.step(second, 2))
	b.result(b.pass(third, 1, 2))
	if found := b.told("save", "close"); !reflect.DeepEqual(found, []string{"save 1", "close"}) {
		t.Fatalf("found %v, wanted the one to leave that can", found)
	}
	b.result(b.step(third, 2))
	b.result(b.pass(second, 3, 2))
	if found := b.told("load"); !reflect.DeepEqual(found, []string{"load 1 optimizer true"}) {
		t.Fatalf("found %v", found)
	}
	b.result(b.step(first, 2))
}

func TestAnotherTrainerWaitsUntilAllOfASharedOneCanLeave(t *testing.T) {
	b := newBench(t, tinker.Config{MostTrainers: 1, PollTime: 300 * time.Millisecond})
	b.trainers.Slots = 2
	first, second, other := b.run(0), b.run(1), b.runOf("tied", 2)
	b.result(b.pass(first, 1, 2))
	b.result(b.pass(second, 1, 2))
	b.result(b.step(first, 2))
	waits := b.pass(other, 1, 2)
	if _, _, err, ready := b.Retrieve(context.Background(), tenant, waits.ID); ready || err != nil || waits.Paused() == "" {
		t.Fatalf("ready is %v, paused %q (%v)", ready, waits.Paused(), err)
	}
	if found := b.told("save"); len(found) != 0 {
		t.Fatalf("found %v: it helps nobody if one leaves alone", found)
	}
	b.result(b.step(second, 2))
	for found := false; !found; _, _, _, found = b.Retrieve(context.Background(), tenant, waits.ID) {
	}
	b.result(waits)
	if found := b.told("save"); !reflect.DeepEqual(found, []string{"save 1", "save 1"}) {
		t.Fatalf("found %v", found)
	}
}

func TestBytesOfASharedTrainerCountOnce(t *testing.T) {
	b := newBench(t, tinker.Config{MostTrainers: 9, MostBytes: scripted.SharedBytes + 150})
	b.trainers.Slots = 4
	for number := int64(0); number < 4; number++ {
		run := b.run(number)
		b.result(b.pass(run, 1, 2))
		b.result(b.step(run, 2))
	}
	one, two := b.runOf("tied", 4), b.runOf("tied", 5)
	b.result(b.pass(one, 1, 2))
	if found := b.told("save"); len(found) != 0 {
		t.Fatalf("found %v, wanted all in memory", found)
	}
	b.result(b.pass(two, 1, 2)) // 1000 + 100 are less than 1150: there is room for one more
	run := b.runOf("tied", 6)   // and now there is not
	b.result(b.pass(run, 1, 2))
	if found := b.told("save"); len(found) != 4 {
		t.Fatalf("found %v, wanted the four of the shared trainer to leave: the others' gradients wait", found)
	}
}

func TestLostValuesOfASharedTrainerEndItsTrainingsAlone(t *testing.T) {
	b := newBench(t, tinker.Config{})
	b.trainers.Slots = 2
	guilty, beside, apart := b.run(0), b.run(1), b.runOf("tied", 2)
	for _, run := range []string{guilty, beside, apart} {
		b.result(b.pass(run, 1, 2))
	}
	f, err := b.Save(context.Background(), tenant, beside, at(2, "early"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.result(b.step(beside, 3))
	if _, err = b.outcome(f); err == nil {
		t.Fatal("a state with gradients was saved")
	}
	f, _ = b.Save(context.Background(), tenant, beside, at(4, "save"), tinker.SaveOrder{Name: "a", Sampler: -1}, nil)
	path := b.result(f).(*tinker.Saved).Path
	if _, err = b.outcome(b.pass(guilty, 2, scripted.Fatal)); err == nil {
		t.Fatal("the pass that takes the values succeeded")
	}
	if _, err = b.outcome(b.pass(beside, 5, 2)); err == nil {
		t.Fatal("a training goes on whose values are lost")
	}
	_, err = b.Step(context.Background(), tenant, beside, at(6, "step"), tinker.DefaultUpdate, nil)
	wantKind(t, err, 410, "checkpoint")
	b.result(b.step(apart, 2))
	b.trainers.Renew()
	made, err := b.NewRun(context.Background(), tenant, tinker.RunOrder{Session: b.session, Number: 3, Origin: &tinker.Origin{Checkpoint: path, Optimizer: true}})
	if err != nil {
		t.Fatal(err)
	}
	next := b.result(made).(*tinker.Loaded).Run
	b.result(b.pass(next, 1, 2))
}

func TestTrainingsThatAreLostMakeRoomAtOnce(t *testing.T) {
	b := newBench(t, tinker.Config{MostTrainers: 1})
	b.trainers.Slots = 2
	guilty, beside, other := b.run(0), b.run(1), b.runOf("tied", 2)
	b.result(b.pass(beside, 1, 2)) // whose gradients wait
	if _, err := b.outcome(b.pass(guilty, 1, scripted.Fatal)); err == nil {
		t.Fatal("the pass that takes the values succeeded")
	}
	b.result(b.pass(other, 1, 2))
	_, err := b.Step(context.Background(), tenant, beside, at(2, "step"), tinker.DefaultUpdate, nil)
	wantKind(t, err, 410, "checkpoint")
}
