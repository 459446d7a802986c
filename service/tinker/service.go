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
	"tessera.dev/service/tuning"
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
	closed   bool

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
		samplers: map[string]*Sampler{}, samples: map[sampleKey]*sampleCall{}, usage: map[Count]int64{}}
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
			s.endSessions(now)
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

// Session is a client's process.
type Session struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  int64             `json:"created"`
	Ended    bool              `json:"ended,omitempty"`

	beat time.Time
}

// NewSession begins one. key makes it safe to repeat; "" for none.
func (s *Service) NewSession(ctx context.Context, tenant, key string, given Session) (string, error) {
	given.Tenant, given.Created, given.beat = tenant, time.Now().Unix(), time.Now()
	given.ID = tuning.NewID("session-")
	if key != "" {
		given.ID = "session-" + digestOf("session", tenant, key)[:24]
		var known Session
		if err := s.get(ctx, sessionRow, given.ID, tenant, &known); err == nil {
			return known.ID, nil
		}
	}
	if err := s.put(ctx, sessionRow, given.ID, tenant, "", given); err != nil {
		return "", err
	}
	s.mutex.Lock()
	s.sessions[given.ID] = &given
	s.mutex.Unlock()
	return given.ID, nil
}

// session finds one that has not ended, and counts as a heartbeat.
func (s *Service) session(ctx context.Context, tenant, id string) (*Session, error) {
	s.mutex.Lock()
	found := s.sessions[id]
	s.mutex.Unlock()
	if found == nil {
		read := &Session{}
		if err := s.get(ctx, sessionRow, id, tenant, read); err != nil {
			return nil, err
		}
		s.mutex.Lock()
		if found = s.sessions[id]; found == nil {
			s.sessions[id], found = read, read
		}
		s.mutex.Unlock()
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found.Tenant != tenant {
		return nil, missing(sessionRow, id)
	}
	if found.Ended {
		return nil, &inference.Error{Kind: gone, Code: "session_ended", Param: "session_id", Message: "the session has ended; begin a new one"}
	}
	found.beat = time.Now()
	return found, nil
}

// Heartbeat keeps a session alive.
func (s *Service) Heartbeat(ctx context.Context, tenant, id string) error {
	_, err := s.session(ctx, tenant, id)
	return err
}

// Session describes one, with the ids of its runs and samplers.
func (s *Service) Session(ctx context.Context, tenant, id string) (found Session, runs, samplers []string, err error) {
	if err := s.get(ctx, sessionRow, id, tenant, &found); err != nil {
		return found, nil, nil, err
	}
	for _, each := range []struct {
		kind string
		ids  *[]string
	}{{runRow, &runs}, {samplerRow, &samplers}} {
		rows, _, err := s.config.Store.Rows(ctx, RowQuery{Kind: each.kind, Tenant: tenant, Parent: id})
		if err != nil {
			return found, nil, nil, err
		}
		*each.ids = []string{}
		for _, row := range rows {
			*each.ids = append(*each.ids, row.ID)
		}
	}
	return found, runs, samplers, nil
}

// Sessions lists ids, the newest first.
func (s *Service) Sessions(ctx context.Context, tenant string, limit, offset int) ([]string, error) {
	rows, _, err := s.config.Store.Rows(ctx, RowQuery{Kind: sessionRow, Tenant: tenant, Limit: limit, Offset: offset})
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// endSessions ends those whose client is gone: their trainers leave the memory, and their ephemeral samplers go.
func (s *Service) endSessions(now time.Time) {
	s.mutex.Lock()
	var ended []*Session
	for id, one := range s.sessions {
		if now.Sub(one.beat) > s.config.SessionTime {
			delete(s.sessions, id)
			one.Ended = true
			ended = append(ended, one)
		}
	}
	var runs []*run
	var ephemeral []*Sampler
	for _, one := range ended {
		for _, each := range s.runs {
			if each.Session == one.ID {
				runs = append(runs, each)
			}
		}
		for id, each := range s.samplers {
			if each.Session == one.ID {
				delete(s.samplers, id)
				if each.Run != "" {
					ephemeral = append(ephemeral, each)
				}
			}
		}
	}
	s.mutex.Unlock()
	for _, one := range ended {
		if err := s.put(s.life, sessionRow, one.ID, one.Tenant, "", one); err != nil {
			s.config.Log("warning", "session's end is not kept", map[string]any{"error": err.Error()})
		}
	}
	for _, one := range runs {
		s.residence.abandon(s.life, one)
	}
	for _, one := range ephemeral {
		s.dropEphemeral(one)
	}
}
