package main

import (
	"bytes"
	"fmt"
	"strings"
)

// extremes are values in place of sound ones; some are no JSON.
var extremes = []string{
	"null", "true", "false", "0", "-1", "1", "-0", "-0.0", "1.5", "-1.5", "1e0", "1.0", "0.1e1", "1e400", "-1e400", "1e-400", "2147483647",
	"2147483648", "-2147483649",
	"4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
	"123456789012345678901234567890", "1e308", "1.7976931348623157e309", "5e-324", "NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.",
	"1e", "0x10", "1_000",
	`""`, `" "`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\uFFFF"`, `"\x41"`, `"\u12"`, "\"\x00\"", "\"\n\"",
	"\"\xff\xfe\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"",
	`"../../../etc/passwd"`, `"/etc/passwd"`, `"a\r\nX-Injected: 1"`, `"%s%n%d"`, `"'; DROP TABLE files; --"`, `"<script>alert(1)</script>"`,
	`"1"`, `"true"`, `"auto"`, `"none"`,
	"[]", "{}", "[[]]", "[{}]", "[null]", `[""]`, `[0,1]`, `[-1]`, `[1e400]`, `{"":null}`, `{"a":{"a":{"a":1}}}`, `{"type":null}`,
	`{"type":"function"}`, `{"type":[]}`, "'x'", "tru", "undefined", "/*x*/1", "",
}

// extreme is one of these, or a large one.
func (m *maker) extreme() string {
	if m.chance(0.9) {
		return extremes[m.Intn(len(extremes))]
	}
	count := 1 + m.Intn(4000)
	switch m.Intn(8) {
	case 0:
		return `"` + strings.Repeat("A", 16*count) + `"`
	case 1:
		return "[" + strings.Repeat("0,", count) + "0]"
	case 2:
		return strings.Repeat("[", count%200) + strings.Repeat("]", count%200)
	case 3:
		return strings.Repeat(`{"a":`, count%80) + "1" + strings.Repeat("}", count%80)
	case 4:
		return "{" + strings.Repeat(`"a":1,`, count) + `"a":2}`
	case 5:
		return `"` + strings.Repeat(`\u0000`, count) + `"`
	case 6:
		return strings.Repeat("9", count)
	}
	return "1e" + strings.Repeat("9", count%20+1)
}

// unknownNames are members that no request has, or that languages treat in their own way.
var unknownNames = []string{`"__proto__"`, `"constructor"`, `""`, `"temprature"`, `"Model"`, `"MODEL"`, `"\u006dodel"`, `"model "`,
	`"stream\u0000"`, `"n"`, `"best_of"`, `"logprobs"`,
	`"max_tokens"`, `"seed"`, `"stop"`, `"tools"`, `"tool_choice"`, `"logit_bias"`, `"response_format"`, `"temperature"`, `"top_k"`,
	`"stream"`, `"adapter"`, `"keep"`, `"logits"`, `"embed"`}

// mutate changes one place of a request.
func (m *maker) mutate(tree *node) {
	all := tree.all()
	at := all[m.Intn(len(all))]
	switch m.Intn(10) {
	case 0: // a member twice, or in another place
		if len(at.members) > 0 {
			one := at.members[m.Intn(len(at.members))]
			if m.chance(0.5) {
				one.value = node{leaf: m.extreme()}
			}
			at.members = append(at.members, one)
			return
		}
	case 1:
		if len(at.members) > 0 {
			i := m.Intn(len(at.members))
			at.members = append(at.members[:i], at.members[i+1:]...)
			return
		}
	case 2:
		if at.kind == '{' {
			at.members = append(at.members, member{unknownNames[m.Intn(len(unknownNames))], node{leaf: m.extreme()}})
			return
		}
	case 3: // a value of another place
		*at = all[m.Intn(len(all))].copy()
		return
	case 4:
		if at.kind == '[' && len(at.items) > 0 {
			for i := m.Intn(40); i > 0; i-- {
				at.items = append(at.items, at.items[m.Intn(len(at.items))].copy())
			}
			return
		}
	}
	*at = node{leaf: m.extreme()}
}

// request is a sound one of the corpus.
func (m *maker) request() (path string, tree node) {
	one := &m.corpus.requests[m.Intn(len(m.corpus.requests))]
	return one.path, one.body.copy()
}

// jsonMembers are requests whose form is mostly sound, with wrong members and values.
func (m *maker) jsonMembers() attack {
	path, tree := m.request()
	for i := 1 + m.Intn(3); i > 0; i-- {
		m.mutate(&tree)
	}
	return attack{bytes: post(path, "application/json", tree.text(), lastRequest), whole: true}
}

// jsonText are requests whose bytes were changed.
func (m *maker) jsonText() attack {
	path, tree := m.request()
	text := tree.text()
	for i := 1 + m.Intn(4); i > 0; i-- {
		text = m.changeBytes(text)
	}
	kind := "application/json"
	if m.chance(0.15) {
		kind = m.oneOf("text/plain", "application/json; charset=utf-16", "application/json; charset=\"", "", "application/x-www-form-urlencoded",
			"application/xml", "a/b/c", "application/x-protobuf",
			"application/problem+json", "multipart/form-data; boundary=x", ";", "application/json\x00")
	}
	more := []string{lastRequest}
	if m.chance(0.05) {
		more = append(more, "Content-Encoding: "+m.oneOf("gzip", "deflate", "br", "identity", "gzip, gzip", "x"))
	}
	return attack{bytes: post(path, kind, text, more...), whole: true}
}

// changeBytes is a text with one change.
func (m *maker) changeBytes(text []byte) []byte {
	if len(text) == 0 {
		return []byte(m.extreme())
	}
	at := m.Intn(len(text))
	switch m.Intn(11) {
	case 0:
		text = append([]byte{}, text...)
		text[at] ^= 1 << m.Intn(8)
	case 1:
		text = append([]byte{}, text[:at]...)
	case 2:
		text = append(append([]byte{}, text[:at]...), text[at+1:]...)
	case 3:
		random := make([]byte, 1+m.Intn(8))
		_, _ = m.Read(random)
		text = bytes.Join([][]byte{text[:at], random, text[at:]}, nil)
	case 4:
		end := at + m.Intn(len(text)-at)
		text = bytes.Join([][]byte{text[:end], text[at:end], text[end:]}, nil)
	case 5:
		text = append([]byte("\xef\xbb\xbf"), text...)
	case 6:
		text = append(append([]byte{}, text...), m.oneOf("x", "{}", "]", "\x00", " \n\t", ",", "//", "null")...)
	case 7:
		text = bytes.Join([][]byte{text[:at], []byte(m.extreme()), text[at:]}, nil)
	case 8:
		wide := make([]byte, 0, 2*len(text)+2)
		for _, each := range append([]byte{}, text...) {
			wide = append(wide, each, 0)
		}
		text = append([]byte("\xff\xfe"), wide...)
	case 9:
		text = []byte(m.extreme())
	default:
		text = append(bytes.Repeat([]byte(m.oneOf(" ", "\n", "\x00", "[", "{\"a\":", "\"")), 1+m.Intn(70000)), text...)
	}
	return text
}

// numbersOf spells whole numbers that lengths and counts may not be.
func (m *maker) numberText() string {
	return m.oneOf("-1", "+5", "0", "00", "1e3", "0x10", " 5", "5 ", "5,5", "5, 6", "18446744073709551616", "9223372036854775807",
		"9223372036854775808", "1.5", "", "a", "\u0665", "-0", "1_0",
		fmt.Sprint(m.Intn(1<<30)))
}
