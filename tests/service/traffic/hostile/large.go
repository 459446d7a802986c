package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
	"strings"
)

// Sizes of large bodies; the service reads 8 MiB.
const (
	leastLarge = 64 << 10
	mostLarge  = 9 << 20
	warmLarge  = 7 << 20
)

// largeKinds is the count of the kinds of large bodies.
const largeKinds = 12

// large is a body that takes much time or memory where its cost is more than in proportion to its size.
func (m *maker) large() attack {
	size := int(leastLarge * math.Exp(m.Float64()*math.Log(mostLarge/leastLarge)))
	return m.largeOf(m.Intn(largeKinds), size)
}

// warmAttack is one of the largest bodies that the service reads, each kind in turn.
func warmAttack(seed int64, number int, from *corpus) attack {
	m := &maker{rand.New(rand.NewSource(seed<<32 + int64(number))), number, from}
	made := m.largeOf(number%largeKinds, warmLarge)
	made.number, made.family = number, "large"
	return made
}

// largeOf is a large body of a kind.
func (m *maker) largeOf(kind, size int) attack {
	fill := func(piece string) string { return strings.Repeat(piece, size/len(piece)+1) }
	list := func(piece string) string { return "[" + strings.TrimSuffix(fill(piece+","), ",") + "]" }
	model := fmt.Sprintf(`"model":%q`, m.corpus.model)
	var path, body string
	switch kind {
	case 0:
		path, body = "/v1/completions", `{`+model+`,"prompt":"`+fill(m.oneOf("a", "a ", " ", "aé", "\\n", "0", "\\u4e2d"))+`"}`
	case 1:
		path, body = "/v1/completions", `{`+model+`,"prompt":`+list(m.oneOf("1", "-1", `"a"`, "[1]", "1e9"))+`}`
	case 2:
		path, body = "/v1/chat/completions", `{`+model+`,"messages":`+list(`{"role":"user","content":"a"}`)+`}`
	case 3:
		path, body = "/v1/completions", `{`+model+`,"prompt":"a","stop":`+list(`"b"`)+`}`
	case 4:
		var members strings.Builder
		for i := 0; members.Len() < size; i++ {
			fmt.Fprintf(&members, `,"%d":1`, i)
		}
		path, body = "/v1/completions", `{`+model+`,"prompt":"a","logit_bias":{"1":1`+members.String()+`}}`
	case 5:
		path, body = "/v1/completions", `{`+model+`,"prompt":"a","guided_regex":"`+fill(m.oneOf("a", "(a|b)", "a?", "[a-z]{1,9}", "("))+`"}`
	case 6:
		path, body = "/v1/chat/completions", `{`+model+`,"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"enum":`+list(`"a"`)+`}}}}`
	case 7:
		path, body = "/v1/embeddings", `{`+model+`,"input":`+list(`"a"`)+`}`
	case 8:
		path, body = "/tokenize", `{`+model+`,"prompt":"`+fill(m.oneOf("a", " ", "ab", "\\u0000"))+`"}`
	case 9:
		path, body = "/detokenize", `{`+model+`,"tokens":`+list("1")+`}`
	case 10:
		path, body = "/v1/messages", `{`+model+`,"max_tokens":1,"messages":[{"role":"user","content":`+list(`{"type":"text","text":"a"}`)+`}]}`
	default:
		path, body = m.corpus.requests[m.Intn(len(m.corpus.requests))].path, fill(m.oneOf("[", `{"a":`, " ", `"`, "\\", "{}"))
	}
	text := []byte(body)
	if m.chance(0.1) {
		text = bytes.TrimRight(text, "}]")
	}
	return attack{bytes: post(path, "application/json", text, lastRequest), whole: true}
}
