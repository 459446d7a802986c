package main

import (
	"testing"

	"tessera.dev/service/keys"
	"tessera.dev/service/store"
)

func TestPassesOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	known := &keys.Memory{}
	known.Add("tml-right", keys.Key{Tenant: "ada"})
	pass := ""
	for run := 0; run < 2; run++ {
		state, err := store.Open(folder, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		passes, err := newPasses(state, known)
		if err != nil {
			t.Fatal(err)
		}
		if pass == "" {
			pass = passes.Issue("tml-right", nil)
		} else if key, found := passes.Lookup(pass); !found || key.Tenant != "ada" {
			t.Errorf("found %+v %v", key, found)
		}
		if err := state.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
