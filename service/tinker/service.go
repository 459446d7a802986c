package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tessera.dev/service/inference"
)

// Service is trainings by primitives. Any goroutine.
type Service struct {
	config Config
	life   context.Context // until Close
	stop   context.CancelFunc
	hard   context.Context // until what is in progress at Close has had its time
	halt   context.CancelFunc
	ended  sync.WaitGroup

	mutex    sync.Mutex
	futures  map[string]*Future
	sessions map[string]*Session
	runs     map[string]*run
	samplers map[string]*Sampler
	samples  map[sampleKey]*sampleCall
	usage    map[Count]int64 // with Count 0
	links    map[string]link

	completions map[client][]completion // in the order of their places
	completed   int64                   // begins above that of any earlier process, whose places clients may have
	news        chan struct{}           // closed with the next completion

	closed bool

	keeping sync.Mutex // held while a session is written
	copying sync.Mutex // held while a checkpoint is copied

	residence residence
}

// Kinds of rows.
const (
	sessionRow    = "session"
	runRow        = "run"
	checkpointRow = "checkpoint"
	samplerRow    = "sampler"
)

// New takes up what lasts; Close ends it.
func New(config Config) (*Service, error) {
	config.fill()
	life, stop := context.WithCancel(context.Background())
	hard, halt := context.WithCancel(context.Background())
	s := &Service{config: config, life: life, stop: stop, hard: hard, halt: halt, futures: map[string]*Future{}, sessions: map[string]*Session{}, runs: map[string]*run{},
		samplers: map[string]*Sampler{}, samples: map[sampleKey]*sampleCall{}, usage: map[Count]int64{}, links: map[string]link{},
		completions: map[client][]completion{}, news: make(chan struct{}), completed: time.Now().UnixMicro()}
	s.residence.service = s
	if err := os.MkdirAll(config.Store.TinkerFolder(), 0o700); err != nil {
		return nil, err
	}
	if err := s.restore(life); err != nil {
		stop()
		return nil, err
	}
	s.ended.Add(1)
	go s.keepHouse()
	return s, nil
}

// restore publishes checkpoints for sampling, and removes folders that no row names.
func (s *Service) restore(ctx context.Context) error {
	known := map[string]bool{}
	rows, _, err := s.config.Store.Rows(ctx, RowQuery{Kind: checkpointRow, AnyTenant: true})
	if err != nil {
		return err
	}
	for _, row := range rows {
		var one Checkpoint
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return err
		}
		known[one.Folder] = true
		if one.Kind == SamplerWeights && !one.expired(time.Now()) {
			if err := s.config.Models.PublishSnapshot(one.Path(), one.Base, s.folder(one.Folder)); err != nil {
				s.config.Log("warning", "checkpoint cannot be served", map[string]any{"path": one.Path(), "error": err.Error()})
			}
		}
	}
	if rows, _, err = s.config.Store.Rows(ctx, RowQuery{Kind: runRow, AnyTenant: true}); err != nil {
		return err
	}
	for _, row := range rows {
		var one Run
		if err := json.Unmarshal(row.Data, &one); err != nil {
			return err
		}
		if one.Swap != "" {
			known[one.Swap] = true
		}
	}
	entries, err := os.ReadDir(s.config.Store.TinkerFolder())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			if err := os.RemoveAll(s.folder(entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) folder(id string) string { return filepath.Join(s.config.Store.TinkerFolder(), id) }

// Close ends what is in progress, and keeps the state of trainings that have no gradients waiting.
func (s *Service) Close() {
	s.mutex.Lock()
	if s.closed {
		s.mutex.Unlock()
		return
	}
	s.closed = true
	runs := make([]*run, 0, len(s.runs))
	for _, one := range s.runs {
		runs = append(runs, one)
	}
	s.mutex.Unlock()
	s.stop()
	timer := time.AfterFunc(closeTime, s.halt) // a pass that is cut off loses its training
	s.ended.Wait()
	timer.Stop()
	defer s.halt()
	for _, one := range runs {
		if err := s.residence.leave(context.Background(), one); err != nil {
			s.config.Log("warning", "training is lost with the service's end", map[string]any{"model": one.ID, "error": err.Error()})
		}
	}
	s.flushUsage(context.Background())
}

// closeTime is what passes in progress have at Close.
const closeTime = 20 * time.Second

var errStopping = &inference.Error{Kind: inference.Overloaded, Code: "stopping", RetryAfter: 5, Message: "the service is stopping"}

// begin does something on a goroutine that Close waits for, or else where it is too late.
func (s *Service) begin(work func(ctx context.Context), otherwise func()) {
	s.mutex.Lock()
	closed := s.closed
	if !closed {
		s.ended.Add(1)
	}
	s.mutex.Unlock()
	if closed {
		otherwise()
		return
	}
	go func() {
		defer s.ended.Done()
		work(s.hard)
	}()
}

// housePeriod is how often what is old is looked for.
const housePeriod = 5 * time.Second

func (s *Service) keepHouse() {
	defer s.ended.Done()
	tick := time.NewTicker(housePeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case now := <-tick.C:
			s.dropFutures(now)
			s.dropSamples(now)
			s.dropCompletions()
			s.dropLinks(now)
			s.endSilent(now)
			s.flushUsage(s.life)
			if err := s.dropExpired(s.life, now); err != nil && s.life.Err() == nil {
				s.config.Log("warning", "checkpoints that expired stay", map[string]any{"error": err.Error()})
			}
		}
	}
}

// put writes a noun.
func (s *Service) put(ctx context.Context, kind, id, tenant, parent string, noun any) error {
	data, err := json.Marshal(noun)
	if err != nil {
		return err
	}
	return s.config.Store.PutRow(ctx, Row{kind, id, tenant, parent, data})
}

// get reads a noun of a tenant.
func (s *Service) get(ctx context.Context, kind, id, tenant string, noun any) error {
	row, found, err := s.config.Store.Row(ctx, kind, id)
	if err != nil {
		return err
	}
	if !found || row.Tenant != tenant {
		return missing(kind, id)
	}
	return json.Unmarshal(row.Data, noun)
}

func missing(kind, id string) error {
	return &inference.Error{Kind: inference.NotFound, Code: kind + "_not_found", Param: kind + "_id", Message: fmt.Sprintf("no %s %q is known here", kind, short(id))}
}

func isMissing(err error) bool {
	var known *inference.Error
	return errors.As(err, &known) && known.Kind == inference.NotFound
}
