package server

import (
	"net/http"
	"net/url"
	"regexp"
	"sort"
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/keys"
)

// route is a path of a method.
type route struct {
	method   string
	segments []string // of the pattern
	path     string   // the pattern
	shape    string   // the pattern without names
	scope    keys.Scope
	open     bool // without a key
	errors   dialect.Errors
	serve    func(w http.ResponseWriter, r *http.Request, call *dialect.Call, key keys.Key)
}

// routes are found by the whole path first, then by patterns.
type routes struct {
	whole    map[string][]*route
	patterns []*route
}

func (t *routes) add(r *route) {
	if t.whole == nil {
		t.whole = map[string][]*route{}
	}
	if r.scope == "" {
		r.scope = keys.Infer
	}
	if !strings.Contains(r.path, "{") {
		t.whole[r.path] = append(t.whole[r.path], r)
		return
	}
	r.segments = strings.Split(r.path, "/")
	r.shape = nameless.ReplaceAllString(r.path, "{}")
	t.patterns = append(t.patterns, r)
	// The more segments, the earlier; of as many, those with fewer names.
	sort.SliceStable(t.patterns, func(i, j int) bool {
		a, b := t.patterns[i], t.patterns[j]
		if len(a.segments) != len(b.segments) {
			return len(a.segments) > len(b.segments)
		}
		return strings.Count(a.path, "{") < strings.Count(b.path, "{")
	})
}

var nameless = regexp.MustCompile(`\{[^}]*\}`)

// find is the route of a request; else the methods that the path has, none where there is no such path. The first pattern that matches
// says what path is meant: one that ends earlier, whose last name takes slashes too, is not asked for other methods.
func (t *routes) find(method, path string) (found *route, names map[string]string, methods []string) {
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	for _, r := range t.whole[path] {
		if r.method == method || r.method == http.MethodGet && method == http.MethodHead {
			return r, nil, nil
		}
		methods = append(methods, r.method)
	}
	if methods != nil {
		return nil, nil, methods
	}
	segments, shape := strings.Split(path, "/"), ""
	for _, r := range t.patterns {
		names, matches := r.match(segments)
		if !matches || shape != "" && r.shape != shape {
			continue
		}
		shape = r.shape
		if r.method == method || r.method == http.MethodGet && method == http.MethodHead {
			return r, names, nil
		}
		methods = append(methods, r.method)
	}
	return nil, nil, methods
}

// match gives the parts of the path that the names stand for.
func (r *route) match(segments []string) (map[string]string, bool) {
	if len(segments) < len(r.segments) {
		return nil, false
	}
	names := map[string]string{}
	for i, want := range r.segments {
		given := segments[i]
		if !strings.HasPrefix(want, "{") {
			if given != want {
				return nil, false
			}
			continue
		}
		last := i == len(r.segments)-1
		if last {
			given = strings.Join(segments[i:], "/")
		}
		name, err := url.PathUnescape(given)
		if err != nil || name == "" {
			return nil, false
		}
		names[strings.Trim(want, "{}")] = name
		if last {
			return names, true
		}
	}
	return names, len(segments) == len(r.segments)
}

// allowed returns the methods of a path for the header Allow: each once, in order, with HEAD where there is GET.
func allowed(methods []string) []string {
	all := map[string]bool{}
	for _, method := range methods {
		all[method] = true
		if method == http.MethodGet {
			all[http.MethodHead] = true
		}
	}
	sorted := make([]string, 0, len(all))
	for method := range all {
		sorted = append(sorted, method)
	}
	sort.Strings(sorted)
	return sorted
}

// Paths are all routes, as "METHOD PATH".
func (s *Server) Paths() (all []string) {
	for _, routes := range s.routes.whole {
		for _, r := range routes {
			all = append(all, r.method+" "+r.path)
		}
	}
	for _, r := range s.routes.patterns {
		all = append(all, r.method+" "+r.path)
	}
	sort.Strings(all)
	return all
}

func (s *Server) add(d dialect.Dialect) {
	for _, e := range d.Endpoints {
		s.routes.add(&route{method: e.Method, path: e.Path, errors: e.Errors, serve: s.serveEndpoint(e)})
	}
	for _, p := range d.Plains {
		s.routes.add(&route{method: p.Method, path: p.Path, errors: p.Errors, scope: keys.Scope(p.Scope), serve: s.servePlain(p)})
	}
	for _, u := range d.Uploads {
		s.routes.add(&route{method: u.Method, path: u.Path, errors: u.Errors, scope: keys.Scope(u.Scope), serve: s.serveUpload(u)})
	}
	for _, g := range d.Downloads {
		s.routes.add(&route{method: g.Method, path: g.Path, errors: g.Errors, scope: keys.Scope(g.Scope), open: g.Unkeyed, serve: s.serveDownload(g)})
	}
}
