package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"

	"tessera.dev/service/keys"
	"tessera.dev/service/store"
	"tessera.dev/service/tinker"
)

// newPasses are keys with the passes that stand for them. Their secret is in the store, so that passes outlive the process; what it seals
// is a key, without which it opens nothing.
func newPasses(state *store.Store, known keys.Keys) (*keys.Passes, error) {
	const kind, id = "secret", "passes"
	ctx := context.Background()
	row, found, err := state.Row(ctx, kind, id)
	if err != nil {
		return nil, err
	}
	if !found {
		secret := make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		row = tinker.Row{Kind: kind, ID: id, Data: []byte(base64.StdEncoding.EncodeToString(secret))}
		if err := state.PutRow(ctx, row); err != nil {
			return nil, err
		}
	}
	return keys.NewPasses(known, row.Data), nil
}
