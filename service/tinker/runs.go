package tinker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"tessera.dev/service/inference"
)

// Run is a training: a model of Tinker's.
type Run struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Session  string            `json:"session"`
	Base     string            `json:"base"`
	Adapters Adapters          `json:"adapters"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  int64             `json:"created"`
	Latest   int64             `json:"latest"`           // seconds since 1970 of the latest request, about
	Digest   string            `json:"digest"`           // of the request that made it
	Next     int64             `json:"next"`             // the number of the next request, where Swap is set
	Swap     string            `json:"swap,omitempty"`   // the folder of its state while that is not in memory
	Dirty    bool              `json:"dirty,omitempty"`  // its state has been in memory
	Ended    bool              `json:"ended,omitempty"`  // unloaded for good
	Origin   *Origin           `json:"origin,omitempty"` // what it begins with; nil: new adapters
	Copied   string            `json:"copied,omitempty"` // the path of what it is a copy of: there is nothing to train
	Sort     Base              `json:"sort"`
}

// Origin is a checkpoint that a run begins with.
type Origin struct {
	Checkpoint string `json:"checkpoint"` // its path
	Optimizer  bool   `json:"optimizer"`
}

// run is one whose requests are worked on.
type run struct {
	Run
	order *order

	working sync.Mutex // held while the trainer is used
	trainer Trainer    // nil while its state is not in memory
	used    time.Time

	place sync.Mutex // of what others see of the trainer
	seen  resident
}

// resident is what others see of a run: whether it is in memory, the trainer that it shares, and that one's bytes. A run that works
// counts as it did before.
type resident struct {
	there  bool
	shared string
	bytes  int64
	since  time.Time // its last use
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// RunOrder is the request for a run.
type RunOrder struct {
	Session  string
	Number   int64 // of the session's runs
	Base     string
	Adapters Adapters
	Metadata map[string]string
	Digest   [32]byte
	Origin   *Origin
}

// NewRun makes a run, whose id is that of its session and its number. The future is done once its adapters are made, or with an
// origin once that is read.
func (s *Service) NewRun(ctx context.Context, tenant string, given RunOrder) (*Future, error) {
	if _, err := s.session(ctx, tenant, given.Session); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s:train:%d", given.Session, given.Number)
	made := Run{ID: id, Tenant: tenant, Session: given.Session, Base: given.Base, Adapters: given.Adapters, Metadata: given.Metadata,
		Created: time.Now().Unix(), Latest: time.Now().Unix(), Digest: hex.EncodeToString(given.Digest[:]), Next: 1, Origin: given.Origin}
	var known Run
	if err := s.get(ctx, runRow, id, tenant, &known); err == nil {
		if known.Digest != made.Digest {
			return nil, &inference.Error{Kind: inference.Conflict, Code: "model_seq_id_reused", Param: "model_seq_id",
				Message: fmt.Sprintf("model_seq_id %d of this session was used with another request", given.Number)}
		}
		one, err := s.run(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		return s.create(one), nil
	} else if !isMissing(err) {
		return nil, err
	}
	if given.Origin != nil {
		checkpoint, err := s.checkpointAt(ctx, tenant, given.Origin.Checkpoint, Weights)
		if err != nil {
			return nil, err
		}
		if made.Base != "" && made.Base != checkpoint.Base {
			return nil, invalid("base_model", "found %q, and the checkpoint is of %q", short(made.Base), checkpoint.Base)
		}
		made.Base, made.Adapters = checkpoint.Base, checkpoint.Adapters
	}
	base, err := s.config.Trainers.Base(ctx, made.Base)
	if err != nil {
		return nil, err
	}
	made.Sort = base
	if made.Adapters.Head && !base.Head {
		made.Adapters.Head = false
		s.config.Log("warning", "the head gets no adapters: it is the token table, or none of its own", map[string]any{"model": id, "base": base.Name})
	}
	if !made.Adapters.Head && !made.Adapters.MLP && !made.Adapters.Attention {
		return nil, invalid("lora_config", "nothing is left to train: attention and MLP are left out, and the head cannot have adapters")
	}
	if err := s.put(ctx, runRow, id, tenant, made.Session, made); err != nil {
		return nil, err
	}
	one, err := s.run(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	return s.create(one), nil
}

// create is what a run begins with: its origin is read at once, so that a wrong one is an error here. New adapters are made with the
// first pass.
func (s *Service) create(one *run) *Future {
	f := s.newFuture(one.Tenant, one.ID)
	if one.Origin == nil {
		f.finish(&Created{one.ID}, nil)
		return f
	}
	s.begin(func(ctx context.Context) {
		if err := s.residence.enter(withFuture(ctx, f), one, func(Trainer) error { return nil }); err != nil {
			f.finish(nil, err)
			return
		}
		f.finish(&Loaded{one.ID, one.Origin.Checkpoint}, nil)
	}, func() { f.finish(nil, errStopping) })
	return f
}

// Info describes a run.
func (s *Service) Info(ctx context.Context, tenant, id string) (Run, error) {
	var found Run
	err := s.get(ctx, runRow, id, tenant, &found)
	return found, err
}

// Runs lists them, the newest first; project "": those of all.
func (s *Service) Runs(ctx context.Context, tenant, project string, limit, offset int) (runs []Run, all int, err error) {
	query := RowQuery{Kind: runRow, Tenant: tenant, Limit: limit, Offset: offset}
	var projects map[string]string
	if project != "" {
		query.Limit, query.Offset = 0, 0
		if projects, err = s.projects(ctx, tenant); err != nil {
			return nil, 0, err
		}
	}
	rows, all, err := s.config.Store.Rows(ctx, query)
	for _, row := range rows {
		var one Run
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return nil, 0, err
		}
		if project == "" || projects[one.Session] == project {
			runs = append(runs, one)
		}
	}
	if project == "" || err != nil {
		return runs, all, err
	}
	all = len(runs)
	if offset > all {
		offset = all
	}
	if runs = runs[offset:]; limit > 0 && limit < len(runs) {
		runs = runs[:limit]
	}
	return runs, all, nil
}

// run finds one that may work, and starts its worker where it has none.
func (s *Service) run(ctx context.Context, tenant, id string) (*run, error) {
	s.mutex.Lock()
	found := s.runs[id]
	s.mutex.Unlock()
	if found != nil {
		if found.Tenant != tenant {
			return nil, missing("model", id)
		}
		return found, nil
	}
	var read Run
	if err := s.get(ctx, runRow, id, tenant, &read); err != nil {
		if isMissing(err) {
			err = missing("model", id)
		}
		return nil, err
	}
	switch {
	case read.Copied != "":
		return nil, &inference.Error{Kind: gone, Code: "model_is_a_copy", Param: "model_id",
			Message: "the model holds a copy of a checkpoint and cannot be trained; load the copy into another one"}
	case read.Ended:
		return nil, &inference.Error{Kind: gone, Code: "model_unloaded", Param: "model_id", Message: "the model was unloaded; load one of its checkpoints"}
	case read.Dirty && read.Swap == "":
		return nil, errLost
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found = s.runs[id]; found != nil {
		return found, nil
	}
	if s.closed {
		return nil, errStopping
	}
	next := int64(1)
	if read.Swap != "" {
		next = read.Next
	}
	found = &run{Run: read, order: newOrder(next), used: time.Now()}
	s.runs[id] = found
	s.ended.Add(1)
	go s.work(found)
	return found, nil
}

// addCall adds a request to a run.
func (s *Service) addCall(one *run, given Numbered, work func(ctx context.Context) (any, error)) (*Future, error) {
	return one.order.add(given, func() *Future { return s.newFuture(one.Tenant, one.ID) }, work)
}

// submit adds a request of a client. A failure that is known already is the request's result: its number came.
func (s *Service) submit(ctx context.Context, tenant, id string, given Numbered, failure error, work func(ctx context.Context, one *run) (any, error)) (*Future, error) {
	if given.Number < 0 {
		return nil, invalid("seq_id", "found %d, wanted 1 or more", given.Number)
	}
	one, err := s.run(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if given.Number == 0 {
		given.Number = unnumbered
	}
	return s.addCall(one, given, func(ctx context.Context) (any, error) {
		if failure != nil {
			return nil, failure
		}
		return work(ctx, one)
	})
}

// work does the requests of a run in their order.
func (s *Service) work(one *run) {
	defer s.ended.Done()
	for {
		turn, failed, wait := one.order.take(s.config.GapTime)
		for _, each := range failed {
			each.future.finish(nil, &inference.Error{Kind: inference.Conflict, Code: "seq_id_missing", Param: "seq_id", Message: fmt.Sprintf(
				"a request with a number before %d did not come within %v; numbers up to here have passed", each.Number, s.config.GapTime)})
		}
		if turn != nil {
			result, err := turn.work(withFuture(s.hard, turn.future))
			turn.future.finish(result, err)
			turn.work = nil
			continue
		}
		if failed != nil {
			continue
		}
		if wait < 0 || wait > time.Minute {
			wait = time.Minute
		}
		timer := time.NewTimer(wait)
		select {
		case <-one.order.wake:
		case <-timer.C:
		case <-s.life.Done():
			timer.Stop()
			s.endCalls(one, errStopping)
			return
		}
		timer.Stop()
		if one.order.done() {
			return
		}
	}
}

func (s *Service) endCalls(one *run, err error) {
	for _, each := range one.order.close() {
		each.future.finish(nil, err)
	}
}

type futureKey struct{}

func withFuture(ctx context.Context, f *Future) context.Context {
	return context.WithValue(ctx, futureKey{}, f)
}

func pause(ctx context.Context, reason string) {
	if f, ok := ctx.Value(futureKey{}).(*Future); ok {
		f.pause(reason)
	}
}

// Unload ends a run for good; its checkpoints stay.
func (s *Service) Unload(ctx context.Context, tenant, id string, given Numbered) (*Future, error) {
	return s.submit(ctx, tenant, id, given, nil, func(ctx context.Context, one *run) (any, error) {
		one.working.Lock()
		swap := one.Swap
		one.Ended, one.Swap = true, ""
		s.residence.freeLocked(one)
		one.working.Unlock()
		err := s.put(ctx, runRow, one.ID, one.Tenant, one.Session, one.Run)
		if swap != "" {
			s.removeFolder(swap)
		}
		s.endCalls(one, &inference.Error{Kind: gone, Code: "model_unloaded", Message: "the model was unloaded"})
		s.mutex.Lock()
		delete(s.runs, one.ID)
		s.mutex.Unlock()
		return &Ended{one.ID}, err
	})
}

func (one *run) resident() resident {
	one.place.Lock()
	defer one.place.Unlock()
	return one.seen
}

// note says what resident tells; the working lock is held.
func (one *run) note() {
	seen := resident{since: one.used}
	if one.trainer != nil {
		seen.there, seen.shared, seen.bytes = true, one.trainer.Shared(), one.trainer.Bytes()
	}
	one.place.Lock()
	defer one.place.Unlock()
	one.seen = seen
}

// Lives says whether a run works in this process.
func (s *Service) Lives(id string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.runs[id] != nil
}
