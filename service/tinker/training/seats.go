package training

import (
	"context"
	"errors"
	"fmt"

	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// newSeat returns a trainer in a slot of a shared trainer; nil if the library refuses such adapters in slots.
func (t *Trainers) newSeat(ctx context.Context, of *base, adapters tinker.Adapters, room tinker.Room) (tinker.Trainer, error) {
	options := t.adapterOptions(of, adapters)
	options["seed"] = adapters.Seed
	for again := true; ; again = false {
		s, err := t.sit(ctx, of, room)
		if s == nil || err != nil {
			return nil, err
		}
		one := &seat{trainers: t, base: of, shared: s}
		for {
			err = s.do(func(library adapterTrainer) (err error) {
				one.number, err = library.Add(options)
				return err
			})
			if !errors.Is(err, tessera.Busy) {
				break
			}
			if err = room.Slot(ctx, s.name); err != nil {
				break
			}
		}
		if err == nil {
			return one, nil
		}
		t.stand(of, s)
		switch {
		case s.lostBy() != nil && again:
			continue // with another
		case fitsNot(err):
			return nil, nil
		}
		return nil, said(err, "lora_config")
	}
}

// sit takes a seat in a base's shared trainer, which it makes where there is none; nil where there cannot be one.
func (t *Trainers) sit(ctx context.Context, of *base, room tinker.Room) (*shared, error) {
	t.mutex.Lock()
	s := of.shared
	if s != nil && s.lostBy() == nil {
		s.seats++
		t.mutex.Unlock()
		return s, nil
	}
	t.mutex.Unlock()
	if t.config.Slots == 0 || of.apart {
		return nil, nil
	}
	s, err := t.openShared(ctx, of, room)
	if s == nil || err != nil {
		return nil, err
	}
	s.seats = 1
	t.mutex.Lock()
	defer t.mutex.Unlock()
	of.shared = s
	return s, nil
}

// stand gives a seat up. The trainer ends with the last.
func (t *Trainers) stand(of *base, s *shared) {
	t.mutex.Lock()
	s.seats--
	last := s.seats == 0
	if last && of.shared == s {
		of.shared = nil
	}
	t.mutex.Unlock()
	if last {
		s.close()
	}
}

// openShared makes a trainer with slots for adapters of the blocks and the head, or of the blocks alone where the library, or the
// room, is not for the head's.
func (t *Trainers) openShared(ctx context.Context, of *base, room tinker.Room) (*shared, error) {
	var reason error
	for _, on := range []tinker.Adapters{{Head: of.Head, MLP: true, Attention: true}, {MLP: true, Attention: true}} {
		options := t.options(of)
		options["batch"], options["adapters"], options["adapter_rank"], options["adapter_weights"] = t.config.Rows, t.config.Slots, t.config.Rank, of.on(on)
		var made *shared
		if made, reason = t.openWith(ctx, of, options, room); reason == nil {
			t.config.Log("info", "trainings share a trainer", map[string]any{"base": of.Name, "slots": t.config.Slots, "rank": t.config.Rank,
				"head": on.Head, "plan_bytes": made.bytes})
			return made, nil
		}
		if !fitsNot(reason) && !errors.Is(reason, tinker.ErrTooLarge) {
			return nil, said(reason, "")
		}
		if !on.Head {
			break
		}
	}
	of.apart = true
	t.config.Log("info", "each training has a trainer of its own", map[string]any{"base": of.Name, "reason": reason.Error()})
	return nil, nil
}

// openWith makes room for what the plan says, which is made once, and then the trainer.
func (t *Trainers) openWith(ctx context.Context, of *base, options tessera.Options, room tinker.Room) (*shared, error) {
	on := options["adapter_weights"].(string)
	bytes, known := of.plans[on]
	if !known {
		var err error
		if bytes, err = t.library.plan(ctx, of.model, options); err != nil {
			return nil, err
		}
		of.plans[on] = bytes
	}
	if err := room.Trainer(ctx, bytes); err != nil {
		return nil, err
	}
	library, err := t.library.open(ctx, of.model, options)
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	t.made++
	name := fmt.Sprintf("%s#%d", of.Name, t.made)
	t.mutex.Unlock()
	return newShared(name, bytes, library), nil
}
