package scripted

import (
	"context"
	"errors"
	"sort"
	"sync"

	"tessera.dev/service/tinker"
)

// Store keeps rows in memory.
type Store struct {
	Folder string
	mutex  sync.Mutex
	rows   []tinker.Row
	counts map[tinker.Count]int64
	// Full makes each write fail.
	Full bool
}

var errFull = errors.New("the disk is full")

// PutRow writes one.
func (s *Store) PutRow(_ context.Context, row tinker.Row) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.Full {
		return errFull
	}
	for i := range s.rows {
		if s.rows[i].Kind == row.Kind && s.rows[i].ID == row.ID {
			s.rows[i].Data = row.Data
			return nil
		}
	}
	s.rows = append(s.rows, row)
	return nil
}

// DropRow deletes one.
func (s *Store) DropRow(_ context.Context, kind, id string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := range s.rows {
		if s.rows[i].Kind == kind && s.rows[i].ID == id {
			s.rows = append(s.rows[:i:i], s.rows[i+1:]...)
			return nil
		}
	}
	return nil
}

// Row finds one.
func (s *Store) Row(_ context.Context, kind, id string) (tinker.Row, bool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, row := range s.rows {
		if row.Kind == kind && row.ID == id {
			return row, true, nil
		}
	}
	return tinker.Row{}, false, nil
}

// Rows lists some.
func (s *Store) Rows(_ context.Context, query tinker.RowQuery) (found []tinker.Row, all int, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := len(s.rows) - 1; i >= 0; i-- {
		row := s.rows[i]
		if row.Kind != query.Kind || query.Parent != "" && row.Parent != query.Parent || !query.AnyTenant && row.Tenant != query.Tenant {
			continue
		}
		if all++; all > query.Offset && (query.Limit == 0 || len(found) < query.Limit) {
			found = append(found, row)
		}
	}
	return found, all, nil
}

// AddUsage adds counts.
func (s *Store) AddUsage(_ context.Context, counts []tinker.Count) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.counts == nil {
		s.counts = map[tinker.Count]int64{}
	}
	for _, one := range counts {
		count := one.Count
		one.Count = 0
		s.counts[one] += count
	}
	return nil
}

// Usage lists them.
func (s *Store) Usage(_ context.Context, tenant string, from, until int64) (found []tinker.Count, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for one, count := range s.counts {
		if one.Tenant == tenant && one.Hour >= from && one.Hour < until {
			one.Count = count
			found = append(found, one)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Kind < found[j].Kind })
	return found, nil
}

// TinkerFolder is the folder of the test.
func (s *Store) TinkerFolder() string { return s.Folder }
