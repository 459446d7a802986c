package tinker

import (
	"context"
	"time"
)

// count adds some usage to the hour.
func (s *Service) count(tenant, session, base, kind string, count int64) {
	if count == 0 {
		return
	}
	hour := time.Now().UTC().Truncate(time.Hour).Unix()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.usage[Count{Hour: hour, Tenant: tenant, Session: session, Base: base, Kind: kind}] += count
}

// flushUsage writes what was counted since the last time. What cannot be written waits for the next.
func (s *Service) flushUsage(ctx context.Context) {
	s.mutex.Lock()
	counted := s.usage
	s.usage = map[Count]int64{}
	s.mutex.Unlock()
	if len(counted) == 0 {
		return
	}
	counts := make([]Count, 0, len(counted))
	for one, count := range counted {
		one.Count = count
		counts = append(counts, one)
	}
	err := s.config.Store.AddUsage(ctx, counts)
	if err == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for one, count := range counted {
		s.usage[one] += count
	}
	s.config.Log("warning", "usage waits to be written", map[string]any{"error": err.Error()})
}

// Usage lists a tenant's counts of hours.
func (s *Service) Usage(ctx context.Context, tenant string, from, until int64) ([]Count, error) {
	s.flushUsage(ctx)
	return s.config.Store.Usage(ctx, tenant, from, until)
}
