package main

import (
	"fmt"
	"math/rand"
)

// attack is a case: what is sent over one connection, and what has to come of it. It is a function of seed and number alone.
type attack struct {
	number int
	family string
	bytes  []byte
	// replies are the marks that the replies have in order, where the bytes are sound requests; nil: any replies.
	marks []string
	// smuggled is the path of a request that lies hidden in the bytes, and that no reply may speak of; "" for none.
	smuggled string
	vanishes bool // the client closes once it has sent
	head     bool // the method is HEAD: replies have no body
	whole    bool // one sound request in its form, which says Connection: close: one reply comes, and the end
}

// families with their weights.
var families = []struct {
	name   string
	weight int
	make   func(m *maker) attack
}{
	{"json members", 30, (*maker).jsonMembers},
	{"json text", 15, (*maker).jsonText},
	{"http head", 15, (*maker).httpHead},
	{"smuggling", 8, (*maker).smuggling},
	{"pipelining", 4, (*maker).pipelining},
	{"multipart", 9, (*maker).multipart},
	{"protobuf", 8, (*maker).protobuf},
	{"names", 8, (*maker).names},
	{"vanishing", 3, (*maker).vanishing},
	{"large", 1, (*maker).large},
}

// maker makes one attack.
type maker struct {
	*rand.Rand
	number int
	corpus *corpus
}

func makeAttack(seed int64, number int, from *corpus) attack {
	m := &maker{rand.New(rand.NewSource(seed<<32 + int64(number))), number, from}
	all := 0
	for _, family := range families {
		all += family.weight
	}
	at := m.Intn(all)
	for _, family := range families {
		if at -= family.weight; at < 0 {
			made := family.make(m)
			made.number, made.family = number, family.name
			return made
		}
	}
	panic("weights")
}

func (m *maker) oneOf(words ...string) string { return words[m.Intn(len(words))] }

func (m *maker) chance(share float64) bool { return m.Float64() < share }

const lastRequest = "Connection: close"

// post is a sound request with a body.
func post(path, kind string, body []byte, more ...string) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n", path, kind, len(body))
	for _, line := range more {
		head += line + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// vanishing clients ask for a long text, and are gone.
func (m *maker) vanishing() attack {
	body := fmt.Sprintf(`{"model":%q,"prompt":"Once","max_tokens":400,"ignore_eos":true,"n":%d,"stream":%v}`, m.corpus.model, 1+m.Intn(4), m.chance(0.7))
	return attack{bytes: post("/v1/completions", "application/json", []byte(body)), vanishes: true}
}
