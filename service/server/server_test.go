package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
	"tessera.dev/service/metrics"
)

// start serves on a port of its own until the test ends.
func start(t *testing.T, models *fakeModels, change func(*Config)) (*Server, string) {
	t.Helper()
	config := Config{Models: models, Dialects: []dialect.Dialect{fakeDialect()}, HeaderTime: 300 * time.Millisecond, BytesASecond: 1000,
		WriteTime: 500 * time.Millisecond, BodyBytes: 4 << 10}
	if change != nil {
		change(&config)
	}
	s := New(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(listener, "", "") }()
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = s.Shutdown(ctx)
	})
	return s, listener.Addr().String()
}

// talk sends bytes and gives what comes until the connection ends or is quiet.
func talk(t *testing.T, address, text string, patience time.Duration) string {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, text); err != nil {
		t.Fatal(err)
	}
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	reply, _ := io.ReadAll(connection)
	return string(reply)
}

func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

func get(path string, headers ...string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, strings.Join(append(headers, ""), "\r\n"))
}

const whole, streamed = `{"model":"fake"}`, `{"model":"fake","stream":true}`

func TestReplies(t *testing.T) {
	_, address := start(t, &fakeModels{words: 2, word: "ab"}, nil)
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, each := range []struct{ name, sent, wanted string }{
		{"whole", post("/texts", whole), "200 OK|\"abab\""},
		{"streamed", post("/texts", streamed), "200 OK|begin|abab|end 2"},
		{"unknown model", post("/texts", `{"model":"x"}`), "404 Not Found|model_not_found"},
		{"no JSON", post("/texts", `{`), "400 Bad Request|"},
		{"too deep", post("/texts", deep), "400 Bad Request|too_deep"},
		{"too large", post("/texts", strings.Repeat(" ", 5<<10)), "413 |4 KiB"},
		{"unknown path", get("/nothing"), "404 Not Found|unknown_path"},
		{"method", get("/texts"), "405 |Allow: POST"},
		{"chunked", "POST /texts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "411 |Connection: close"},
		{"length and chunked", "POST /texts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "411 |"},
		{"two lengths", "POST /texts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "400 Bad Request|"},
		{"rebinding", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403 Forbidden|unknown_host"},
		{"address", "GET /health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "200 OK|"},
		{"address 6", "GET /health HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200 OK|"},
		{"foreign origin", get("/health", "Origin: http://evil.example"), "403 Forbidden|foreign_origin"},
		{"null origin", get("/health", "Origin: null"), "403 Forbidden|foreign_origin"},
		{"own origin", get("/health", "Origin: http://localhost"), "200 OK|"},
		{"upgrade", get("/texts", "Connection: Upgrade", "Upgrade: websocket"), "426 |no_upgrade"},
		{"type", "POST /texts HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 2\r\n\r\n{}", "415 |unsupported_media_type"},
		{"compressed", post("/texts", whole, "Content-Encoding: gzip"), "415 |"},
		{"name", get("/things/a/b%2Fc"), "200 OK|{\"id\":\"a/b/c\"}"},
		{"names", get("/things/a/parts/b"), "200 OK|{\"id\":\"a\",\"part\":\"b\"}"},
		{"upload", post("/files", strings.Repeat("x", 5000)), "200 OK|5000"},
		{"upload too large", "POST /files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n", "413 |"},
		{"header too large", get("/health", "X: "+strings.Repeat("x", 64<<10)), "431 |"},
		{"openapi", get("/openapi.json"), "200 OK|3.1.0"},
	} {
		reply := talk(t, address, each.sent, 200*time.Millisecond)
		for _, part := range strings.Split(each.wanted, "|") {
			if !strings.Contains(reply, part) && !strings.Contains(strings.ReplaceAll(unchunk(reply), "|", ""), part) {
				t.Errorf("%s: found %q, wanted %q", each.name, reply, part)
			}
		}
		if strings.Contains(reply, "Access-Control") {
			t.Errorf("%s: CORS", each.name)
		}
	}
}

// unchunk is the body of a chunked reply.
func unchunk(reply string) string {
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(reply)), nil)
	if err != nil {
		return ""
	}
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func TestSlowSenders(t *testing.T) {
	_, address := start(t, &fakeModels{}, nil)
	begun := time.Now()
	if reply := talk(t, address, "GET /health HTTP/1.1\r\nHo", 10*time.Second); strings.Contains(reply, "200") {
		t.Errorf("slow header: %q", reply)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a slow header held its connection %v", took)
	}
	begun = time.Now()
	if reply := talk(t, address, "POST /texts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", 10*time.Second); !strings.Contains(reply, "408") {
		t.Errorf("slow body: %q", reply)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a slow body held its connection %v", took)
	}
}

// A body that no handler reads, and that comes in bytes, holds its connection no longer than one that is read.
func TestSlowBodiesThatNobodyReads(t *testing.T) {
	_, address := start(t, &fakeModels{}, func(c *Config) {
		known := &keys.Memory{}
		known.Add("k", keys.Key{Scopes: []keys.Scope{keys.Infer}})
		c.Keys = known
		c.Chunked, c.WriteTime = true, 5*time.Second // a reply waits for the body at most as long as that may take
	})
	const length, chunked = "Content-Length: 200000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	for name, each := range map[string]struct{ head, rest, wanted string }{
		"health":          {"GET /health", length, "200"},
		"health, chunked": {"GET /health", chunked + "20000\r\n", "200"},
		"continue":        {"GET /health", "Expect: 100-continue\r\n" + length, "200"},
		"large reply":     {"GET /openapi.json", "Authorization: Bearer k\r\n" + length, "200"},
		"names":           {"GET /things/a", "Authorization: Bearer k\r\n" + length, "200"},
		"no key":          {"POST /texts", length, "401"},
		"no path":         {"POST /nothing", length, "404"},
		"type":            {"POST /texts", "Authorization: Bearer k\r\nContent-Type: image/png\r\n" + chunked + "20000\r\n", "415"},
		"admin":           {"POST /admin", "Authorization: Bearer k\r\n" + length, "403"},
		"upload":          {"POST /beginnings", "Authorization: Bearer k\r\n" + chunked + "20000\r\nab", "200"},
	} {
		each, name := each, name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			reply := trickle(t, address, each.head+" HTTP/1.1\r\nHost: localhost\r\n"+each.rest)
			if !strings.Contains(reply, " "+each.wanted+" ") {
				t.Errorf("found %q, wanted %s", reply, each.wanted)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("held its connection %v", took)
			}
		})
	}
}

// trickle sends a beginning and then a byte at a time, and returns what has come by the end of the connection, 10 s later at most.
func trickle(t *testing.T, address, first string) string {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, first)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
				_, _ = io.WriteString(connection, "y")
			}
		}
	}()
	_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
	reply, _ := io.ReadAll(connection)
	return string(reply)
}

