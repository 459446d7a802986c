package tinker

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// residence is which trainings are in memory. Others' states lie in folders, and come back with the next request.
type residence struct {
	service *Service
	moving  sync.Mutex // one enters or leaves at a time
}

// enter does something with the trainer of a run, whose working lock is not held.
func (r *residence) enter(ctx context.Context, one *run, use func(trainer Trainer) error) error {
	one.working.Lock()
	defer one.working.Unlock()
	one.used = time.Now()
	if one.trainer == nil {
		if err := r.bring(ctx, one); err != nil {
			return err
		}
	}
	err := use(one.trainer)
	one.used = time.Now()
	if one.trainer.Lost() {
		r.lose(one)
	}
	one.note()
	return err
}

// bring makes the trainer of a run whose lock is held.
func (r *residence) bring(ctx context.Context, one *run) error {
	r.moving.Lock()
	defer r.moving.Unlock()
	s := r.service
	trainer, err := s.config.Trainers.New(ctx, one.Base, one.Adapters, &room{r, one})
	if err != nil {
		return err
	}
	swap := one.Swap
	switch {
	case swap != "":
		err = trainer.LoadState(ctx, s.folder(swap), true)
	case one.Origin != nil:
		var from Checkpoint
		if from, err = s.checkpointAt(ctx, one.Tenant, one.Origin.Checkpoint, Weights); err == nil {
			err = trainer.LoadState(ctx, s.folder(from.Folder), one.Origin.Optimizer)
		}
	}
	if err == nil {
		one.Swap, one.Dirty, one.Next, one.Latest = "", true, 0, time.Now().Unix()
		err = s.put(ctx, runRow, one.ID, one.Tenant, one.Session, one.Run)
	}
	if err != nil {
		one.Swap = swap
		trainer.Close()
		return err
	}
	if swap != "" {
		s.removeFolder(swap)
	}
	one.trainer = trainer
	one.note()
	return nil
}

// leave takes a run's state out of memory.
func (r *residence) leave(ctx context.Context, one *run) error {
	one.working.Lock()
	defer one.working.Unlock()
	return r.leaveLocked(ctx, one)
}

func (r *residence) leaveLocked(ctx context.Context, one *run) error {
	if one.trainer == nil {
		return nil
	}
	if one.trainer.Lost() {
		r.lose(one)
		return nil
	}
	if one.trainer.Pending() {
		return fmt.Errorf("gradients wait for an optimizer step")
	}
	s := r.service
	swap := tuning.NewID("swap-")
	if err := one.trainer.SaveState(ctx, s.folder(swap)); err != nil {
		s.removeFolder(swap)
		return err
	}
	if err := s.config.Sync(s.folder(swap)); err != nil {
		s.removeFolder(swap)
		return err
	}
	one.Swap, one.Next, one.Latest = swap, one.order.position(), one.used.Unix()
	if err := s.put(ctx, runRow, one.ID, one.Tenant, one.Session, one.Run); err != nil {
		one.Swap = ""
		s.removeFolder(swap)
		return err
	}
	r.freeLocked(one)
	return nil
}

// lose ends a run whose state cannot be kept; its checkpoints stay.
func (r *residence) lose(one *run) {
	r.freeLocked(one)
	r.service.mutex.Lock()
	delete(r.service.runs, one.ID)
	r.service.mutex.Unlock()
	r.service.endCalls(one, errLost)
	one.order.notify()
}

// abandon takes a run out of memory whose client is gone. Gradients that wait for its step cannot be kept.
func (r *residence) abandon(ctx context.Context, one *run) {
	one.working.Lock()
	defer one.working.Unlock()
	if err := r.leaveLocked(ctx, one); err != nil {
		r.service.config.Log("warning", "training is lost with its session", map[string]any{"model": one.ID, "error": err.Error()})
		r.lose(one)
	}
}

var errLost = &inference.Error{Kind: gone, Code: "model_lost", Param: "model_id",
	Message: "the model's training was lost while it was in memory; create a training from its last checkpoint"}

func (r *residence) freeLocked(one *run) {
	if one.trainer != nil {
		one.trainer.Close()
		one.trainer = nil
	}
	one.note()
}

func (s *Service) removeFolder(id string) {
	if err := os.RemoveAll(s.folder(id)); err != nil {
		s.config.Log("warning", "a folder stays until the next start", map[string]any{"error": err.Error()})
	}
}
