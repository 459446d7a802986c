package tinker

import (
	"context"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// Session is a client's process.
type Session struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name,omitempty"`
	Project  string            `json:"project,omitempty"` // "": the default one
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  int64             `json:"created"`
	Ended    bool              `json:"ended,omitempty"`
	Finish   *Finish           `json:"finish,omitempty"` // nil unless its client said that it was done

	beat time.Time
}

// Finish is what a client says at the end of its session.
type Finish struct {
	Reason string `json:"reason"` // success, errored, interrupted
	Detail string `json:"detail,omitempty"`
}

// NewSession begins one. key makes it safe to repeat; "" for none.
func (s *Service) NewSession(ctx context.Context, tenant, key string, given Session) (string, error) {
	if err := checkProject(given.Project); err != nil {
		return "", err
	}
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

var sessionEnded = &inference.Error{Kind: gone, Code: "session_ended", Param: "session_id", Message: "the session has ended; begin a new one"}

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
		if read.Ended {
			return nil, sessionEnded
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
		return nil, sessionEnded
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

// FinishSession ends a session as its client says. The first end counts; others change nothing.
func (s *Service) FinishSession(ctx context.Context, tenant, id string, finish Finish) error {
	var known Session
	if err := s.get(ctx, sessionRow, id, tenant, &known); err != nil || known.Ended {
		return err
	}
	found, err := s.session(ctx, tenant, id)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	first := !found.Ended
	if first {
		found.Ended, found.Finish = true, &finish
	}
	s.mutex.Unlock()
	if first {
		return s.endSessions([]*Session{found})
	}
	return nil
}

// endSilent ends the sessions whose client is gone.
func (s *Service) endSilent(now time.Time) {
	s.mutex.Lock()
	var ended []*Session
	for _, one := range s.sessions {
		if !one.Ended && now.Sub(one.beat) > s.config.SessionTime {
			one.Ended = true
			ended = append(ended, one)
		}
	}
	s.mutex.Unlock()
	if err := s.endSessions(ended); err != nil {
		s.config.Log("warning", "session's end is not kept", map[string]any{"error": err.Error()})
	}
}

// keepSession writes a session as it is.
func (s *Service) keepSession(one *Session) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.mutex.Lock()
	kept := *one
	s.mutex.Unlock()
	return s.put(s.life, sessionRow, kept.ID, kept.Tenant, "", kept)
}

// endSessions keeps the end of sessions: their trainers leave the memory, and their ephemeral samplers go.
func (s *Service) endSessions(ended []*Session) (err error) {
	var runs []*run
	var ephemeral []*Sampler
	for _, one := range ended {
		if failed := s.keepSession(one); failed != nil {
			err = failed
		}
		s.mutex.Lock()
		delete(s.sessions, one.ID)
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
		s.mutex.Unlock()
	}
	for _, one := range runs {
		s.residence.abandon(s.life, one)
	}
	for _, one := range ephemeral {
		s.dropEphemeral(one)
	}
	return err
}
