package page

import (
	"os"
	"testing"
)

// TestBrowserOfARunningService takes pictures of a service with models of its own, at TESSERA_SERVICE=http://HOST:PORT, into
// TESSERA_SCREENSHOTS=FOLDER.
func TestBrowserOfARunningService(t *testing.T) {
	address := os.Getenv("TESSERA_SERVICE")
	if address == "" {
		t.Skip("TESSERA_SERVICE is not set: the address of a running service")
	}
	b := open(t, address+"/")
	b.wait("a model", `document.getElementById("model").value`)
	b.focus("message")
	b.write("Write a function that adds two numbers, in Python.")
	b.press("Enter")
	b.wait("an answer", `document.querySelector(".turn.assistant")?.innerText.length > 120`)
	b.shoot("running_chat")
	b.see("status", "Answered")
	b.tell(`location.hash = "jobs"`)
	b.wait("a job", `document.querySelector("#job-loss polyline") || document.getElementById("jobs-note").textContent`)
	b.shoot("running_jobs")
	b.tell(`location.hash = "plan"`)
	b.wait("a plan", `document.querySelector("#plan meter")`)
	b.shoot("running_plan")
	b.tell(`location.hash = "activity"`)
	b.wait("a curve", `document.querySelector("#tokens-chart polyline")`)
	b.shoot("running_activity")
	b.quiet(address)
}
