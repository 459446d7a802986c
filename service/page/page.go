// Package page is the page that the service serves at "/": chat, jobs with their curves, plans, requests and tokens a second. It is one
// document without framework, which asks nothing but its own service.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"strings"
)

//go:embed source
var source embed.FS

// scripts are joined in this order.
var scripts = []string{"client.js", "elements.js", "chart.js", "chat.js", "jobs.js", "plan.js", "activity.js", "navigation.js"}

// New gives the document, and the Content-Security-Policy that allows only its own script and style.
func New() (document []byte, policy string) {
	var script strings.Builder
	script.WriteString("\"use strict\";\n(() => {\n")
	for _, name := range scripts {
		script.WriteString(read(name))
	}
	script.WriteString("})();\n")
	style := read("style.css")
	text := replaceOnce(read("page.html"), "/*STYLE*/", style)
	text = replaceOnce(text, "/*SCRIPT*/", script.String())
	policy = fmt.Sprintf("default-src 'self'; script-src '%s'; style-src '%s'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hash(script.String()), hash(style))
	return []byte(text), policy
}

func read(name string) string {
	text, err := source.ReadFile("source/" + name)
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(text)
}

func replaceOnce(text, mark, with string) string {
	if strings.Count(text, mark) != 1 {
		panic("page: " + mark + " is not there once")
	}
	return strings.Replace(text, mark, with, 1)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
