package training

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

var ctx = context.Background()

// seatOf is a training of some rank in a slot.
func (t *Trainers) seatOf(test *testing.T, rank, seed int64) *seat {
	test.Helper()
	made, err := t.New(ctx, "small", tinker.Adapters{Rank: rank, Seed: seed, MLP: true, Attention: true}, ample{})
	if err != nil {
		test.Fatal(err)
	}
	one, known := made.(*seat)
	if !known {
		test.Fatalf("found a %T, wanted a seat", made)
	}
	return one
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var known *inference.Error
	if !errors.As(err, &known) || known.Code != code {
		t.Fatalf("found %v, wanted an error of code %s", err, code)
	}
}

func (t *seat) step(test *testing.T, rate float64) {
	test.Helper()
	if _, err := t.Step(ctx, tinker.Update{LearningRate: rate}); err != nil {
		test.Fatal(err)
	}
}

// course is what a training gives in some rounds.
func (t *seat) course(rounds int32) (found []any, err error) {
	for round := int32(0); round < rounds; round++ {
		loss, logprobs, err := t.ForwardBackward(ctx, passOf(tinker.CrossEntropy, round))
		if err != nil {
			return nil, err
		}
		metrics, err := t.Step(ctx, tinker.Update{LearningRate: 1e-3})
		if err != nil {
			return nil, err
		}
		values, err := t.Forward(ctx, passOf(tinker.CrossEntropy, round+9))
		if err != nil {
			return nil, err
		}
		found = append(found, loss, logprobs, metrics, values)
	}
	return found, nil
}

func TestTrainingsInSlotsAreEachAsAlone(t *testing.T) {
	for _, rows := range []int64{1, 2} {
		library := &fakeLibrary{slots: 4, rank: 8}
		all := newFake(t, library)
		all.config.Rows = rows
		var together [4][]any
		var ended sync.WaitGroup
		for number := range together {
			one := all.seatOf(t, 4, int64(number))
			defer one.Close()
			ended.Add(1)
			go func(number int) {
				defer ended.Done()
				var err error
				if together[number], err = one.course(5); err != nil {
					t.Error(err)
				}
			}(number)
		}
		ended.Wait()
		for number := range together {
			alone := newFake(t, &fakeLibrary{slots: 4, rank: 8}).seatOf(t, 4, int64(number))
			wanted, err := alone.course(5)
			if err != nil || !reflect.DeepEqual(together[number], wanted) {
				t.Fatalf("training %d is another alone (%v)", number, err)
			}
			alone.Close()
		}
		if len(library.made) != 1 {
			t.Fatalf("%d trainers were made, wanted one", len(library.made))
		}
	}
}

func TestATrainerOfItsOwnWhereTheLibraryRefusesASlot(t *testing.T) {
	library := &fakeLibrary{slots: 2, rank: 8}
	all := newFake(t, library)
	beside := all.seatOf(t, 8, 1)
	for _, adapters := range []tinker.Adapters{{Rank: 9, MLP: true}} {
		made, err := all.New(ctx, "small", adapters, ample{})
		if err != nil {
			t.Fatal(err)
		}
		if _, alone := made.(*trainer); !alone || made.Shared() != "" {
			t.Fatalf("%+v: found a %T, wanted a trainer of its own", adapters, made)
		}
		made.Close()
	}
	if found := library.told(); !reflect.DeepEqual(found, []string{"open 2 slots of rank 32"}) {
		t.Fatalf("found %q, wanted a trainer without slots of the head", found)
	}
	beside.Close()
	for name, wrong := range map[string]func(l *fakeLibrary) tinker.Room{
		"the base": func(l *fakeLibrary) tinker.Room {
			l.headName = "" // in every name
			return ample{}
		},
		"the plan": func(l *fakeLibrary) tinker.Room {
			l.bytes = 1
			return small{}
		},
	} {
		refused := &fakeLibrary{slots: 2, rank: 8}
		all := newFake(t, refused)
		room := wrong(refused)
		made, err := all.New(ctx, "small", tinker.Adapters{Rank: 4, MLP: true}, room)
		if _, alone := made.(*trainer); err != nil || !alone {
			t.Fatalf("%s is refused: found a %T, %v", name, made, err)
		}
		made.Close()
	}
}

// small has room for no plan that is known.
type small struct{ ample }

func (small) Trainer(_ context.Context, bytes int64) error {
	if bytes > 0 {
		return tinker.ErrTooLarge
	}
	return nil
}

// leaving lets trainings leave their slots.
type leaving struct {
	ample
	others []*seat
	asked  []string
}

func (l *leaving) Slot(_ context.Context, shared string) error {
	l.asked = append(l.asked, shared)
	if len(l.others) == 0 {
		return fmt.Errorf("nobody can leave")
	}
	l.others[0].Close()
	l.others = l.others[1:]
	return nil
}

