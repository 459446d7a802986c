package keys

import (
	"context"
	"crypto/subtle"
	"sync"
	"time"

	"tessera.dev/service/store"
)

// freshness is how long a key that was read stays known: one made or revoked counts within it, by another process too.
const freshness = time.Second

// mostRemembered keys are in memory.
const mostRemembered = 4096

// Stored are the keys of a store, of whose secrets it has SHA-256 alone. Any goroutine.
type Stored struct {
	store *store.Store
	now   func() time.Time

	mutex  sync.Mutex
	known  map[string]entry // by id
	any    bool
	anyEnd time.Time // of what any says
}

type entry struct {
	store.Key
	found bool
	read  time.Time
}

// NewStored reads keys as they are asked for.
func NewStored(s *store.Store) *Stored {
	return &Stored{store: s, now: time.Now, known: map[string]entry{}}
}

// Lookup finds a key in either spelling. The secret is compared in constant time, also where the id is of none.
func (k *Stored) Lookup(token string) (Key, bool) {
	id, secret, spelled := parse(token)
	if !spelled {
		return Key{}, false
	}
	found := k.find(id)
	hash, wanted := hashOf(secret), make([]byte, 32)
	if found.found {
		wanted = found.Hash
	}
	if subtle.ConstantTimeCompare(hash[:], wanted) != 1 || !found.found || found.Revoked != 0 {
		return Key{}, false
	}
	key := Key{ID: id, Tenant: found.Tenant, Requests: found.Requests, Tokens: found.Tokens, Memory: found.Memory}
	for _, each := range found.Scopes {
		key.Scopes = append(key.Scopes, Scope(each))
	}
	return key, true
}

func (k *Stored) find(id string) entry {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if known, ok := k.known[id]; ok && k.now().Sub(known.read) < freshness {
		return known
	}
	key, found, err := k.store.Key(context.Background(), id)
	if err != nil { // a database that cannot be read opens no door
		return entry{}
	}
	if len(k.known) >= mostRemembered {
		k.known = map[string]entry{}
	}
	k.known[id] = entry{Key: key, found: found, read: k.now()}
	return k.known[id]
}

// Any says whether a key was ever made: revoking the last one does not open the service to all.
func (k *Stored) Any() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.any || k.now().Before(k.anyEnd) {
		return k.any
	}
	all, err := k.store.Keys(context.Background())
	k.any, k.anyEnd = err != nil || len(all) > 0, k.now().Add(freshness)
	return k.any
}

// Joined are keys of several places.
type Joined []Keys

// Lookup asks each.
func (j Joined) Lookup(token string) (Key, bool) {
	for _, each := range j {
		if key, found := each.Lookup(token); found {
			return key, true
		}
	}
	return Key{}, false
}

// Any asks each.
func (j Joined) Any() bool {
	for _, each := range j {
		if each.Any() {
			return true
		}
	}
	return false
}
