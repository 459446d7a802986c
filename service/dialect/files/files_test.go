package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/store"
)

// server has the dialect over a store.
type server struct {
	dialect.Dialect
	t     *testing.T
	store *store.Store
}

func newServer(t *testing.T) *server {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &server{New(s), t, s}
}

func kindOf(err error) inference.Kind {
	var known *inference.Error
	if errors.As(err, &known) {
		return known.Kind
	}
	return 0
}

// part of a body of an upload.
type part struct{ name, file, content string }

func body(parts ...part) (string, string) {
	var text bytes.Buffer
	writer := multipart.NewWriter(&text)
	for _, each := range parts {
		var into io.Writer
		if each.file != "" {
			into, _ = writer.CreateFormFile(each.name, each.file)
		} else {
			into, _ = writer.CreateFormField(each.name)
		}
		io.WriteString(into, each.content)
	}
	writer.Close()
	return text.String(), writer.FormDataContentType()
}

func (s *server) upload(kind, body, key string) (map[string]any, error) {
	header := http.Header{"Content-Type": {kind}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	reply, err := s.Uploads[0].Reply(&dialect.Call{Header: header, Tenant: "ada", Context: context.Background()}, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return asMap(s.t, reply), nil
}

func asMap(t *testing.T, reply any) map[string]any {
	t.Helper()
	text, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]any
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (s *server) plain(method, path, id string, query map[string][]string) (map[string]any, error) {
	for _, each := range s.Plains {
		if each.Method == method && each.Path == path {
			reply, err := each.Reply(&dialect.Call{Tenant: "ada", Query: query, Names: map[string]string{"id": id}, Context: context.Background()}, nil, nil)
			if err != nil {
				return nil, err
			}
			return asMap(s.t, reply), nil
		}
	}
	s.t.Fatal("no path", method, path)
	return nil, nil
}

const row = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n"

func TestAFileIsUploadedListedReadAndDeleted(t *testing.T) {
	s := newServer(t)
	text, kind := body(part{"purpose", "", "fine-tune"}, part{"file", "../../chats.jsonl", row + row})
	file, err := s.upload(kind, text, "")
	if err != nil {
		t.Fatal(err)
	}
	id := file["id"].(string)
	if file["object"] != "file" || file["bytes"] != float64(2*len(row)) || file["filename"] != "chats.jsonl" || file["purpose"] != "fine-tune" ||
		file["status"] != "processed" || file["expires_at"] != nil {
		t.Fatal(file)
	}
	other, kind := body(part{"file", "more", "words"}, part{"purpose", "", "user_data"}, part{"expires_after[anchor]", "", "created_at"},
		part{"expires_after[seconds]", "", "3600"})
	second, err := s.upload(kind, other, "")
	if err != nil || second["expires_at"].(float64)-second["created_at"].(float64) != 3600 {
		t.Fatal(second, err)
	}
	list, err := s.plain("GET", "/v1/files", "", map[string][]string{"limit": {"1"}})
	if err != nil || list["has_more"] != true || list["first_id"] != second["id"] || list["last_id"] != second["id"] {
		t.Fatal(list, err)
	}
	list, err = s.plain("GET", "/v1/files", "", map[string][]string{"after": {second["id"].(string)}, "purpose": {"fine-tune"}})
	if err != nil || list["has_more"] != false || list["last_id"] != id {
		t.Fatal(list, err)
	}
	if empty, err := s.plain("GET", "/v1/files", "", map[string][]string{"purpose": {"evals"}}); err != nil || empty["first_id"] != nil ||
		len(empty["data"].([]any)) != 0 {
		t.Fatal(empty, err)
	}
	content, err := s.Downloads[0].Open(&dialect.Call{Tenant: "ada", Names: map[string]string{"id": id}, Context: context.Background()})
	if err != nil {
		t.Fatal(err)
	}
	found, _ := io.ReadAll(content.Reader)
	content.Reader.Close()
	if string(found) != row+row || content.Name != "chats.jsonl" {
		t.Fatal(string(found), content)
	}
	if gone, err := s.plain("DELETE", "/v1/files/{id}", id, nil); err != nil || gone["deleted"] != true {
		t.Fatal(gone, err)
	}
	if _, err := s.plain("GET", "/v1/files/{id}", id, nil); kindOf(err) != inference.NotFound {
		t.Fatal(err)
	}
}

func TestAnUploadIsRepeatedByItsKey(t *testing.T) {
	s := newServer(t)
	text, kind := body(part{"purpose", "", "fine-tune"}, part{"file", "a", row})
	again, otherKind := body(part{"file", "a", row}, part{"purpose", "", "fine-tune"}) // another boundary, another order
	first, err := s.upload(kind, text, "k")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := s.upload(otherKind, again, "k"); err != nil || second["id"] != first["id"] {
		t.Fatal(second, err)
	}
	changed, kind := body(part{"purpose", "", "fine-tune"}, part{"file", "a", row + row})
	if _, err := s.upload(kind, changed, "k"); kindOf(err) != inference.Conflict {
		t.Fatal(err)
	}
	if _, err := s.upload(kind, changed, strings.Repeat("k", 256)); kindOf(err) != inference.Invalid {
		t.Fatal(err)
	}
}

func TestWrongUploadsAreRefusedAndLeaveNothing(t *testing.T) {
	s := newServer(t)
	good := part{"file", "a.jsonl", row}
	for _, each := range []struct {
		param string
		parts []part
	}{
		{"purpose", []part{good}}, {"purpose", []part{good, {"purpose", "", "vision"}}}, {"purpose", []part{good, {"purpose", "", ""}}},
		{"purpose", []part{good, {"purpose", "", "fine-tune"}, {"purpose", "", "fine-tune"}}}, {"file", []part{{"purpose", "", "fine-tune"}}},
		{"file", []part{good, good, {"purpose", "", "fine-tune"}}}, {"file", []part{{"file", "a", ""}, {"purpose", "", "user_data"}}},
		{"color", []part{good, {"purpose", "", "fine-tune"}, {"color", "", "red"}}},
		{"purpose", []part{good, {"purpose", "", strings.Repeat("x", 5000)}}},
		{"expires_after.seconds", []part{good, {"purpose", "", "fine-tune"}, {"expires_after[anchor]", "", "created_at"}, {"expires_after[seconds]", "", "1"}}},
		{"expires_after.anchor", []part{good, {"purpose", "", "fine-tune"}, {"expires_after[seconds]", "", "3600"}}},
		{"file", []part{{"file", "a", "not json"}, {"purpose", "", "fine-tune"}}},
	} {
		text, kind := body(each.parts...)
		_, err := s.upload(kind, text, "")
		var known *inference.Error
		if !errors.As(err, &known) || known.Kind != inference.Invalid || known.Param != each.param {
			t.Errorf("%v: %v, wanted an error of %s", each.parts, err, each.param)
		}
	}
	text, kind := body(good, part{"purpose", "", "fine-tune"})
	for cut := 0; cut < len(text)-8; cut += 7 {
		if _, err := s.upload(kind, text[:cut], ""); kindOf(err) != inference.Invalid {
			t.Fatalf("%d bytes: %v", cut, err)
		}
	}
	for _, kind := range []string{"", "application/json", "multipart/form-data", "multipart/form-data; boundary=" + strings.Repeat("x", 71), "multipart/mixed; boundary=x"} {
		if _, err := s.upload(kind, text, ""); kindOf(err) != inference.Invalid {
			t.Fatalf("%q: %v", kind, err)
		}
	}
	many := make([]part, 20)
	for i := range many {
		many[i] = part{fmt.Sprint("p", i), "", "x"}
	}
	text, kind = body(many...)
	if _, err := s.upload(kind, text, ""); kindOf(err) != inference.Invalid {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.store.Folder() + "/files"); len(entries) != 0 {
		t.Fatal("uploads that were refused left ", entries)
	}
}

func TestRowsAreCheckedByLine(t *testing.T) {
	preference := `{"input":{"messages":[{"role":"user","content":"q"}]},"preferred_output":[{"role":"assistant","content":"a"}],"non_preferred_output":[{"role":"assistant","content":"b"}]}` + "\n"
	for text, said := range map[string]string{
		row: "", "\n" + row + "\n\n": "", strings.TrimSuffix(row, "\n"): "", "\xef\xbb\xbf" + row: "", preference: "",
		`{"prompt":"p","completion":"c"}`: "", `{"text":"t"}`: "", strings.ReplaceAll(row, "\n", "\r\n"): "",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","tool_calls":[{"id":"c"}],"weight":0}]}`: "",
		"": "no rows", "\n\n": "no rows", row + "{": "line 2: the row is not valid JSON", row + row + "[]": "line 3: the row is a list",
		row + preference:   "line 2: the row is a preference, and line 1 is a conversation",
		`{"messages":[]}`:  "line 1: 'messages' has 0 elements",
		`{"messages":"x"}`: "line 1: 'messages' is a text",
		`{"messages":[{"role":"user","content":"a"}]}`:                                                "line 1: 'messages' has no message of the assistant",
		`{"messages":[{"role":"critic","content":"a"},{"role":"assistant","content":"b"}]}`:           "'messages[0].role' is \"critic\"",
		`{"messages":[{"content":"a"},{"role":"assistant","content":"b"}]}`:                           "'messages[0].role' is missing",
		`{"messages":[{"role":"user","content":7},{"role":"assistant","content":"b"}]}`:               "'messages[0].content' is a number",
		`{"messages":[{"role":"user"},{"role":"assistant","content":"b"}]}`:                           "'messages[0].content' is missing",
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":-1}]}`: "weight",
		`{"messages":1,"messages":2}`:                                                                 "line 1",
		`{"prompt":"p"}`:                                                                              "'completion' is missing",
		`{"question":"p"}`:                                                                            "this one has question",
		"{\"text\":\"\xff\"}":                                                                         "UTF-8",
		strings.Repeat("{\n", 9):                                                                      "and perhaps more",
		strings.Repeat("[", 100_000):                                                                  "line 1",
		strings.Repeat(`{"text":`, 10000):                                                             "line 1",
	} {
		err := CheckRows(strings.NewReader(text))
		if said == "" && err != nil || said != "" && (err == nil || !strings.Contains(err.Error(), said)) {
			t.Errorf("%.80q: %v, wanted %q", text, err, said)
		}
	}
}

func TestNamesAreForShowingAlone(t *testing.T) {
	for given, wanted := range map[string]string{"": "file", "..": "file", "a/b": "b", `c:\x\y.txt`: "y.txt", "a\x00\nb": "ab", "/": "file",
		strings.Repeat("é", 200): strings.Repeat("é", 127)} {
		if found := cleanName(given); found != wanted {
			t.Errorf("%q is shown as %q, wanted %q", given, found, wanted)
		}
	}
}

// endless is a file that is larger than any.
type endless struct{ left int64 }

func (e *endless) Read(into []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	for i := range into {
		into[i] = 'x'
	}
	e.left -= int64(len(into))
	return len(into), nil
}

func TestALargeFileIsRefusedAtItsBound(t *testing.T) {
	s := newServer(t)
	s.Dialect = (&service{files: s.store, now: time.Now, most: 1 << 20}).dialect()
	head := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
	_, err := s.Uploads[0].Reply(&dialect.Call{Header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, Context: context.Background()},
		io.MultiReader(strings.NewReader(head), &endless{2 << 20}))
	if kindOf(err) != inference.TooLarge {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.store.Folder() + "/files"); len(entries) != 0 {
		t.Fatal(entries)
	}
}

func TestTheDocumentDescribesAllPaths(t *testing.T) {
	s := newServer(t)
	var parsed struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(s.Document, &parsed); err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, methods := range parsed.Paths {
		described += len(methods)
	}
	known := map[string]string{"POST": s.Uploads[0].Path}
	for _, each := range s.Plains {
		if parsed.Paths[each.Path][strings.ToLower(each.Method)] == nil {
			t.Errorf("%s %s is not described", each.Method, each.Path)
		}
	}
	if parsed.Paths[known["POST"]]["post"] == nil || parsed.Paths[s.Downloads[0].Path]["get"] == nil || described != len(s.Plains)+2 {
		t.Error("paths are described that there are not, or the other way round", described)
	}
}
