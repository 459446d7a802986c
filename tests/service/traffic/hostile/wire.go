package main

import (
	"fmt"
	"strings"
)

var methods = []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI", "get", "G\x00T", "", "GET\tX",
	"A"}

var targets = []string{"/", "/health", "/v1/models", "/metrics", "/version", "/openapi.json", "/plan", "/v1/completions",
	"/v1/chat/completions", "/v1/files", "/v1/fine_tuning/jobs", "/api/tags",
	"/api/v1/sessions", "*", "//", "/..", "/%", "/%zz", "/%00", "/\x80", "http://localhost/health", "http://evil.example/health",
	"localhost:80", "/health?", "/health#x", "/health?%", "/plan?model=%00",
	"/v1//models", "/v1/./models", "/v1/models/../../health", "/health/", "/%68ealth", "/v1/models%2f", "\\health", "/he alth", "?", ""}

var strangeHeads = []string{"X: y", "X : y", " X: y", "\tX: y", ": y", "X", "X:\x00", "X: a\rb", "X: \xff", "Host: evil.example",
	"Host: localhost", "Host:", "Host: [::1", "Host: a b", "Host: localhost:99999999",
	"Expect: 100-continue", "Expect: 200-ok", "Connection: close", "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c",
	"HTTP2-Settings: AAMAAABkAAQAAP__", "Origin: null", "Origin: http://evil.example",
	"Origin: http://localhost", "Authorization: Bearer x", "Authorization: Basic eDp5", "Authorization:", "x-api-key: \x01",
	"Content-Type: application/json", "Content-Type: \"", "Accept: \x7f",
	"Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked",
	"Transfer-Encoding: x", "Transfer-Encoding:\tchunked", "Trailer: Content-Length",
	"Range: bytes=0-", "Range: bytes=-1", "If-None-Match: *", "Content-Range: bytes 0-1/2", "TE: trailers", "Cookie: a=b", "Traceparent: \x22",
	"Idempotency-Key: \x02", "X-Forwarded-Host: evil.example", "Keep-Alive: 99999999"}

// httpHead is a request whose first lines are strange.
func (m *maker) httpHead() attack {
	method := methods[m.Intn(len(methods))]
	if m.chance(0.5) {
		method = m.oneOf("GET", "POST")
	}
	if m.chance(0.02) {
		method = strings.Repeat("A", 1+m.Intn(40000))
	}
	target := targets[m.Intn(len(targets))]
	if m.chance(0.03) {
		target = "/" + strings.Repeat(m.oneOf("a", "/", "%41", "../", "\xff"), 1+m.Intn(20000))
	}
	version := "HTTP/1.1"
	if m.chance(0.2) {
		version = m.oneOf("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/3.0", "HTTP/1.2", "HTTP/11", "http/1.1", "HTTP/1.1 x", "HTTP/", "",
			"HTTP/-1.1", "HTTP/1.99999999999999999999", "RTSP/1.0")
	}
	end := "\r\n"
	if m.chance(0.1) {
		end = m.oneOf("\n", "\r", "\r\r\n", "\n\r", "\x00\r\n", "\v\r\n")
	}
	var text strings.Builder
	text.WriteString(method + m.oneOf(" ", " ", " ", " ", "  ", "\t", "") + target + m.oneOf(" ", " ", " ", " ", "  ", "\t") + version + end)
	if m.chance(0.85) {
		text.WriteString("Host: " + m.oneOf("localhost", "127.0.0.1", "[::1]:8080", "LOCALHOST.", "evil.example", "127.0.0.1.evil.example",
			"localhost@evil", "\u2460", "0x7f.1") + end)
	}
	for i := m.Intn(6); i > 0; i-- {
		text.WriteString(strangeHeads[m.Intn(len(strangeHeads))] + end)
	}
	if m.chance(0.03) {
		text.WriteString(strings.Repeat("X-"+m.oneOf("a", "b")+": "+strings.Repeat("y", m.Intn(100))+end, 1+m.Intn(2000)))
	}
	if m.chance(0.5) {
		text.WriteString("Content-Length: " + m.numberText() + end)
	}
	text.WriteString(end)
	if m.chance(0.5) {
		text.WriteString(m.extreme())
	}
	return attack{bytes: []byte(text.String()), head: method == "HEAD"}
}

