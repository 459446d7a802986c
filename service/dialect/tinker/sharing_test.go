package tinker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"tessera.dev/service/dialect"
)

// trained is a run with a checkpoint of each kind, in a session.
func (c *client) trained() (session, run string) {
	c.t.Helper()
	session = c.session()
	run = session + ":train:0"
	c.finish("/create_model", `{"session_id":"`+session+`","model_seq_id":0,"base_model":"base","lora_config":{"rank":4}}`)
	for i, path := range []string{"/save_weights", "/save_weights_for_sampler", "/save_weights_external"} {
		if reply := c.finish(path, fmt.Sprintf(`{"model_id":"%s","seq_id":%d,"path":"one"}`, run, i+1)); !strings.Contains(reply, `"path":"tinker://`) {
			c.t.Fatal(path, reply)
		}
	}
	return session, run
}

// want calls a path and reads its reply.
func (c *client) want(method, path, body string, into any) {
	c.t.Helper()
	status, reply := c.call(method, "/api/v1"+path, nil, []byte(body))
	if status != 200 {
		c.t.Fatalf("%s %s: found %d %s", method, path, status, reply)
	}
	if err := json.Unmarshal(reply, into); err != nil {
		c.t.Fatal(err)
	}
}

// download opens a link as the server does, without a tenant.
func (c *client) download(link string) ([]byte, string) {
	c.t.Helper()
	const begin = "https://host:1"
	if !strings.HasPrefix(link, begin+"/api/v1/links/") {
		c.t.Fatal("found the link", link)
	}
	for _, d := range c.d.Downloads {
		if names, found := match(d.Path, strings.TrimPrefix(link, begin)); found && d.Unkeyed {
			content, err := d.Open(&dialect.Call{Names: names})
			if err != nil {
				return nil, err.Error()
			}
			defer content.Reader.Close()
			read, err := io.ReadAll(content.Reader)
			if err != nil {
				c.t.Fatal(err)
			}
			return read, content.Name
		}
	}
	c.t.Fatal("nothing serves", link)
	return nil, ""
}

func TestAnArchiveHasTheFilesOfACheckpoint(t *testing.T) {
	c := newClient(t)
	_, run := c.trained()
	for _, kind := range []string{"weights", "sampler_weights", "external_weights"} {
		var made struct{ URL, Expires string }
		c.want("GET", "/training_runs/"+run+"/checkpoints/"+kind+"/one/archive", "", &made)
		bytesOf, name := c.download(made.URL)
		if name != "one.tar" || made.Expires == "" || !strings.HasSuffix(made.URL, "/one.tar") {
			t.Errorf("found %q, %+v", name, made)
		}
		found := map[string]string{}
		for reader := tar.NewReader(bytes.NewReader(bytesOf)); ; {
			head, err := reader.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(reader)
			found[head.Name] = string(text)
		}
		if len(found) != 2 || found["steps"] != "0" || found["checkpoint_complete"] != "" {
			t.Errorf("%s: found %q", kind, found)
		}
	}
	if status, reply := c.call("GET", "/api/v1/training_runs/"+run+"/checkpoints/weights/none/archive", nil, nil); status != 404 {
		t.Errorf("found %d %s", status, reply)
	}
}

func TestExternalWeightsAreFilesWithLinks(t *testing.T) {
	c := newClient(t)
	_, run := c.trained()
	var made struct {
		URLs    map[string]string
		Expires string
	}
	c.want("GET", "/training_runs/"+run+"/checkpoints/external_weights/one/external_weights_urls", "", &made)
	if len(made.URLs) != 1 || made.Expires == "" {
		t.Fatalf("found %+v", made)
	}
	if text, name := c.download(made.URLs["steps"]); string(text) != "0" || name != "steps" {
		t.Errorf("found %q %q", text, name)
	}
	if status, reply := c.call("GET", "/api/v1/training_runs/"+run+"/checkpoints/weights/one/external_weights_urls", nil, nil); status != 400 {
		t.Errorf("of weights: found %d %s", status, reply)
	}
	if _, why := c.download("https://host:1/api/v1/links/link-none/steps"); !strings.Contains(why, "no link") {
		t.Error("found", why)
	}
	var gone map[string]any
	c.want("DELETE", "/training_runs/"+run+"/checkpoints/external_weights/one", "", &gone)
	if _, why := c.download(made.URLs["steps"]); !strings.Contains(why, "no checkpoint") {
		t.Error("a link to a checkpoint that was deleted: found", why)
	}
}

func TestCopiesOutliveTheirSource(t *testing.T) {
	c := newClient(t)
	session, run := c.trained()
	for _, kind := range []string{"weights", "sampler_weights"} {
		var made struct {
			Path string `json:"tinker_path"`
		}
		source := "tinker://" + run + "/" + kind + "/one"
		c.want("POST", "/copy_weights", `{"source_path":"`+source+`","destination_project_id":"archive"}`, &made)
		if strings.Contains(made.Path, session) || !strings.HasSuffix(made.Path, "/"+kind+"/one") {
			t.Fatal("found", made.Path)
		}
		var gone map[string]any
		c.want("DELETE", "/training_runs/"+run+"/checkpoints/"+kind+"/one", "", &gone)
		if kind == "sampler_weights" {
			if names := strings.Join(c.models.Names(), " "); names != made.Path {
				t.Errorf("served: found %q, wanted the copy", names)
			}
			continue
		}
		reply := c.finish("/load_weights", `{"session_id":"`+session+`","model_seq_id":7,"path":"`+made.Path+`","optimizer":true}`)
		if !strings.Contains(reply, `"load_weights"`) {
			t.Error("found", reply)
		}
	}
	var runs struct {
		Runs []struct {
			Owner string `json:"model_owner"`
		} `json:"training_runs"`
		Cursor cursor
	}
	c.want("GET", "/training_runs?project_id=archive&limit=1&offset=1", "", &runs)
	if len(runs.Runs) != 1 || runs.Cursor.Total != 2 || runs.Runs[0].Owner != "tml:organization_user:t" {
		t.Errorf("found %+v", runs)
	}
	var storage struct {
		Data []struct {
			Project string `json:"project_id"`
			Count   int    `json:"checkpoint_count"`
		}
	}
	c.want("GET", "/billing/usage/checkpoints/current", "", &storage)
	if len(storage.Data) != 2 || storage.Data[0].Project != "archive" || storage.Data[0].Count != 2 || storage.Data[1].Project != "default" || storage.Data[1].Count != 1 {
		t.Errorf("found %+v", storage)
	}
	c.want("GET", "/billing/usage/checkpoints/current?project_id=default", "", &storage)
	if len(storage.Data) != 1 {
		t.Errorf("found %+v", storage)
	}
}

// A copy that is asked for again with its key is the first one.
func TestARepeatedCopyIsTheSame(t *testing.T) {
	c := newClient(t)
	_, run := c.trained()
	body := `{"source_path":"tinker://` + run + `/weights/one","destination_project_id":"archive"}`
	_, first := c.post("/copy_weights", body)
	_, second := c.post("/copy_weights", body)
	if first != second || !strings.Contains(first, "tinker_path") {
		t.Errorf("found %s and %s", first, second)
	}
	if _, other := c.call("POST", "/api/v1/copy_weights", nil, []byte(body)); string(other) == first {
		t.Errorf("without a key: found %s twice", other)
	}
}
