package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/fake"
	jobpaths "tessera.dev/service/dialect/jobs"
	"tessera.dev/service/dialect/listing"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
	"tessera.dev/service/metrics"
	"tessera.dev/service/server"
	"tessera.dev/service/tuning"
)

// others are what is not asked here.
type others = tuning.Jobs

// oneJob is a job that learns a step whenever it is asked.
type oneJob struct {
	others // nil
	mutex  sync.Mutex
	status tuning.Status
	events []tuning.Event // newest first
}

const jobID = "ftjob-abcdefgh"

func (j *oneJob) job() tuning.Job {
	return tuning.Job{ID: jobID, Status: j.status, Created: 1700000000, Started: 1700000001,
		Order: tuning.Order{Model: "chat", TrainingFile: "file-1", Suffix: "<b>dogs</b>", Seed: 7, Method: tuning.Supervised},
		Plan:  &tuning.Plan{Epochs: 3, Batch: 2, Steps: 30, Rate: 2e-4, Rank: 16, Examples: 20}}
}

func (j *oneJob) Jobs(context.Context, string, tuning.JobQuery) ([]tuning.Job, bool, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return []tuning.Job{j.job()}, false, nil
}

func (j *oneJob) Events(_ context.Context, _, _ string, page tuning.Page) ([]tuning.Event, bool, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if step := len(j.events) + 1; page.After == "" && j.status == tuning.Running && step <= 30 {
		data := fmt.Sprintf(`{"step":%d,"total_steps":30,"train_loss":%g,"train_mean_token_accuracy":%g`, step, 4/float64(step), 1-1/float64(step))
		if step%5 == 0 {
			data += fmt.Sprintf(`,"valid_loss":%g`, 4.5/float64(step))
		}
		j.events = append([]tuning.Event{{ID: fmt.Sprintf("ftevent-%d", step), Created: 1700000000 + int64(step), Level: "info", Kind: "metrics",
			Message: fmt.Sprintf("Step %d/30", step), Data: []byte(data + "}"), Step: int64(step)}}, j.events...)
	}
	return j.events, false, nil
}

func (j *oneJob) Pause(context.Context, string, string) (tuning.Job, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.status = tuning.Paused
	return j.job(), nil
}

const plan = `{"strategy":"tp=2","serving":{"replicas":1,"context":2048,"sequences":16,"sequences_that_fit":64,"cache_tokens":32768,
"cache_bytes_per_token":1280,"cache_bytes":41943040,"weight_bytes":1040128,"devices":[
{"name":"cpu:0","arena_bytes":{"predicted":52428800},"limit_bytes":104857600,"fits":true},
{"name":"cpu:1","arena_bytes":{"predicted":209715200},"limit_bytes":104857600,"fits":false}]}}`

// serve is a service without an engine, on a port of its own.
func serve(t *testing.T, known keys.Keys) string {
	t.Helper()
	findBrowser(t)
	document, policy := New()
	served := server.New(server.Config{Models: fake.Echo(), Keys: known, Page: document, PagePolicy: policy, Metrics: metrics.New("vllm"),
		Dialects: []dialect.Dialect{chat.New(chat.Settings{}), listing.New(), jobpaths.New(&oneJob{status: tuning.Running})},
		Measure:  func(m *metrics.Registry) { m.Set("num_requests_running", "Running.", 3, "model_name", "chat") },
		Plan: func(_ context.Context, model string) (json.RawMessage, error) {
			if model != "chat" {
				return nil, &inference.Error{Kind: inference.Invalid, Message: "no plan of " + model}
			}
			return json.RawMessage(plan), nil
		}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = served.Serve(listener, "", "") }()
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = served.Shutdown(ctx)
	})
	return "http://" + listener.Addr().String()
}

func TestBrowser(t *testing.T) {
	address := serve(t, nil)
	b := open(t, address+"/")
	b.see("model", "chat")
	for _, view := range []struct {
		name string
		try  func(t *testing.T, b *browser)
	}{{"chat", tryChat}, {"jobs", tryJobs}, {"plan", tryPlan}, {"activity", tryActivity}, {"colours", tryColours}} {
		t.Run(view.name, func(t *testing.T) {
			b.t = t
			view.try(t, b)
			b.shoot(view.name)
			b.everythingHasAName()
		})
	}
	b.t = t
	b.quiet(address, "plan?model=embed")
}

func tryChat(t *testing.T, b *browser) {
	b.focus("message")
	b.write("Say <img src=x onerror=\"window.hit=1\"> and\n```html\n<b>code</b>\n```\nthe end")
	b.press("Enter")
	b.see("log", "You said: Say <img src=x")
	b.wait("the block of code", `document.querySelectorAll("#log pre code").length === 2`)
	if found := b.tell(`[window.hit ?? null, document.querySelectorAll("#log img, #log b").length]`); found != "[null,0]" {
		t.Errorf("an answer became markup: %s", found)
	}
	b.see("status", "Answered: ")
	b.wait("the end of the answer", `document.getElementById("log").getAttribute("aria-busy") === "false"`)
	if found := b.tell(`document.activeElement.id`); found != `"message"` {
		t.Errorf("the focus went to %s", found)
	}
	b.write("And again?")
	b.press("Enter")
	b.see("log", "You said: And again?")
}

