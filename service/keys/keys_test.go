package keys

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/service/store"
)

func open(t *testing.T, folder string) *store.Store {
	t.Helper()
	s, err := store.Open(folder, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func run(t *testing.T, folder string, wanted int, arguments ...string) string {
	t.Helper()
	var out, diagnostics bytes.Buffer
	if code := Command(arguments, folder, &out, &diagnostics); code != wanted {
		t.Fatalf("%v: status %d, wanted %d: %s", arguments, code, wanted, diagnostics.String())
	}
	return out.String() + diagnostics.String()
}

func TestAKeyIsFoundInBothSpellingsUntilItIsRevoked(t *testing.T) {
	folder := t.TempDir()
	stored := NewStored(open(t, folder))
	now := time.Now()
	stored.now = func() time.Time { return now }
	if stored.Any() {
		t.Fatal("keys before there are any")
	}
	key := strings.TrimSpace(run(t, folder, 0, "new", "--name", "laptop", "--tenant", "ada", "--scopes", "infer,files", "--memory", "2GiB"))
	now = now.Add(2 * freshness)
	keys := Joined{&Memory{}, stored}
	for _, spelled := range []string{key, TinkerSpelling(key)} {
		found, ok := keys.Lookup(spelled)
		if !ok || found.Tenant != "ada" || found.Memory != 2<<30 || !found.Allows(Files) || found.Allows(Train) || found.ID != key[4:12] {
			t.Fatalf("%q: %v %+v", spelled, ok, found)
		}
	}
	for _, wrong := range []string{"", "tsk-", key[:len(key)-1], key + "a", key[:len(key)-1] + "!", "tsk-" + strings.Repeat("a", 60),
		"sk-" + key[4:], key[:12] + strings.Repeat("a", 52), "TSK-" + key[4:]} {
		if _, ok := keys.Lookup(wrong); ok {
			t.Fatalf("%q is a key", wrong)
		}
	}
	if list := run(t, folder, 0, "list"); !strings.Contains(list, key[4:12]) || strings.Contains(list, key[12:]) {
		t.Fatal(list)
	}
	run(t, folder, 0, "revoke", key[4:12])
	now = now.Add(2 * freshness)
	if _, ok := keys.Lookup(key); ok {
		t.Fatal("a key that was revoked is found")
	}
	if !keys.Any() {
		t.Fatal("revoking the last key opens the service")
	}
}

func TestTheSecretIsNowhereInTheFolder(t *testing.T) {
	folder := t.TempDir()
	key := strings.TrimSpace(run(t, folder, 0, "new"))
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(key[12:])) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreNotAlike(t *testing.T) {
	seen := map[string]bool{}
	for i := 0; i < 1000; i++ {
		secret := random(secretLength)
		if len(secret) != secretLength || seen[secret] {
			t.Fatal(secret)
		}
		seen[secret] = true
	}
}

func TestRatesRefuseAndFillAgain(t *testing.T) {
	now := time.Now()
	rates := NewRates()
	rates.now = func() time.Time { return now }
	key := Key{ID: "a", Requests: 2, Tokens: 100}
	for i := 0; i < 2; i++ {
		if wait := rates.Take(key); wait != 0 {
			t.Fatal(wait)
		}
	}
	if wait := rates.Take(key); wait < 30 || wait > 31 {
		t.Fatal(wait)
	}
	if wait := rates.Take(Key{ID: "b", Requests: 2}); wait != 0 {
		t.Fatal("keys share a rate", wait)
	}
	now = now.Add(30 * time.Second)
	if wait := rates.Take(key); wait != 0 {
		t.Fatal(wait)
	}
	rates.Spend(key, 150)
	now = now.Add(25 * time.Second)
	if wait := rates.Take(key); wait == 0 {
		t.Fatal("a debt of tokens is not waited for")
	}
	now = now.Add(time.Minute)
	if wait := rates.Take(key); wait != 0 {
		t.Fatal(wait)
	}
}

func TestWrongCommandsAreRefused(t *testing.T) {
	folder := t.TempDir()
	for _, arguments := range [][]string{{"make"}, {"new", "--scopes", "root"}, {"new", "--memory", "2 cats"}, {"new", "--memory", "9999999999TiB"},
		{"new", "--requests", "-1"}, {"new", "extra"}, {"revoke"}, {"revoke", "nothere1"}} {
		if said := run(t, folder, 2, arguments...); said == "" {
			t.Errorf("%v: no word why", arguments)
		}
	}
}
