package tinker

import (
	"context"
	"sort"
	"strings"
)

// Search is what sessions are looked for by. What is empty matches all.
type Search struct {
	ID, Name string // a session that matches either is found
	Projects []string
	Metadata map[string]string
	Statuses []SearchStatus
	After    Place
	Limit    int
}

// SearchStatus matches a status; of sessions that their client finished, those with one of Reasons, where there are such.
type SearchStatus struct {
	Status  string
	Reasons []string
}

// Place is that of a session in the list, the newest first; the zero Place is before all.
type Place struct {
	Created int64
	ID      string
}

// Statuses of a session. There are others on the wire, which none has here.
const (
	ActiveSession   = "active"
	FinishedSession = "client_finished" // its client said that it was done
	SilentSession   = ""                // its client is gone, or has not been heard of since the service began
)

// Found is a session that was looked for.
type Found struct {
	Session
	Status      string
	Project     string
	Checkpoints int
	Bytes       int64 // of these
}

// SearchSessions lists sessions, the newest first. more says that others follow the last one.
func (s *Service) SearchSessions(ctx context.Context, tenant string, by Search) (found []Found, more bool, err error) {
	all, err := s.AllSessions(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	sort.SliceStable(all, func(i, j int) bool { return placeOf(&all[i]).after(placeOf(&all[j])) })
	for i := range all {
		one := Found{Session: all[i], Status: s.statusOf(&all[i]), Project: all[i].InProject()}
		if by.After.ID != "" && !by.After.after(placeOf(&all[i])) || !by.matches(&one) {
			continue
		}
		if more = len(found) == by.Limit; more {
			break
		}
		found = append(found, one)
	}
	checkpoints, _, err := s.Checkpoints(ctx, tenant, "", 0, 0)
	if err != nil {
		return nil, false, err
	}
	at := map[string]*Found{}
	for i := range found {
		at[found[i].ID] = &found[i]
	}
	for i := range checkpoints {
		if one := at[sessionOf(checkpoints[i].Run)]; one != nil {
			one.Checkpoints++
			one.Bytes += checkpoints[i].Bytes
		}
	}
	return found, more, nil
}

func placeOf(one *Session) Place { return Place{one.Created, one.ID} }

// after says whether p is newer than other.
func (p Place) after(other Place) bool {
	return p.Created > other.Created || p.Created == other.Created && p.ID > other.ID
}

func (s *Service) statusOf(one *Session) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case one.Finish != nil:
		return FinishedSession
	case !one.Ended && s.sessions[one.ID] != nil:
		return ActiveSession
	}
	return SilentSession
}

func (by *Search) matches(one *Found) bool {
	if by.ID != "" || by.Name != "" {
		if !(by.ID != "" && one.ID == by.ID) && !(by.Name != "" && named(one.Name, by.Name)) {
			return false
		}
	}
	if by.Projects != nil && !has(by.Projects, one.Project) {
		return false
	}
	for name, value := range by.Metadata {
		if given, there := one.Metadata[name]; !there || given != value {
			return false
		}
	}
	for _, status := range by.Statuses {
		if status.Status == one.Status && (status.Reasons == nil || one.Finish != nil && has(status.Reasons, one.Finish.Reason)) {
			return true
		}
	}
	return by.Statuses == nil
}

// named says whether each word is somewhere in a name, in small or large letters.
func named(name, words string) bool {
	for _, word := range strings.Fields(strings.ToLower(words)) {
		if !strings.Contains(strings.ToLower(name), word) {
			return false
		}
	}
	return true
}

func has(all []string, wanted string) bool {
	for _, one := range all {
		if one == wanted {
			return true
		}
	}
	return false
}