func tryJobs(t *testing.T, b *browser) {
	b.tell(`document.querySelector("a[data-view=jobs]").click()`)
	b.wait("the focus on the heading", `document.activeElement.id === "jobs-title"`)
	b.see("job-list", "chat:<b>dogs</b>")
	b.see("job-loss", "Loss")
	b.wait("a curve that grows", `(document.querySelector("#job-loss polyline.first")?.getAttribute("points") || "").split(" ").length > 2`)
	b.see("job-state", "of 30")
	if label := b.tell(`document.querySelector("#job-loss svg[role=img]").getAttribute("aria-label")`); !strings.Contains(label, "Loss: training ") {
		t.Errorf("the curve's summary is %s", label)
	}
	b.tell(`[...document.querySelectorAll("#job-actions button")].find(each => each.textContent === "Pause").click()`)
	b.see("job-state", "paused")
}

func tryPlan(t *testing.T, b *browser) {
	b.tell(`location.hash = "plan"`)
	b.see("plan", "cpu:0: 50.00 MiB of 100.00 MiB")
	b.see("plan", "cpu:1: 200.00 MiB of 100.00 MiB, too much")
	b.see("plan", "32,768 tokens of 1.25 KiB: 40.00 MiB")
	b.tell(`document.getElementById("plan-model").value = "embed"; document.getElementById("plan-model").dispatchEvent(new Event("change"))`)
	b.see("plan", "no plan of embed")
	b.tell(`document.getElementById("plan-model").value = "chat"; document.getElementById("plan-model").dispatchEvent(new Event("change"))`)
	b.see("plan", "cpu:0")
}

func tryActivity(t *testing.T, b *browser) {
	b.tell(`location.hash = "activity"`)
	b.see("figures", "Running")
	b.wait("a curve", `document.querySelector("#tokens-chart polyline")`)
	b.see("by-model", "chat")
	row := b.tell(`[...document.querySelectorAll("#by-model tr")].map(row => [...row.children].map(cell => cell.textContent).join("|")).find(row => row.startsWith("chat|"))`)
	if !strings.HasPrefix(row, `"chat|3|0|`) || !strings.HasSuffix(row, `|2"`) {
		t.Errorf("the model's row is %s", row)
	}
}

// contrast of two colours as WCAG 2 defines it.
const contrast = `((a, b) => {
  const light = text => { const [r, g, b] = text.match(/\d+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const both = [light(a), light(b)].sort((x, y) => y - x);
  return (both[0] + 0.05) / (both[1] + 0.05); })`

func tryColours(t *testing.T, b *browser) {
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.do("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
		grounds[scheme] = b.tell(`getComputedStyle(document.body).backgroundColor`)
		found := b.tell(`(() => { const contrast = ` + contrast + `, style = (name, of) => getComputedStyle(document.querySelector(name))[of];
			return [["body", "body"], ["#figures dt", "#figures div"], ["nav a[aria-current]", "nav a[aria-current]"], ["#send", "#send"], ["h4", ".card"]]
			  .map(([ink, ground]) => [ink, contrast(style(ink, "color"), style(ground, "backgroundColor"))]).filter(each => each[1] < 4.5); })()`)
		if found != "[]" {
			t.Errorf("%s: too little contrast: %s", scheme, found)
		}
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("the ground is %s in both schemes", grounds["light"])
	}
}

// everythingHasAName fails where a screen reader has nothing to say of what can be used.
func (b *browser) everythingHasAName() {
	b.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.into(&tree, "Accessibility.getFullAXTree", nil)
	named := 0
	for _, node := range tree.Nodes {
		switch node.Role.Value {
		case "button", "link", "textbox", "combobox", "spinbutton", "image", "img", "meter", "progressbar", "progressIndicator", "log", "region", "table", "navigation":
			name, _ := node.Name.Value.(string)
			if !node.Ignored && name == "" && node.Role.Value != "table" {
				b.t.Errorf("a %v has no name", node.Role.Value)
			}
			named++
		}
	}
	if named < 6 {
		b.t.Errorf("the tree has %d elements that can be used", named)
	}
}

func TestBrowserAsksForTheKeyAndForgetsIt(t *testing.T) {
	known := &keys.Memory{}
	known.Add("secret-key", keys.Key{Tenant: "ada", Scopes: []keys.Scope{keys.Admin}})
	address := serve(t, known)
	b := open(t, address+"/")
	b.wait("the field of the key", `document.activeElement.id === "key"`)
	b.write("secret-key")
	b.press("Enter")
	b.see("model", "chat")
	b.tell(`location.hash = "jobs"`)
	b.see("job-list", "dogs")
	if kept := b.tell(`[localStorage.length, sessionStorage.length, document.cookie, document.body.innerHTML.includes("secret-key"), document.getElementById("key").value]`); kept != `[0,0,"",false,""]` {
		t.Errorf("kept: %s", kept)
	}
	b.do("Page.reload", nil)
	b.wait("the field of the key, again", `document.activeElement.id === "key"`)
	b.quiet(address, "401")
}
