package keys

import (
	"sync"
	"time"
)

// Rates count what keys used, by their rates.
type Rates struct {
	mutex sync.Mutex
	uses  map[string]*use
	now   func() time.Time
}

// use is what is left of a key's minute.
type use struct {
	requests, tokens float64
	at               time.Time
}

// NewRates begins with whole minutes.
func NewRates() *Rates { return &Rates{uses: map[string]*use{}, now: time.Now} }

// left refills what is left; with the mutex held.
func (r *Rates) left(key Key) *use {
	now := r.now()
	name := "tenant " + key.Tenant
	if key.ID != "" {
		name = "key " + key.ID
	}
	u := r.uses[name]
	if u == nil {
		u = &use{requests: float64(key.Requests), tokens: float64(key.Tokens), at: now}
		r.uses[name] = u
	}
	minutes := now.Sub(u.at).Minutes()
	u.at = now
	u.requests = refill(u.requests, minutes, key.Requests)
	u.tokens = refill(u.tokens, minutes, key.Tokens)
	return u
}

func refill(left, minutes float64, rate int64) float64 {
	if left += minutes * float64(rate); left > float64(rate) {
		return float64(rate)
	}
	return left
}

// Take counts a request; wait is after how many seconds it would be allowed, 0 where it is.
func (r *Rates) Take(key Key) (wait int) {
	if key.Requests == 0 && key.Tokens == 0 {
		return 0
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	u := r.left(key)
	if key.Tokens > 0 && u.tokens <= 0 {
		return seconds(-u.tokens+1, key.Tokens)
	}
	if key.Requests > 0 && u.requests < 1 {
		return seconds(1-u.requests, key.Requests)
	}
	u.requests--
	return 0
}

func seconds(missing float64, rate int64) int { return int(missing*60/float64(rate)) + 1 }

// Spend counts tokens, once they are known. What is beyond the rate is taken off the next minutes.
func (r *Rates) Spend(key Key, tokens int64) {
	if key.Tokens == 0 {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.left(key).tokens -= float64(tokens)
}