// A body at its least speed, and a stream after it, take longer than bodies that nobody reads may.
func TestLongBodiesAndStreamsGoOn(t *testing.T) {
	models := &fakeModels{words: 4, word: "x", pause: 400 * time.Millisecond}
	_, address := start(t, models, func(c *Config) { c.BytesASecond = 10 })
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	sent := post("/texts", streamed)
	head, body, _ := strings.Cut(sent, "\r\n\r\n")
	_, _ = io.WriteString(connection, head+"\r\n\r\n")
	for i := range body {
		_, _ = io.WriteString(connection, body[i:i+1])
		time.Sleep(50 * time.Millisecond)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(response.Body); string(text) != "begin|xxxx|end 4" {
		t.Errorf("found %q", text)
	}
}

// A connection goes on after a body that was read with a deadline.
func TestKeepAlive(t *testing.T) {
	_, address := start(t, &fakeModels{words: 1, word: "x"}, nil)
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for i := 0; i < 3; i++ {
		_, _ = io.WriteString(connection, post("/texts", streamed))
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(response.Body); string(body) != "begin|x|end 1" {
			t.Fatalf("found %q", body)
		}
		time.Sleep(600 * time.Millisecond) // longer than all deadlines of a request
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestDisconnectCancels(t *testing.T) {
	for _, body := range []string{streamed, whole} {
		models := &fakeModels{words: 1 << 30, word: "x", pause: 10 * time.Millisecond}
		_, address := start(t, models, nil)
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(connection, post("/texts", body))
		eventually(t, "not opened", func() bool { return models.opened.Load() == 1 })
		connection.Close()
		eventually(t, "not cancelled", func() bool { return models.closed.Load() == 1 && models.opened.Load() == 0 })
	}
}

func TestStalledReaderLosesItsRequest(t *testing.T) {
	models := &fakeModels{words: 1 << 30, word: strings.Repeat("x", 32<<10)}
	_, address := start(t, models, nil)
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, post("/texts", streamed)) // and nothing is read
	eventually(t, "not cancelled", func() bool { return models.closed.Load() == 1 })
}

func TestPings(t *testing.T) {
	_, address := start(t, &fakeModels{words: 1, word: "x", pause: 100 * time.Millisecond}, func(c *Config) { c.PingTime = 30 * time.Millisecond })
	if reply := talk(t, address, post("/texts", streamed), time.Second); !strings.Contains(reply, ":ping|") {
		t.Errorf("found %q", reply)
	}
}

func TestFailures(t *testing.T) {
	_, address := start(t, &fakeModels{words: 1, word: "x", fails: true}, nil)
	if reply := talk(t, address, post("/texts", streamed), 200*time.Millisecond); !strings.Contains(unchunk(reply), "|broken it broke") {
		t.Errorf("streamed: found %q", reply)
	}
	if reply := talk(t, address, post("/texts", whole), 200*time.Millisecond); !strings.Contains(reply, "500 ") {
		t.Errorf("whole: found %q", reply)
	}
}

// Replies of all kinds name the request, whole and streamed ones by two headers, and errors in the form of a dialect that wants it.
func TestRequestIDs(t *testing.T) {
	named := fakeDialect()
	named.Endpoints[0].Errors = func(failure *inference.Error, request string) (int, []byte) {
		return failure.Kind.Status(), []byte(`"` + request + `"`)
	}
	_, address := start(t, &fakeModels{words: 1, word: "x"}, func(c *Config) { c.Dialects = []dialect.Dialect{named} })
	seen := map[string]bool{}
	for name, sent := range map[string]string{
		"whole": post("/texts", whole), "streamed": post("/texts", streamed), "plain": get("/things/1"), "no path": get("/none"),
		"refused": post("/texts", `{"model":"other"}`), "malformed": post("/texts", `{`), "health": get("/health"),
	} {
		reply := talk(t, address, sent, 150*time.Millisecond)
		found := regexp.MustCompile(`\r\nRequest-Id: (req_[0-9A-Za-z]{24})\r\n`).FindStringSubmatch(reply)
		if found == nil || !strings.Contains(reply, "\r\nX-Request-Id: "+found[1]+"\r\n") || seen[found[1]] {
			t.Errorf("%s: found %q", name, reply)
			continue
		}
		seen[found[1]] = true
		if (name == "refused" || name == "malformed") && !strings.HasSuffix(reply, `"`+found[1]+`"`) {
			t.Errorf("%s: found %q, wanted the body to name %s", name, reply, found[1])
		}
	}
}

func TestKeys(t *testing.T) {
	known := &keys.Memory{}
	known.Add("right", keys.Key{Tenant: "a", Requests: 2})
	known.Add("admin", keys.Key{Tenant: "b", Scopes: []keys.Scope{keys.Admin}})
	_, address := start(t, &fakeModels{words: 1, word: "x"}, func(c *Config) { c.Keys = known })
	for _, each := range []struct{ name, sent, wanted string }{
		{"health", get("/health"), "200 "},
		{"none", post("/texts", whole), "401 "},
		{"metrics", get("/metrics"), "401 "},
		{"wrong", post("/texts", whole, "Authorization: Bearer wrong"), "401 "},
		{"no scope", post("/admin", `{}`, "Authorization: Bearer right"), "403 "},
		{"admin", post("/admin", `{}`, "x-api-key: admin"), "200 "},
		{"bearer", post("/texts", whole, "Authorization: Bearer right"), "200 "},
		{"x-api-key", post("/texts", whole, "x-api-key: right"), "200 "},
		{"rate", post("/texts", whole, "x-api-key: right"), "429 "},
	} {
		reply := talk(t, address, each.sent, 150*time.Millisecond)
		if !strings.HasPrefix(reply, "HTTP/1.1 "+each.wanted) {
			t.Errorf("%s: found %q, wanted %s", each.name, reply, each.wanted)
		}
		challenge := map[string]string{"none": "Www-Authenticate: Bearer\r\n", "wrong": "Www-Authenticate: Bearer error=\"invalid_token\"\r\n"}[each.name]
		if strings.Contains(reply, "Www-Authenticate") != (each.name == "none" || each.name == "metrics" || each.name == "wrong") || !strings.Contains(reply, challenge) {
			t.Errorf("%s: found %q, wanted the challenge %q", each.name, reply, challenge)
		}
		if each.name == "rate" && !strings.Contains(reply, "Retry-After: ") {
			t.Errorf("no Retry-After in %q", reply)
		}
	}
}

func TestDrain(t *testing.T) {
	models := &fakeModels{words: 1 << 30, word: "x", pause: 5 * time.Millisecond}
	s, address := start(t, models, nil)
	stream := make(chan string)
	go func() { stream <- talk(t, address, post("/texts", streamed), 5*time.Second) }()
	eventually(t, "not opened", func() bool { return models.opened.Load() == 1 })
	waiting, err := net.Dial("tcp", address) // accepted before the listener closes
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	ctx, end := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer end()
	stopped := make(chan error)
	go func() { stopped <- s.Shutdown(ctx) }()
	time.Sleep(50 * time.Millisecond)
	_, _ = io.WriteString(waiting, post("/texts", whole))
	if line, _ := bufio.NewReader(waiting).ReadString('\n'); !strings.Contains(line, "503") {
		t.Errorf("found %q while draining, wanted 503", line)
	}
	if reply := <-stream; !strings.Contains(reply, "|broken the service is stopping") {
		t.Errorf("the stream ended with %q", reply[len(reply)-100:])
	}
	<-stopped
	if models.opened.Load() != 0 {
		t.Error("a model is still open")
	}
}

// Each streamed text has a delay before the engine has it, and each of its events one before it is written.
func TestDelays(t *testing.T) {
	counted := metrics.New("tessera")
	_, address := start(t, &fakeModels{words: 3, word: "x"}, func(c *Config) { c.Metrics = counted })
	talk(t, address, post("/texts", streamed), 200*time.Millisecond)
	var text strings.Builder
	if err := counted.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []string{`tessera:request_submit_time_seconds_count{model_name="fake"} 1`, `tessera:first_token_delay_seconds_count{model_name="fake"} 1`,
		`tessera:event_write_time_seconds_count{model_name="fake"} 4`, `tessera:event_write_time_seconds_bucket{model_name="fake",le="5"} 4`} {
		if !strings.Contains(text.String(), wanted+"\n") {
			t.Errorf("found %s\nwanted %s", text.String(), wanted)
		}
	}
}

// A call that is not done when its client leaves is no failure, and one that is not done when the service stops is told so.
func TestUnfinishedCalls(t *testing.T) {
	failures, begun := make(chan string, 9), make(chan struct{}, 9)
	s, address := start(t, &fakeModels{}, func(c *Config) {
		c.Plan = func(ctx context.Context, _ string) (json.RawMessage, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c.Log = func(level, message string, fields map[string]any) {
			if level == "error" || fields["status"] == 500 {
				failures <- fmt.Sprint(message, fields)
			}
		}
	})
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(connection, get("/plan?model=fake"))
	<-begun
	connection.Close()
	reply := make(chan string)
	go func() { reply <- talk(t, address, get("/plan?model=fake"), 5*time.Second) }()
	<-begun
	ctx, end := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer end()
	_ = s.Shutdown(ctx)
	if found := <-reply; !strings.HasPrefix(found, "HTTP/1.1 503 ") || !strings.Contains(found, "stopping") {
		t.Errorf("found %q, wanted 503", found)
	}
	if len(failures) > 0 {
		t.Error("logged as a failure:", <-failures)
	}
}
