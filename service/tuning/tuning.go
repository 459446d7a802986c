// Package tuning is what dialects, and whoever shows them, ask of files and trainings: their nouns, and the interfaces that
// packages store and jobs implement. Errors for the client's eyes are *inference.Error.
package tuning

import (
	"crypto/rand"
	"strings"
)

// Page is a part of a list. After names the last item of the part before it; "" for the first part.
type Page struct {
	After     string
	Limit     int
	Ascending bool // the oldest first
}

// Once makes a request safe to repeat: one with the same key and digest gives the first one's result for 24 hours, one with
// the same key and another digest is a Conflict. The zero value repeats nothing.
type Once struct {
	Tenant string
	Route  string // as "POST /v1/fine_tuning/jobs"
	Key    string // of the client; "" for none
	Digest [32]byte
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// NewID returns the prefix with 24 random letters and digits.
func NewID(prefix string) string {
	var id strings.Builder
	id.WriteString(prefix)
	block := make([]byte, 32)
	for count := 0; count < 24; {
		if _, err := rand.Read(block); err != nil {
			panic(err) // the system has no random numbers
		}
		for _, each := range block {
			if at := int(each & 63); at < len(letters) && count < 24 {
				id.WriteByte(letters[at])
				count++
			}
		}
	}
	return id.String()
}