// smuggling hides a request in the body of one whose length can be read in two ways.
func (m *maker) smuggling() attack {
	path := fmt.Sprintf("/smuggled-%d", m.number)
	hidden := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	length := func(name, value string) string { return name + ": " + value + "\r\n" }
	whole, none := fmt.Sprint(len(hidden)), "0"
	name := m.oneOf("Content-Length", "Content-Length", "content-length", "CONTENT-LENGTH")
	coding := m.oneOf("Transfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunked, identity", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: \"chunked\"",
		"Transfer-Encoding\x00: chunked", "X: y\nTransfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked",
		"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
		"Transfer_Encoding: chunked", "Transfer-Encoding: CHUNKED", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding:\r\n chunked") + "\r\n"
	var heads string
	switch m.Intn(7) {
	case 0:
		heads = length(name, whole) + coding
	case 1:
		heads = coding + length(name, whole)
	case 2:
		heads = length(name, whole) + length("Content-Length", none)
	case 3:
		heads = length("Content-Length", none) + length(name, whole)
	case 4:
		heads = length(name, m.oneOf("+", "-", "0x", "0", " ", "\t", "\v", "")+whole+m.oneOf("", ",", ", "+whole, " "+whole, ";", ".0", "e0"))
	case 5:
		heads = m.oneOf("Content-Length :", "Content_Length:", "Content-Length\x00:", "Content-Length;", "X: y\nContent-Length:",
			"Content-Length:\r\n ") + " " + whole + "\r\n"
	case 6:
		heads = coding
	}
	body := hidden
	if m.chance(0.5) {
		chunk := fmt.Sprintf("%x", len(hidden))
		body = m.oneOf("0\r\n\r\n"+hidden, chunk+"\r\n"+hidden+"\r\n0\r\n\r\n", chunk+";x=\n\r\n"+hidden+"\r\n0\r\n\r\n",
			chunk+"\n"+hidden+"\n0\n\n", "-1\r\n"+hidden, "FFFFFFFFFFFFFFFFF\r\n"+hidden, "0x"+chunk+"\r\n"+hidden,
			"0\r\nContent-Length: 9\r\n\r\n"+hidden, chunk+" \r\n"+hidden+"\r\n0\r\n\r\n")
	}
	line := m.oneOf("POST /v1/completions", "POST /v1/nothing", "GET /health", "POST /v1/files", "GET /v1/models",
		"POST /api/v1/forward_backward", "DELETE /v1/files/file-x")
	made := attack{bytes: []byte(line + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + heads + "\r\n" + body), smuggled: path}
	// With a length of 0, or none, the body's bytes are the next request, which is no smuggling.
	if body == hidden && (strings.HasPrefix(heads, "Transfer_Encoding") || strings.HasPrefix(heads, "Content_Length") || !isLength(heads)) {
		made.smuggled = ""
	}
	return made
}

// isLength says whether a server may take the headers for those of a body.
func isLength(heads string) bool {
	lower := strings.ToLower(heads)
	return strings.Contains(lower, "content-length") || strings.Contains(lower, "transfer-encoding")
}

// pipelining is several sound requests at once; replies come in their order.
func (m *maker) pipelining() attack {
	var made attack
	for i := 2 + m.Intn(12); i > 0; i-- {
		mark := fmt.Sprintf("mark-%d-%d", m.number, i)
		switch m.Intn(3) {
		case 0:
			made.bytes = append(made.bytes, "GET /v1/models/"+mark+" HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
		case 1:
			made.bytes = append(made.bytes, post("/v1/completions", "application/json", []byte(fmt.Sprintf(`{"model":%q,"prompt":"x"}`, mark)))...)
		default:
			made.bytes = append(made.bytes, post("/v1/completions", "application/json",
				[]byte(fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1,"echo":true,"stream":%v}`, m.corpus.model, mark,
					m.chance(0.5))))...)
		}
		made.marks = append(made.marks, mark)
	}
	return made
}
