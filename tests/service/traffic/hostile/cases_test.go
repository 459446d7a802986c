package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func testCorpus(t *testing.T) *corpus {
	t.Helper()
	from, err := readCorpus("../../../../service/dialect", "small", "s", "s:train:0")
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// An attack is a function of seed and number, and making one leaves the corpus as it was.
func TestAttacksRepeat(t *testing.T) {
	from := testCorpus(t)
	var first [][]byte
	seen := map[string]int{}
	for number := 0; number < 600; number++ {
		made := makeAttack(1, number, from)
		first = append(first, made.bytes)
		seen[made.family]++
	}
	for number := 599; number >= 0; number-- {
		if again := makeAttack(1, number, from); !bytes.Equal(again.bytes, first[number]) {
			t.Fatalf("%d: found %q, before it was %q", number, again.bytes, first[number])
		}
	}
	if len(seen) != len(families) {
		t.Errorf("found the families %v, wanted %d", seen, len(families))
	}
	if other := makeAttack(2, 0, from); bytes.Equal(other.bytes, first[0]) {
		t.Error("another seed sends the same")
	}
}

// The corpus is sound JSON, and stays what it was.
func TestTrees(t *testing.T) {
	for _, one := range testCorpus(t).requests {
		if text := one.body.text(); !json.Valid(text) {
			t.Errorf("%s: %s", one.path, text)
		}
	}
	const text = `{"a":[1,{"b":"c\n"},null],"d":1e9,"e":{}}`
	tree, err := parseJSON([]byte(text))
	if err != nil || string(tree.text()) != text {
		t.Errorf("found %s, %v", tree.text(), err)
	}
}

func TestJudge(t *testing.T) {
	ours := map[string][]string{"X-Request-Id": {"req"}, "Content-Type": {"application/json"}}
	for _, each := range []struct {
		name   string
		attack attack
		reply  reply
		fault  bool
	}{
		{"error", attack{}, reply{400, ours, []byte(`{"error":{"message":"m"}}`)}, false},
		{"Ollama's", attack{}, reply{404, ours, []byte(`{"error":"m"}`)}, false},
		{"Tinker's", attack{}, reply{409, ours, []byte(`{"detail":"m"}`)}, false},
		{"no message", attack{}, reply{400, ours, []byte(`{}`)}, true},
		{"no JSON", attack{}, reply{200, ours, []byte(`{`)}, true},
		{"fault", attack{}, reply{500, ours, []byte(`{"error":{"message":"m"}}`)}, true},
		{"unknown coding", attack{}, reply{501, nil, []byte("Unsupported transfer encoding")}, false},
		{"net/http's 500", attack{}, reply{500, nil, nil}, true},
		{"hidden", attack{smuggled: "/s-1"}, reply{404, ours, []byte(`{"error":{"message":"there is no path \"/s-1\""}}`)}, true},
		{"files", attack{}, reply{200, ours, []byte(`"root:x:0:"`)}, true},
	} {
		if found := judge(&each.attack, []reply{each.reply}, nil, "/state"); (found != "") != each.fault {
			t.Errorf("%s: found %q", each.name, found)
		}
	}
	if judge(&attack{marks: []string{"a", "b"}}, []reply{{200, ours, []byte(`"b"`)}, {200, ours, []byte(`"a"`)}}, nil, "/state") == "" {
		t.Error("replies in another order are taken")
	}
}

// The largest bodies are within what the service reads, so that each is taken in whole.
func TestWarmAttacksAreReadWhole(t *testing.T) {
	from := testCorpus(t)
	for number := 0; number < largeKinds; number++ {
		if size := len(warmAttack(1, number, from).bytes); size < 6<<20 || size > 8<<20 {
			t.Errorf("kind %d: found %d bytes, wanted almost 8 MiB", number, size)
		}
	}
}
