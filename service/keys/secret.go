package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// A key is a prefix, 8 letters and digits that are its id and may be seen, and 52 that are its secret. The secret alone is
// hashed, as it is written: 256 random bits need no slow hash.
const (
	prefix       = "tsk-"
	tinkerPrefix = "tml-" // the same key, in the spelling that Tinker's SDK insists on
	idLetters    = 8
	secretLength = 52
)

var spelling = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// random is letters and digits of random bits.
func random(letters int) string {
	bits := make([]byte, (letters*5+7)/8)
	if _, err := rand.Read(bits); err != nil {
		panic(err) // the system has no random numbers
	}
	return spelling.EncodeToString(bits)[:letters]
}

// parse splits a key; ok where it is spelled as one.
func parse(key string) (id, secret string, ok bool) {
	rest := strings.TrimPrefix(key, prefix)
	if rest == key {
		rest = strings.TrimPrefix(key, tinkerPrefix)
	}
	if rest == key || len(rest) != idLetters+secretLength {
		return "", "", false
	}
	return rest[:idLetters], rest[idLetters:], true
}

// TinkerSpelling is the same key for Tinker's SDK.
func TinkerSpelling(key string) string { return tinkerPrefix + strings.TrimPrefix(key, prefix) }

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
