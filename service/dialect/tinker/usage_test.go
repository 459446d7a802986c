package tinker

import "testing"

func TestUsageIsOfSessionsAndTheirProjects(t *testing.T) {
	c := newClient(t)
	session := c.named("", "cars", `{"who":"me"}`)
	run := session + ":train:0"
	c.finish("/create_model", `{"session_id":"`+session+`","model_seq_id":0,"base_model":"base"}`)
	c.finish("/forward", `{"model_id":"`+run+`","seq_id":1,"forward_input":{"data":[`+datum+`],"loss_fn":"cross_entropy"}}`)
	c.finish("/save_weights", `{"model_id":"`+run+`","seq_id":2,"path":"one"}`)
	c.finish("/asample", `{"base_model":"base","prompt":{"chunks":[{"tokens":[1,2,3,4]}]},"sampling_params":{"max_tokens":3}}`)
	var found struct {
		Data []struct {
			Base    string  `json:"base_model"`
			User    string  `json:"user_id"`
			ID      *string `json:"session_id"`
			Project string  `json:"project_id"`
			Event   struct {
				Type   string
				Tokens int64 `json:"token_count"`
				Count  int64
			} `json:"event_info"`
		}
		Sessions map[string]struct {
			Metadata map[string]string `json:"user_metadata"`
		}
	}
	c.want("GET", "/billing/usage/events", "", &found)
	told := map[string]int64{}
	for _, one := range found.Data {
		told[one.Event.Type] = one.Event.Tokens + one.Event.Count
		if one.Base != "base" || one.User != "tml:organization_user:t" {
			t.Errorf("found %+v", one)
		}
		if trained := one.Event.Type == "training" || one.Event.Type == "checkpoint"; trained != (one.ID != nil && *one.ID == session && one.Project == "cars") {
			t.Errorf("found %+v", one)
		}
	}
	if told["training"] != 3 || told["checkpoint"] != 1 || told["sampling_prefill"] != 4 || told["sampling_sample"] != 2 || found.Data[0].Event.Tokens != 4 {
		t.Errorf("found %v in %+v", told, found.Data)
	}
	if len(found.Sessions) != 1 || found.Sessions[session].Metadata["who"] != "me" {
		t.Errorf("found %+v", found.Sessions)
	}
	if status, reply := c.call("GET", "/api/v1/billing/usage/events?starting_on=2026-01-01&ending_before=2026-02-01", nil, nil); status != 400 {
		t.Errorf("found %d %s", status, reply)
	}
}
