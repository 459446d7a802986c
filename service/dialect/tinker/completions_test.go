package tinker

import (
	"encoding/json"
	"fmt"
	"testing"
)

type completed struct {
	Completions []struct {
		State   string
		Request string `json:"request_id"`
	}
	Cursor int64
}

func TestRequestsOfASamplerAreToldWhenTheyAreDone(t *testing.T) {
	c := newClient(t)
	session, run := c.trained()
	c.want("POST", "/create_sampling_session", `{"session_id":"`+session+`","sampling_session_seq_id":0,"model_path":"tinker://`+run+`/sampler_weights/one"}`, &struct{}{})
	target := func(clone int, more string) string {
		return fmt.Sprintf(`{"target":{"type":"sampling_session","sampling_session_id":"%s:sample:0","cloned_sampler_id":%d}%s}`, session, clone, more)
	}
	ask := func(number int64) string {
		var made begun
		c.want("POST", "/asample", fmt.Sprintf(`{"sampling_session_id":"%s:sample:0","seq_id":%d,"prompt":{"chunks":[{"tokens":[1]}]},"sampling_params":{"max_tokens":3}}`,
			session, number), &made)
		return made.Request
	}
	var found completed
	if c.want("POST", "/retrieve_futures", target(0, `,"timeout":0`), &found); len(found.Completions) != 0 || found.Cursor != 0 {
		t.Fatalf("before any: found %+v", found)
	}
	first := ask(0)
	if c.want("POST", "/retrieve_futures", target(0, ""), &found); len(found.Completions) != 1 || found.Completions[0].Request != first || found.Completions[0].State != "finished" {
		t.Fatalf("the first: found %+v", found)
	}
	again := found
	if c.want("POST", "/retrieve_futures", target(0, `,"prev_cursor":0`), &again); len(again.Completions) != 1 {
		t.Fatalf("a reply that was lost: found %+v", again)
	}
	// A clone's requests are another client's.
	clone := ask(1_000_000_000)
	cursor := fmt.Sprintf(`,"prev_cursor":%d`, found.Cursor)
	if c.want("POST", "/retrieve_futures", target(1, ""), &again); len(again.Completions) != 1 || again.Completions[0].Request != clone {
		t.Fatalf("of the clone: found %+v", again)
	}
	if c.want("POST", "/retrieve_futures", target(0, cursor+`,"timeout":0`), &again); len(again.Completions) != 0 || again.Cursor != found.Cursor {
		t.Fatalf("nothing new: found %+v", again)
	}
	second := ask(1)
	if c.want("POST", "/retrieve_futures", target(0, cursor), &again); len(again.Completions) != 1 || again.Completions[0].Request != second || again.Cursor <= found.Cursor {
		t.Fatalf("the second: found %+v", again)
	}
	// A result is retrieved by itself, until the client says that it has it.
	if _, reply := c.post("/retrieve_future", `{"request_id":"`+second+`"}`); !json.Valid([]byte(reply)) {
		t.Fatal(reply)
	}
	c.want("POST", "/retrieve_futures", target(0, fmt.Sprintf(`,"prev_cursor":%d,"timeout":0,"retrieved_request_ids":["%s"]`, again.Cursor, second)), &found)
	if status, reply := c.post("/retrieve_future", `{"request_id":"`+second+`"}`); status != 410 {
		t.Errorf("found %d %s", status, reply)
	}
	if status, reply := c.post("/retrieve_future", `{"request_id":"`+first+`"}`); status != 200 {
		t.Errorf("found %d %s", status, reply)
	}
}
