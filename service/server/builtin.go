package server

import (
	"bytes"
	"encoding/json"
	"net/http"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
)

// addBuiltIn adds the paths of the service itself.
func (s *Server) addBuiltIn() {
	s.routes.add(&route{method: http.MethodGet, path: "/health", open: true, serve: func(w http.ResponseWriter, r *http.Request, _ *dialect.Call, _ keys.Key) {
		s.reply(w, r, http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
	}})
	s.routes.add(&route{method: http.MethodGet, path: "/version", serve: func(w http.ResponseWriter, r *http.Request, _ *dialect.Call, _ keys.Key) {
		s.replyJSON(w, r, nil, s.config.Version, nil)
	}})
	s.routes.add(&route{method: http.MethodGet, path: "/metrics", serve: s.serveMetrics})
	s.routes.add(&route{method: http.MethodGet, path: "/openapi.json", serve: func(w http.ResponseWriter, r *http.Request, _ *dialect.Call, _ keys.Key) {
		s.reply(w, r, http.StatusOK, "application/json", s.openapi)
	}})
	s.openapi, _ = json.Marshal(s.document())
	if s.config.Plan != nil {
		s.routes.add(&route{method: http.MethodGet, path: "/plan", serve: s.servePlan})
	}
	if s.config.Page != nil {
		s.routes.add(&route{method: http.MethodGet, path: "/", open: true, serve: s.servePage})
	}
}

// servePage gives the page to anyone: it has no secrets, and asks for a key where paths do.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, _ *dialect.Call, _ keys.Key) {
	w.Header().Set("Content-Security-Policy", s.config.PagePolicy)
	w.Header().Set("X-Frame-Options", "DENY")
	w.Header().Set("Referrer-Policy", "no-referrer")
	s.reply(w, r, http.StatusOK, "text/html; charset=utf-8", s.config.Page)
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request, _ *dialect.Call, _ keys.Key) {
	if s.config.Measure != nil {
		s.config.Measure(s.config.Metrics)
	}
	var text bytes.Buffer
	_ = s.config.Metrics.Write(&text)
	s.reply(w, r, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
}

// servePlan is the serving plan of ?model=NAME, or of the only model.
func (s *Server) servePlan(w http.ResponseWriter, r *http.Request, call *dialect.Call, _ keys.Key) {
	name := ""
	if given := call.Query["model"]; len(given) > 0 {
		name = given[0]
	} else if all := s.config.Models.List(); len(all) == 1 {
		name = all[0].Name
	} else {
		s.fail(w, r, nil, &inference.Error{Kind: inference.Invalid, Param: "model", Message: "name a model: /plan?model=NAME; /v1/models lists them"})
		return
	}
	ctx, end := s.ending(r)
	defer end()
	plan, err := s.config.Plan(ctx, name)
	if err != nil {
		s.fail(w, r, nil, err)
		return
	}
	s.replyJSON(w, r, nil, map[string]any{"model": name, "plan": plan}, nil)
}

// document is OpenAPI of all dialects and of the service's own paths.
func (s *Server) document() any {
	paths, schemas := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, d := range s.config.Dialects {
		var part struct {
			Paths      map[string]json.RawMessage
			Components struct{ Schemas map[string]json.RawMessage }
		}
		if len(d.Document) == 0 || json.Unmarshal(d.Document, &part) != nil {
			continue
		}
		for path, item := range part.Paths {
			paths[path] = item
		}
		for name, schema := range part.Components.Schemas {
			schemas[name] = schema
		}
	}
	own := map[string]string{"/health": "whether the service answers", "/version": "versions of the service", "/metrics": "metrics in the text format of Prometheus",
		"/openapi.json": "this document"}
	if s.config.Plan != nil {
		own["/plan"] = "the serving plan of a model, with its bytes on each device"
	}
	if s.config.Page != nil {
		own["/"] = "the page for browsers"
	}
	for path, summary := range own {
		paths[path], _ = json.Marshal(map[string]any{"get": map[string]any{"summary": summary,
			"responses": map[string]any{"200": map[string]any{"description": summary}}}})
	}
	return map[string]any{"openapi": "3.1.0", "info": map[string]any{"title": "Tessera", "version": s.config.Version["version"]},
		"paths": paths, "components": map[string]any{"schemas": schemas}}
}
