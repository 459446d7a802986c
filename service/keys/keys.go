// Package keys says who may ask for what: keys with tenants, scopes and rates.
package keys

import (
	"crypto/sha256"
	"sync"
)

// Scope is what a key is good for.
type Scope string

// The scopes. Admin includes the others.
const (
	Infer Scope = "infer"
	Train Scope = "train"
	Files Scope = "files"
	Admin Scope = "admin"
)

// Key is what is known of a key.
type Key struct {
	ID     string // whose rates are counted; "": its tenant's
	Tenant string
	Scopes []Scope // none: all but admin
	// Limits per minute; 0: unlimited.
	Requests, Tokens int64
	Memory           int64 // bytes that its tenant may have in use; 0: any
}

// Allows says whether the key has a scope.
func (k Key) Allows(scope Scope) bool {
	if len(k.Scopes) == 0 {
		return scope != Admin
	}
	for _, one := range k.Scopes {
		if one == scope || one == Admin {
			return true
		}
	}
	return false
}

// Keys finds keys by their tokens.
type Keys interface {
	// Lookup gives the key of a token, in a time that does not depend on how much of it is right.
	Lookup(token string) (Key, bool)
	// Any says whether there are keys: without, requests need none.
	Any() bool
}

// Memory holds keys of the command line.
type Memory struct {
	mutex sync.RWMutex
	known map[[sha256.Size]byte]Key
}

// Add adds a token.
func (m *Memory) Add(token string, key Key) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.known == nil {
		m.known = map[[sha256.Size]byte]Key{}
	}
	m.known[sha256.Sum256([]byte(token))] = key
}

// Lookup finds by the hash, which tells nothing of the token.
func (m *Memory) Lookup(token string) (Key, bool) {
	hash := sha256.Sum256([]byte(token))
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	key, found := m.known[hash]
	return key, found
}

// Any says whether a token was added.
func (m *Memory) Any() bool {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	return len(m.known) > 0
}
