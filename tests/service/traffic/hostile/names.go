package main

import (
	"fmt"
	"strings"
)

// namedPaths have a name in them, or a number in their query.
var namedPaths = []string{"GET /v1/models/NAME", "GET /v1/files/NAME", "GET /v1/files/NAME/content", "DELETE /v1/files/NAME",
	"GET /v1/fine_tuning/jobs/NAME", "GET /v1/fine_tuning/jobs/NAME/events",
	"GET /v1/fine_tuning/jobs/NAME/checkpoints", "POST /v1/fine_tuning/jobs/NAME/cancel", "POST /v1/fine_tuning/jobs/NAME/pause",
	"GET /api/v1/training_runs/NAME", "GET /api/v1/training_runs/NAME/checkpoints",
	"GET /api/v1/sessions/NAME", "GET /api/v1/samplers/NAME", "DELETE /api/v1/training_runs/NAME/checkpoints/weights/NAME",
	"PUT /api/v1/training_runs/NAME/checkpoints/weights/NAME/ttl",
	"POST /api/v1/training_runs/NAME/checkpoints/sampler_weights/NAME/publish", "GET /plan?model=NAME", "GET /v1/files?limit=NUMBER",
	"GET /v1/files?after=NAME&limit=NUMBER&order=NAME&purpose=NAME",
	"GET /v1/fine_tuning/jobs?limit=NUMBER&after=NAME", "GET /v1/fine_tuning/jobs/NAME/events?limit=NUMBER&after=NAME",
	"GET /api/v1/training_runs?limit=NUMBER&offset=NUMBER", "GET /api/v1/checkpoints?limit=NUMBER&offset=NUMBER",
	"GET /api/v1/sessions?limit=NUMBER&offset=NUMBER", "GET /api/v1/billing/usage/events?start=NAME&end=NUMBER&limit=NUMBER",
	"GET /openapi.json?NAME", "GET /NAME", "GET /v1/NAME"}

var trickyNames = []string{"../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fetc/passwd", "..%5c..%5cx", "%00", "a%00b",
	"%252e%252e%252f", "%c0%ae%c0%ae%2f", "....//", "/etc/passwd", "//etc/passwd", "%2Fetc%2Fpasswd",
	"file:%2f%2f%2fetc%2fpasswd", "~", ".", "..", "...", "%20", "%0d%0aX:%20y", "%0a", "CON", "nul", "a:b", "a;b", "a|b", "$(id)", "%60id%60",
	"'%20OR%20'1'='1", "%25s", "%ff%fe", "%ed%a0%80", "%f0%9f%98%80", "*", "?", "%3f", "%23", "+",
	"file-", "file-%2e%2e", "ftjob-0", "small", "small:latest", "small:x", ":", "tinker:%2f%2fx%2fweights%2fy", "state%2fkeys.db", "%7B%7D", "-1", "0"}

func (m *maker) names() attack {
	target := namedPaths[m.Intn(len(namedPaths))]
	for strings.Contains(target, "NAME") {
		name := trickyNames[m.Intn(len(trickyNames))]
		if m.chance(0.05) {
			name = strings.Repeat(m.oneOf("a", "%2e%2e%2f", "%00", "../"), 1+m.Intn(3000))
		}
		target = strings.Replace(target, "NAME", name, 1)
	}
	for strings.Contains(target, "NUMBER") {
		number := strings.NewReplacer(" ", "%20").Replace(m.numberText())
		target = strings.Replace(target, "NUMBER", number, 1)
	}
	method, path, _ := strings.Cut(target, " ")
	if m.chance(0.1) {
		method = m.oneOf("GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
	}
	body := ""
	if method == "POST" || method == "PUT" {
		body = m.oneOf("{}", "", `{"ttl_seconds":`+m.extreme()+"}", "[]", "null")
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	if body != "" || method == "POST" {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return attack{bytes: []byte(text + "\r\n" + body), head: method == "HEAD"}
}
