package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"

	"tessera.dev/service/models"
	"tessera.dev/service/server"
)

// whole is a server with all paths, which is asked for none that needs models.
func whole() *server.Server {
	registry := (*models.Registry)(nil)
	all := append(append(dialects(registry), stateful(nil, nil)...), primitive(nil, nil)...)
	return server.New(server.Config{Dialects: all, Plan: registry.Plan, Page: []byte("page")})
}

func ask(s *server.Server, method, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequest(method, "http://localhost"+path, nil))
	return recorder
}

func TestDocumentHasExactlyThePaths(t *testing.T) {
	s := whole()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(ask(s, "GET", "/openapi.json").Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" && method != "summary" && method != "description" {
				told[strings.ToUpper(method)+" "+path] = true
			}
		}
	}
	for _, path := range s.Paths() {
		if !told[path] {
			t.Errorf("/openapi.json lacks %s", path)
		}
		delete(told, path)
	}
	for path := range told {
		t.Errorf("/openapi.json has %s, which is not served", path)
	}
}

func TestOtherMethodsAreRefusedWithThoseThatAPathHas(t *testing.T) {
	s := whole()
	methods := map[string][]string{}
	for _, each := range s.Paths() {
		method, path, _ := strings.Cut(each, " ")
		if methods[path] = append(methods[path], method); method == http.MethodGet {
			methods[path] = append(methods[path], http.MethodHead)
		}
	}
	for path, served := range methods {
		sort.Strings(served)
		target := strings.NewReplacer("{", "", "}", "").Replace(path)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} {
			if strings.Contains(" "+strings.Join(served, " ")+" ", " "+method+" ") {
				continue
			}
			reply := ask(s, method, target)
			if found := reply.Header().Get("Allow"); reply.Code != http.StatusMethodNotAllowed || found != strings.Join(served, ", ") {
				t.Errorf("%s %s: %d, Allow %q; wanted 405 and %q", method, target, reply.Code, found, strings.Join(served, ", "))
			}
		}
	}
}
