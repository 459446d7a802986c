package tinker

import (
	"strings"
	"testing"
)

// A client ends its session: the first end counts, and what it asks for later is refused.
func TestSessionsAreFinished(t *testing.T) {
	c := newClient(t)
	session := c.session()
	c.finish("/create_model", `{"session_id":"`+session+`","model_seq_id":0,"base_model":"base","lora_config":{"rank":4}}`)
	c.finish("/save_weights", `{"model_id":"`+session+`:train:0","seq_id":1,"path":"one"}`)
	finish := "/sessions/" + session + "/finish"
	for _, each := range []struct {
		body, wanted string
		status       int
	}{
		{`{"reason":{"type":"done"}}`, "reason.type", 400},
		{`{"reason":{}}`, "reason.type", 400},
		{`{}`, "reason", 400},
		{`{"reason":{"type":"success"},"detail":"all of it"}`, "{}", 200},
		{`{"reason":{"type":"errored"},"detail":null}`, "{}", 200},
	} {
		if status, reply := c.post(finish, each.body); status != each.status || !strings.Contains(reply, each.wanted) {
			t.Errorf("%s: found %d %s", each.body, status, reply)
		}
	}
	if status, reply := c.post("/sessions/other/finish", `{"reason":{"type":"success"}}`); status != 404 {
		t.Errorf("found %d %s", status, reply)
	}
	if status, reply := c.post("/session_heartbeat", `{"session_id":"`+session+`"}`); status != 410 {
		t.Errorf("heartbeat: found %d %s", status, reply)
	}
	if reply := c.finish("/create_model", `{"session_id":"`+session+`","model_seq_id":1,"base_model":"base"}`); !strings.HasPrefix(reply, "410 ") {
		t.Errorf("another run: found %s", reply)
	}
	// Its checkpoints stay.
	_, storage := c.call("GET", "/api/v1/billing/usage/checkpoints/current", nil, nil)
	if !strings.Contains(string(storage), `"checkpoint_count":1`) {
		t.Errorf("found %s", storage)
	}
}
