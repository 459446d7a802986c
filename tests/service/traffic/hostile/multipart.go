package main

import (
	"bytes"
	"fmt"
	"strings"
)

var rows = []string{`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, `{"prompt":"a","completion":"b"}`,
	`{"input":{"messages":[{"role":"user","content":"a"}]},"preferred_output":[{"role":"assistant","content":"b"}],"non_preferred_output":[{"role":"assistant","content":"c"}]}`}

// row is a line of a file for training, mostly a wrong one.
func (m *maker) row() string {
	text := []byte(rows[m.Intn(len(rows))])
	if m.chance(0.4) {
		tree, err := parseJSON(text)
		if err == nil {
			m.mutate(&tree)
			text = tree.text()
		}
	}
	if m.chance(0.2) {
		text = m.changeBytes(text)
	}
	return string(text)
}

// part is one of a form.
func (m *maker) part(boundary, name, content string) string {
	disposition := fmt.Sprintf(`form-data; name="%s"`, name)
	if name == "file" {
		disposition += `; filename="` + m.oneOf("a.jsonl", "../../../tmp/x", "..\\..\\x", "a\x00b", "", strings.Repeat("n", 5000), "a\"b",
			"\xff\xfe", "/etc/passwd", "C:\\x", ".", "a\r\nX: y") + `"`
	}
	if m.chance(0.1) {
		disposition = m.oneOf("form-data", "", "attachment; name=file", "form-data; name=\"", "form-data; name*=utf-8''file",
			"form-data; name=file; name=purpose", "\x00")
	}
	heads := "Content-Disposition: " + disposition + "\r\n"
	if m.chance(0.1) {
		heads += m.oneOf("Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: quoted-printable", "Content-Type: text/html", "X",
			strings.Repeat("X: y\r\n", m.Intn(3000))+"X: z") + "\r\n"
	}
	return "--" + boundary + "\r\n" + heads + "\r\n" + content + "\r\n"
}

// multipart is an upload that is wrong in its form, its fields or its rows.
func (m *maker) multipart() attack {
	boundary := m.oneOf("x", "----WebKitFormBoundary0", strings.Repeat("b", 70), strings.Repeat("b", 71), "a b", "", "\"", "-", "x--")
	if m.chance(0.6) {
		boundary = "boundary"
	}
	var body strings.Builder
	if m.chance(0.1) {
		body.WriteString(m.oneOf("preamble\r\n", "\r\n", "--", strings.Repeat("x", m.Intn(70000))))
	}
	var lines []string
	for i := m.Intn(8); i > 0; i-- {
		lines = append(lines, m.row())
	}
	parts := []string{m.part(boundary, "purpose", m.oneOf("fine-tune", "fine-tune", "fine-tune", "batch", "assistants", "", "fine-tune\x00",
		"FINE-TUNE", strings.Repeat("p", 5000))),
		m.part(boundary, "file", strings.Join(lines, m.oneOf("\n", "\n", "\r\n", "\r", "\n\n")))}
	if m.chance(0.2) {
		parts = append(parts, m.part(boundary, m.oneOf("purpose", "file", "expires_after[seconds]", "expires_after[anchor]", "x", ""),
			m.oneOf("3600", "-1", "1e9", "created_at", "x", m.numberText())))
	}
	if m.chance(0.05) {
		for i := m.Intn(100); i > 0; i-- {
			parts = append(parts, m.part(boundary, fmt.Sprint("f", i), "v"))
		}
	}
	m.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	if m.chance(0.1) {
		parts = parts[:m.Intn(len(parts)+1)]
	}
	body.WriteString(strings.Join(parts, ""))
	body.WriteString(m.oneOf("--"+boundary+"--\r\n", "--"+boundary+"--\r\n", "--"+boundary+"--\r\n", "--"+boundary+"--", "--"+boundary+"\r\n",
		"", "--"+boundary+"--\r\ntrailing"))
	text := []byte(body.String())
	if m.chance(0.2) {
		text = m.changeBytes(text)
	}
	kind := "multipart/form-data; boundary=" + boundary
	if m.chance(0.1) {
		kind = m.oneOf("multipart/form-data", "multipart/mixed; boundary="+boundary, "multipart/form-data; boundary=\""+boundary+"\"",
			"multipart/form-data; boundary="+boundary+"; boundary=y", "application/json", "multipart/form-data; charset=utf-8")
	}
	made := post("/v1/files", kind, text)
	if m.chance(0.05) { // less comes than is announced
		made = made[:len(made)-m.Intn(len(text)+1)]
	}
	if m.chance(0.1) {
		made = bytes.Replace(made, []byte("\r\n\r\n"), []byte("\r\nIdempotency-Key: "+m.oneOf("a", "b", "c", strings.Repeat("k", 300),
			"\x7f")+"\r\n\r\n"), 1)
	}
	return attack{bytes: made}
}
