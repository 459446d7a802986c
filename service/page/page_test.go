package page

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// forbidden writes markup or code from texts, asks other machines, or keeps what should be gone with the page.
var forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser|setHTML|\beval\b|new Function|` +
	`srcdoc|javascript:|localStorage|sessionStorage|indexedDB|document\.cookie|sendBeacon|WebSocket|EventSource|importScripts|import\(|` +
	`setTimeout\("|\bstyle="|\bon[a-z]+="|@import|url\(`)

// address is one of another machine; the name space of SVG is none.
var address = regexp.MustCompile(`(?i)["'(=]\s*(?:[a-z]+:)?//[\w.]`)

const svgSpace = `"http://www.w3.org/2000/svg"`

func faults(name, text string) (found []string) {
	for number, line := range strings.Split(text, "\n") {
		line = strings.ReplaceAll(line, svgSpace, "")
		for _, pattern := range []*regexp.Regexp{forbidden, address} {
			if hit := pattern.FindString(line); hit != "" {
				found = append(found, fmt.Sprintf("%s:%d: %s", name, number+1, hit))
			}
		}
	}
	return found
}

func TestSourcesWriteTextNodesAndAskNobodyElse(t *testing.T) {
	for _, planted := range []string{`x.innerHTML = y`, `x.insertAdjacentHTML("a", b)`, `eval(x)`, `new Function("x")`, `localStorage.key = 1`,
		`<p style="color:red">`, `<a onclick="x()">`, `fetch("https://example.org")`, `src='//example.org/x.js'`, `@import "x"`, `import("./x")`} {
		if len(faults("planted", planted)) == 0 {
			t.Errorf("not found: %s", planted)
		}
	}
	entries, err := source.ReadDir("source")
	if err != nil || len(entries) != len(scripts)+2 {
		t.Fatal(len(entries), err)
	}
	for _, entry := range entries {
		text := read(entry.Name())
		for _, fault := range faults(entry.Name(), text) {
			t.Error(fault)
		}
		if lines := strings.Count(text, "\n"); lines > 400 {
			t.Errorf("%s has %d lines", entry.Name(), lines)
		}
	}
}

func TestPolicyAllowsExactlyTheScriptAndTheStyle(t *testing.T) {
	document, policy := New()
	if !strings.HasPrefix(policy, "default-src 'self'; ") || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
	for _, tag := range []string{"script", "style"} {
		inner := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllSubmatch(document, -1)
		if len(inner) != 1 {
			t.Fatalf("%d times <%s>", len(inner), tag)
		}
		sum := sha256.Sum256(inner[0][1])
		if wanted := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, wanted) {
			t.Errorf("%s is not in %s", wanted, policy)
		}
	}
}

func TestFieldsHaveLabels(t *testing.T) {
	text := read("page.html")
	labels := map[string]bool{}
	for _, found := range regexp.MustCompile(`<label [^>]*for="([\w-]+)"`).FindAllStringSubmatch(text, -1) {
		labels[found[1]] = true
	}
	for _, found := range regexp.MustCompile(`<(?:input|select|textarea) id="([\w-]+)"`).FindAllStringSubmatch(text, -1) {
		if !labels[found[1]] {
			t.Errorf("%s has no label", found[1])
		}
		delete(labels, found[1])
	}
	for name := range labels {
		t.Errorf("the label of %s has no field", name)
	}
}
