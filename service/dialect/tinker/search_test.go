package tinker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

type foundSessions struct {
	Sessions []struct {
		ID          string `json:"session_id"`
		Owner       string
		Project     string `json:"project_id"`
		Name        string `json:"display_name"`
		Checkpoints int    `json:"checkpoints_count"`
		Bytes       int64  `json:"checkpoint_storage_bytes"`
		Status      *struct {
			Type   string
			Reason struct{ Type string }
			Detail string
		}
	}
	Next json.RawMessage `json:"next_cursor"`
}

func (f *foundSessions) ids() (all []string) {
	for _, one := range f.Sessions {
		all = append(all, one.ID)
	}
	return all
}

// named begins a session with a name.
func (c *client) named(name, project, metadata string) string {
	c.t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	c.want("POST", "/create_session", fmt.Sprintf(`{"display_name":%q,"project_id":%q,"user_metadata":%s}`, name, project, metadata), &made)
	return made.ID
}

func TestSessionsAreFound(t *testing.T) {
	c := newClient(t)
	plain := c.named("", "", `{}`)
	red := c.named("Red wheel", "cars", `{"who":"me","at":"1"}`)
	blue := c.named("Blue wheel", "boats", `{"who":"me"}`)
	c.finish("/create_model", `{"session_id":"`+red+`","model_seq_id":0,"base_model":"base"}`)
	c.finish("/save_weights", `{"model_id":"`+red+`:train:0","seq_id":1,"path":"one"}`)
	c.post("/sessions/"+blue+"/finish", `{"reason":{"type":"errored"},"detail":"out of fuel"}`)
	sorted := func(ids ...string) string { // as the list has them, whatever their ids are
		var all foundSessions
		c.want("POST", "/sessions/search", `{}`, &all)
		var left []string
		for _, id := range all.ids() {
			for _, one := range ids {
				if one == id {
					left = append(left, id)
				}
			}
		}
		return strings.Join(left, " ")
	}
	for _, each := range []struct {
		body   string
		wanted []string
	}{
		{`{}`, []string{plain, red, blue}},
		{`{"owner":{"type":"accessible"}}`, []string{plain, red, blue}},
		{`{"owner":{"type":"user","owner_urns":["tml:organization_user:t"]}}`, []string{plain, red, blue}},
		{`{"owner":{"type":"user","owner_urns":["tml:organization_user:x"]}}`, nil},
		{`{"session_id":"` + plain + `"}`, []string{plain}},
		{`{"session_id":"` + plain + `","display_name":"red"}`, []string{plain, red}},
		{`{"display_name":"WHEEL blu"}`, []string{blue}},
		{`{"display_name":"green"}`, nil},
		{`{"project_ids":["cars","default"]}`, []string{plain, red}},
		{`{"project_ids":[]}`, nil},
		{`{"user_metadata":{"who":"me"}}`, []string{red, blue}},
		{`{"user_metadata":{"who":"me","at":"1"}}`, []string{red}},
		{`{"statuses":[{"type":"active"}]}`, []string{plain, red}},
		{`{"statuses":[{"type":"client_finished","reasons":["success","interrupted"]},{"type":"failed"}]}`, nil},
		{`{"statuses":[{"type":"client_finished","reasons":["errored"]}]}`, []string{blue}},
	} {
		var found foundSessions
		c.want("POST", "/sessions/search", each.body, &found)
		if ids := strings.Join(found.ids(), " "); ids != sorted(each.wanted...) || found.Next != nil {
			t.Errorf("%s: found %s, wanted %s", each.body, ids, each.wanted)
		}
	}
	var one foundSessions
	c.want("POST", "/sessions/search", `{"session_id":"`+red+`"}`, &one)
	if found := one.Sessions[0]; found.Owner != "tml:organization_user:t" || found.Project != "cars" || found.Name != "Red wheel" || found.Checkpoints != 1 ||
		found.Bytes == 0 || found.Status.Type != "active" {
		t.Errorf("found %+v", found)
	}
	c.want("POST", "/sessions/search", `{"session_id":"`+blue+`"}`, &one)
	if status := one.Sessions[0].Status; status.Type != "client_finished" || status.Reason.Type != "errored" || status.Detail != "out of fuel" {
		t.Errorf("found %+v", status)
	}
	// A page after the other gives each session once.
	all, next := "", ""
	for pages := 0; pages < 3; pages++ {
		var page foundSessions
		c.want("POST", "/sessions/search", `{"limit":1`+next+`}`, &page)
		all += " " + strings.Join(page.ids(), " ")
		if (page.Next == nil) != (pages == 2) {
			t.Fatalf("page %d: next is %s", pages, page.Next)
		}
		next = `,"cursor":` + string(page.Next)
	}
	if strings.TrimSpace(all) != sorted(plain, red, blue) {
		t.Errorf("found%s", all)
	}
}

func TestASessionMovesWithItsRuns(t *testing.T) {
	c := newClient(t)
	session, run := c.trained()
	var none map[string]any
	c.want("PUT", "/sessions/"+session+"/project", `{"project_id":"new"}`, &none)
	for project, wanted := range map[string]int{"new": 1, "default": 0} {
		var found struct {
			Runs []struct {
				ID string `json:"training_run_id"`
			} `json:"training_runs"`
		}
		c.want("GET", "/training_runs?project_id="+project, "", &found)
		if len(found.Runs) != wanted || wanted == 1 && found.Runs[0].ID != run {
			t.Errorf("%s: found %+v", project, found)
		}
	}
	// The end of the session does not undo it.
	c.post("/sessions/"+session+"/finish", `{"reason":{"type":"success"}}`)
	var found foundSessions
	c.want("POST", "/sessions/search", `{"project_ids":["new"]}`, &found)
	if len(found.Sessions) != 1 || found.Sessions[0].Status.Type != "client_finished" {
		t.Errorf("found %+v", found)
	}
	for body, wanted := range map[string]int{`{"project_id":"a/b"}`: 400, `{}`: 400} {
		if status, reply := c.call("PUT", "/api/v1/sessions/"+session+"/project", nil, []byte(body)); status != wanted {
			t.Errorf("%s: found %d %s", body, status, reply)
		}
	}
	if status, reply := c.call("PUT", "/api/v1/sessions/none/project", nil, []byte(`{"project_id":"a"}`)); status != 404 {
		t.Errorf("found %d %s", status, reply)
	}
}

// Paths that are not served are refused by name, with a remedy.
func TestRefusalsNameAPathAndARemedy(t *testing.T) {
	c := newClient(t)
	for _, one := range refusals {
		status, reply := c.call(one.method, prefix+strings.NewReplacer("{", "", "}", "").Replace(one.path), nil, nil)
		if status != 400 || !strings.Contains(string(reply), one.path[:6]) || !strings.Contains(string(reply), `"code":"unsupported"`) || !strings.Contains(string(reply), `"category":"user"`) {
			t.Errorf("%s: found %d %s", one.path, status, reply)
		}
	}
}