func TestAFullTrainerLetsOneLeave(t *testing.T) {
	library := &fakeLibrary{slots: 2, rank: 8}
	all := newFake(t, library)
	first, second := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2)
	room := &leaving{others: []*seat{first}}
	third, err := all.New(ctx, "small", tinker.Adapters{Rank: 4, MLP: true}, room)
	if err != nil || !reflect.DeepEqual(room.asked, []string{third.Shared()}) {
		t.Fatalf("asked for %v, %v", room.asked, err)
	}
	if _, err := all.New(ctx, "small", tinker.Adapters{Rank: 4, MLP: true}, room); err == nil || !strings.Contains(err.Error(), "nobody can leave") {
		t.Fatalf("found %v", err)
	}
	second.Close()
	if library.made[0].closed {
		t.Fatal("the trainer ended with a training in it")
	}
	third.Close()
	third.Close() // changes nothing
	if !library.made[0].closed {
		t.Fatal("the trainer stays without trainings")
	}
	all.seatOf(t, 4, 3).Close()
	if len(library.made) != 2 {
		t.Fatalf("%d trainers were made, wanted another", len(library.made))
	}
}

func TestAStepThatIsNotFiniteEndsAlone(t *testing.T) {
	all := newFake(t, &fakeLibrary{slots: 2, rank: 8})
	bad, good := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2)
	for _, one := range []*seat{bad, good} {
		if _, _, err := one.ForwardBackward(ctx, passOf(tinker.CrossEntropy, 1)); err != nil || !one.Pending() {
			t.Fatalf("pending is %v, %v", one.Pending(), err)
		}
	}
	_, err := bad.Step(ctx, tinker.Update{LearningRate: notFinite})
	wantCode(t, err, "not_finite")
	if bad.Pending() || bad.Lost() || good.Lost() || !good.Pending() {
		t.Fatal("more ended than the step")
	}
	good.step(t, 1e-3)
	if _, err := bad.course(1); err != nil {
		t.Fatal(err)
	}
}

func TestLostValuesEndAllOfATrainer(t *testing.T) {
	for _, what := range []string{"forward_backward", "queue"} {
		library := &fakeLibrary{slots: 3, rank: 8}
		all := newFake(t, library)
		guilty, beside := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2)
		if _, err := beside.course(1); err != nil {
			t.Fatal(err)
		}
		library.fails = func(found string) error {
			if found == what {
				return code(tessera.ValuesLost, "the device is gone")
			}
			return nil
		}
		_, _, err := guilty.ForwardBackward(ctx, passOf(tinker.CrossEntropy, 1))
		wantCode(t, err, "values_lost")
		library.fails = nil
		_, err = beside.Forward(ctx, passOf(tinker.CrossEntropy, 1))
		wantCode(t, err, "values_lost")
		if err := beside.SaveState(ctx, t.TempDir()); err == nil || !beside.Lost() || !guilty.Lost() || beside.Bytes() != 0 || !library.made[0].closed {
			t.Fatalf("%s: lost are %v and %v, closed is %v, saving gives %v", what, guilty.Lost(), beside.Lost(), library.made[0].closed, err)
		}
		next := all.seatOf(t, 4, 3)
		if next.Shared() == beside.Shared() || len(library.made) != 2 {
			t.Fatalf("%s: the next training is in %s, and the lost in %s", what, next.Shared(), beside.Shared())
		}
		guilty.Close()
		beside.Close()
		if _, err := next.course(1); err != nil {
			t.Fatal(err)
		}
		next.Close()
	}
}

func TestAStateComesBackIntoASlot(t *testing.T) {
	library := &fakeLibrary{slots: 2, rank: 8}
	all := newFake(t, library)
	one, beside := all.seatOf(t, 4, 1), all.seatOf(t, 4, 2)
	if _, err := one.course(2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := one.ForwardBackward(ctx, passOf(tinker.CrossEntropy, 1)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, one.SaveState(ctx, filepath.Join(t.TempDir(), "early")), "failed_precondition")
	one.step(t, 1e-3)
	saved := filepath.Join(t.TempDir(), "saved")
	if err := one.SaveState(ctx, saved); err != nil {
		t.Fatal(err)
	}
	wanted, err := one.course(2)
	if err != nil {
		t.Fatal(err)
	}
	one.Close()
	for _, optimizer := range []bool{true, false} {
		next := all.seatOf(t, 4, 7)
		if err := next.LoadState(ctx, saved, optimizer); err != nil {
			t.Fatal(err)
		}
		found, err := next.course(2)
		if err != nil {
			t.Fatal(err)
		}
		if steps := found[2].(map[string]float64)["step"]; reflect.DeepEqual(found, wanted) != optimizer || optimizer == (steps == 1) {
			t.Fatalf("with the optimizer %v: the first step is %v, equal are %v", optimizer, steps, reflect.DeepEqual(found, wanted))
		}
		next.Close()
	}
	if _, err := os.Stat(filepath.Join(saved, "state")); err != nil {
		t.Fatal(err)
	}
	broken := all.seatOf(t, 4, 8)
	library.fails = func(what string) error {
		if what == "load" {
			return code(tessera.Corrupt, "not a checkpoint")
		}
		return nil
	}
	wantCode(t, broken.LoadState(ctx, saved, true), "corrupt")
	broken.Close()
	library.fails = nil
	if _, err := beside.course(1); err != nil { // its adapter is there
		t.Fatal(err)
	}
	live, err := beside.Live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	live.Close()
	beside.Close()
}
