package tinker

import (
	"context"
	"fmt"
	"sort"
	"time"

	"tessera.dev/service/inference"
)

// room implements Room for a run that enters the memory.
type room struct {
	residence *residence
	one       *run
}

// roomPeriod is how often it is asked whether another training can leave, and roomTime how long.
const (
	roomPeriod = 200 * time.Millisecond
	roomTime   = 30 * time.Minute
)

// holder is a trainer of the library in memory: a run's own, or one that several share.
type holder struct {
	shared string
	runs   []*run
	bytes  int64
	since  time.Time // its last use
}

// Trainer lets the trainers that were not used for the longest leave, until one more fits.
func (m *room) Trainer(ctx context.Context, bytes int64) error {
	config := &m.residence.service.config
	if config.MostBytes > 0 && bytes > config.MostBytes {
		return ErrTooLarge
	}
	return m.wait(ctx, func() (found []holder, enough bool) {
		found = m.holders()
		taken := int64(0)
		for _, one := range found {
			taken += one.bytes
		}
		enough = len(found) < config.MostTrainers && (config.MostBytes == 0 || taken < config.MostBytes && taken+bytes <= config.MostBytes)
		return found, enough || len(found) == 0
	})
}

// Slot lets the training of a shared trainer that was not used for the longest leave.
func (m *room) Slot(ctx context.Context, shared string) error {
	before := -1
	return m.wait(ctx, func() (found []holder, enough bool) {
		for _, one := range m.holders() {
			if one.shared == shared {
				found = one.apart()
			}
		}
		if before < 0 {
			before = len(found)
		}
		return found, len(found) < before || before == 0
	})
}

// wait lets others leave until it is enough.
func (m *room) wait(ctx context.Context, look func() (found []holder, enough bool)) error {
	begun := time.Now()
	for {
		found, enough := look()
		if enough {
			pause(ctx, "")
			return nil
		}
		if m.leaves(ctx, found) {
			continue
		}
		pause(ctx, fmt.Sprintf("%d trainings are in memory with gradients that wait for an optimizer step", len(found)))
		if time.Since(begun) > roomTime {
			return &inference.Error{Kind: inference.Overloaded, Code: "no_memory", RetryAfter: 30,
				Message: "there is no room for another training in memory: others' gradients wait for their optimizer step; retry later"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(roomPeriod):
		}
	}
}

// leaves says whether one of some left.
func (m *room) leaves(ctx context.Context, found []holder) bool {
	for _, one := range found {
		if m.residence.leaveTogether(ctx, one.runs) {
			return true
		}
	}
	return false
}

// leaveTogether takes runs out of memory where all of them can leave now.
func (r *residence) leaveTogether(ctx context.Context, runs []*run) bool {
	for _, one := range runs {
		if !one.working.TryLock() {
			return false
		}
		defer one.working.Unlock()
		if one.trainer != nil && one.trainer.Pending() && !one.trainer.Lost() {
			return false
		}
	}
	for _, one := range runs {
		if err := r.leaveLocked(ctx, one); err != nil {
			return false
		}
	}
	return true
}

// holders returns the trainers of the other runs, the longest unused first.
func (m *room) holders() (found []holder) {
	s := m.residence.service
	s.mutex.Lock()
	all := make([]*run, 0, len(s.runs))
	for _, each := range s.runs {
		all = append(all, each)
	}
	s.mutex.Unlock()
	shared := map[string]int{}
	for _, each := range all {
		seen := each.resident()
		if each == m.one || !seen.there {
			continue
		}
		at, known := shared[seen.shared]
		if !known || seen.shared == "" {
			at = len(found)
			shared[seen.shared] = at
			found = append(found, holder{shared: seen.shared})
		}
		found[at].add(each, seen)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].since.Before(found[j].since) })
	return found
}

func (h *holder) add(one *run, seen resident) {
	h.runs = append(h.runs, one)
	if seen.bytes > h.bytes {
		h.bytes = seen.bytes
	}
	if seen.since.After(h.since) {
		h.since = seen.since
	}
}

// apart is a holder for each run, the longest unused first.
func (h *holder) apart() (found []holder) {
	for _, one := range h.runs {
		each := holder{shared: h.shared}
		each.add(one, one.resident())
		found = append(found, each)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].since.Before(found[j].since) })
	return found
}
