package keys

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestAPassStandsForItsKeyUntilItExpires(t *testing.T) {
	memory := &Memory{}
	memory.Add("tml-right", Key{Tenant: "ada"})
	now := time.Now()
	passes := NewPasses(memory, []byte("secret"))
	passes.now = func() time.Time { return now }
	pass := passes.Issue("tml-right", map[string]any{"sub": "ada"})
	parts := strings.Split(pass, ".")
	if len(parts) != 3 || !strings.HasPrefix(pass, "eyJ") || strings.Contains(pass, "right") {
		t.Fatal(pass)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Sub      string
		Iat, Exp int64
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Sub != "ada" || claims.Exp-claims.Iat != int64(PassLife/time.Second) {
		t.Fatalf("found claims %s", text)
	}
	if key, known := passes.Lookup(pass); !known || key.Tenant != "ada" {
		t.Fatalf("found %+v %v", key, known)
	}
	if passes.Issue(pass, nil) != pass {
		t.Error("a pass got another one, which outlives it")
	}
	if _, known := NewPasses(memory, []byte("secret")).Lookup(pass); !known {
		t.Error("the same secret does not know a pass")
	}
	if _, known := NewPasses(memory, []byte("other")).Lookup(pass); known {
		t.Error("another secret knows the pass")
	}
	if wrong := passes.Issue("tml-wrong", nil); wrong == "" {
		t.Error("no pass")
	} else if _, known := passes.Lookup(wrong); known {
		t.Error("a pass opens for a key that is none")
	}
	for at := range pass { // no part may be changed
		changed := []byte(pass)
		if changed[at] ^= 1; at == len(pass)-1 {
			continue // the last letter has bits that spell nothing
		}
		if _, known := passes.Lookup(string(changed)); known {
			t.Fatalf("letter %d was changed, and the pass is known", at)
		}
		if _, known := passes.Lookup(pass[:at]); known {
			t.Fatalf("a pass of %d letters is known", at)
		}
	}
	if _, known := passes.Lookup("tml-right"); !known {
		t.Error("the key itself is not known")
	}
	now = now.Add(PassLife)
	if _, known := passes.Lookup(pass); known {
		t.Error("a pass that expired is known")
	}
}
