package tinker

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/service/tinker/scripted"
)

var update = flag.Bool("update", false, "write the transcript anew")

// client calls the dialect as the server does.
type client struct {
	t      *testing.T
	d      dialect.Dialect
	models *scripted.Models
}

func newClient(t *testing.T) *client {
	c := &client{t: t, models: &scripted.Models{}}
	work, err := tinker.New(tinker.Config{Trainers: &scripted.Trainers{}, Models: c.models, Store: &scripted.Store{Folder: t.TempDir()}, PollTime: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(work.Close)
	c.d = New(work, passes{})
	return c
}

// passes give the token itself, with claims.
type passes struct{}

func (passes) Issue(token string, claims map[string]any) string {
	return fmt.Sprint(token, " of ", claims["sub"], " in ", claims["org_id"])
}

// match finds a path among patterns of as many segments.
func match(pattern, path string) (map[string]string, bool) {
	wanted, given := strings.Split(pattern, "/"), strings.Split(path, "/")
	names := map[string]string{}
	if len(wanted) != len(given) {
		return nil, false
	}
	for i, part := range wanted {
		if strings.HasPrefix(part, "{") {
			names[strings.Trim(part, "{}")] = given[i]
		} else if part != given[i] {
			return nil, false
		}
	}
	return names, true
}

func (c *client) call(method, path string, header http.Header, body []byte) (int, []byte) {
	c.t.Helper()
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.d.Plains {
		names, found := match(p.Path, path)
		if !found || p.Method != method {
			continue
		}
		if header == nil {
			header = http.Header{}
		}
		reply, err := p.Reply(&dialect.Call{Header: header, Path: path, Query: query, Body: body, Tenant: "t", Origin: "https://host:1", Now: time.Now(), Names: names, Context: context.Background()}, c.models, nil)
		if err != nil {
			var known *inference.Error
			if !errors.As(err, &known) {
				c.t.Fatalf("%s: %v is no error for a client", path, err)
			}
			return p.Errors(known, "req_1")
		}
		if raw, ok := reply.(dialect.Bytes); ok {
			return 200, raw.Body
		}
		text, err := json.Marshal(reply)
		if err != nil {
			c.t.Fatal(err)
		}
		return 200, text
	}
	c.t.Fatalf("there is no %s %s", method, path)
	return 0, nil
}

func (c *client) post(path, body string) (int, string) {
	c.t.Helper()
	header := http.Header{}
	header.Set("X-Idempotency-Key", "key")
	status, reply := c.call("POST", "/api/v1"+path, header, []byte(body))
	return status, string(reply)
}

// finish waits for the result of a request.
func (c *client) finish(path, body string) string {
	c.t.Helper()
	status, reply := c.post(path, body)
	if status != 200 {
		return fmt.Sprint(status, " ", reply)
	}
	var made begun
	if err := json.Unmarshal([]byte(reply), &made); err != nil || made.Request == "" {
		return fmt.Sprint(status, " ", reply)
	}
	_, reply = c.post("/retrieve_future", `{"request_id":"`+made.Request+`"}`)
	return reply
}

func (c *client) session() string {
	_, reply := c.post("/create_session", `{"tags":[],"user_metadata":null,"sdk_version":"0.38.0","type":"create_session"}`)
	var made struct {
		ID string `json:"session_id"`
	}
	_ = json.Unmarshal([]byte(reply), &made)
	return made.ID
}

const datum = `{"model_input":{"chunks":[{"type":"encoded_text","tokens":[1,2,3]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3,4],"dtype":"int64","shape":[3]},"weights":{"data":[0,1,1],"dtype":"float32"}}}`

// conversation is what the transcript has, with S for the session's id.
var conversation = [][2]string{
	{"/client/config", `{"sdk_version":"0.38.0"}`},
	{"/create_session", `{"tags":["a"],"user_metadata":{"who":"me"},"sdk_version":"0.38.0","type":"create_session"}`},
	{"/session_heartbeat", `{"session_id":"S","type":"session_heartbeat"}`},
	{"/session_heartbeat", `{"session_id":"none"}`},
	{"/create_model", `{"session_id":"S","model_seq_id":0,"base_model":"base","lora_config":{"rank":8,"seed":1},"optimizer_config":{"type":"adamw"},"type":"create_model"}`},
	{"/create_model", `{"session_id":"S","model_seq_id":0,"base_model":"tied","type":"create_model"}`},
	{"/create_model", `{"session_id":"S","model_seq_id":1,"base_model":"tied","lora_config":{"rank":8,"seed":1},"type":"create_model"}`},
	{"/create_model", `{"session_id":"S","model_seq_id":2,"base_model":"none","type":"create_model"}`},
	{"/create_model", `{"session_id":"S","model_seq_id":2,"base_model":"base","optimizer_config":{"type":"dimuon","version":1}}`},
	{"/create_model", `{"session_id":"S","model_seq_id":2,"base_model":"base","lora_config":{"rank":1.5}}`},
	{"/get_info", `{"model_id":"S:train:0","type":"get_info"}`},
	{"/get_info", `{"model_id":"S:train:1"}`},
	{"/forward", `{"model_id":"S:train:0","seq_id":1,"forward_input":{"data":[` + datum + `],"loss_fn":"cross_entropy"}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":2,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"cross_entropy"}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":2,"forward_backward_input":{"data":[],"loss_fn":"cross_entropy"}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":3,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"stable_reinforce"}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":4,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"ppo","loss_fn_config":{"clip_low_threshold":0.8}}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":5,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"cross_entropy","loss_fn_config":{"beta":1}}}`},
	{"/forward_backward", `{"model_id":"S:train:0","seq_id":-1,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"cross_entropy"}}`},
	{"/forward_backward", `{"seq_id":1,"forward_backward_input":{"data":[` + datum + `],"loss_fn":"cross_entropy"}}`},
	{"/optim_step", `{"model_id":"S:train:0","seq_id":6,"adam_params":{"learning_rate":0.001,"beta1":0.9,"beta2":0.95,"eps":1e-12,"weight_decay":0.0,"grad_clip_norm":0.0},"type":"optim_step"}`},
	{"/optim_step", `{"model_id":"S:train:0","seq_id":7,"optimizer_params":{"type":"dimuon","learning_rate":0.1}}`},
	{"/optim_step", `{"model_id":"S:train:0","seq_id":8,"adam_params":{"learning_rate":-1}}`},
	{"/optim_step", `{"model_id":"S:train:0","seq_id":9,"adam_params":{"momentum":1}}`},
	{"/save_weights", `{"model_id":"S:train:0","seq_id":10,"path":"one","ttl_seconds":3600,"overwrite":false,"type":"save_weights"}`},
	{"/save_weights", `{"model_id":"S:train:0","seq_id":11,"path":"a/b"}`},
	{"/save_weights_for_sampler", `{"model_id":"S:train:0","seq_id":12,"path":"one","type":"save_weights_for_sampler"}`},
	{"/save_weights_for_sampler", `{"model_id":"S:train:0","seq_id":13,"sampling_session_seq_id":0,"type":"save_weights_for_sampler"}`},
	{"/weights_info", `{"tinker_path":"tinker://S:train:0/weights/one"}`},
	{"/weights_info", `{"tinker_path":"tinker://S:train:0/weights/two"}`},
	{"/load_weights", `{"model_id":"S:train:0","seq_id":14,"path":"tinker://S:train:0/weights/one","optimizer":true}`},
	{"/load_weights", `{"session_id":"S","model_seq_id":3,"path":"tinker://S:train:0/weights/one","optimizer":true,"type":"load_weights"}`},
	{"/load_weights", `{"session_id":"S","model_seq_id":4,"path":"tinker://S:train:0/sampler_weights/one","optimizer":true}`},
	{"/create_sampling_session", `{"session_id":"S","sampling_session_seq_id":1,"model_path":"tinker://S:train:0/sampler_weights/one","type":"create_sampling_session"}`},
	{"/asample", `{"sampling_session_id":"S:sample:1","seq_id":0,"num_samples":2,"prompt":{"chunks":[{"tokens":[1,2],"type":"encoded_text"}]},"sampling_params":{"max_tokens":5,"temperature":1,"top_k":-1,"top_p":1,"stop":[]},"prompt_logprobs":true,"topk_prompt_logprobs":0,"topk_sample_logprobs":0,"prompt_alt_tokens_k":0,"type":"sample"}`},
	{"/asample", `{"sampling_session_id":"S:sample:0","seq_id":0,"prompt":{"chunks":[{"tokens":[1],"type":"encoded_text"}]},"sampling_params":{"max_tokens":5}}`},
	{"/asample", `{"sampling_session_id":"S:sample:1","seq_id":1,"prompt":{"chunks":[{"type":"image","data":"","format":"png"}]},"sampling_params":{}}`},
	{"/asample", `{"sampling_session_id":"S:sample:1","seq_id":1,"prompt":{"chunks":[{"tokens":[1]}]},"sampling_params":{},"target_prompt_logprobs":{"data":[1],"dtype":"int64"}}`},
	{"/asample", `{"base_model":"base","prompt":{"chunks":[]},"sampling_params":{}}`},
	{"/retrieve_future", `{"request_id":"none","allow_metadata_only":true}`},
	{"/cancel_future", `{"request_id":"none"}`},
	{"/auth/token", `{}`},
	{"/save_weights_external", `{"model_id":"S:train:0","seq_id":15,"path":"one","ttl_seconds":3600,"type":"save_weights_external"}`},
	{"/save_weights_external", `{"model_id":"S:train:0","seq_id":16}`},
	{"/save_weights_external", `{"model_id":"S:train:0","seq_id":17,"path":"two","age_encryption_recipients":["age1"]}`},
	{"/create_sampling_session", `{"session_id":"S","sampling_session_seq_id":2,"model_path":"tinker://S:train:0/external_weights/one"}`},
	{"/copy_weights", `{"session_id":"S","model_seq_id":5,"source_path":"tinker://S:train:0/sampler_weights/one","ttl_seconds":7200}`},
	{"/copy_weights", `{"session_id":"S","model_seq_id":5,"source_path":"tinker://S:train:0/sampler_weights/one","ttl_seconds":7200}`},
	{"/copy_weights", `{"session_id":"S","model_seq_id":5,"source_path":"tinker://S:train:0/weights/one"}`},
	{"/copy_weights", `{"session_id":"S","model_seq_id":6,"source_path":"tinker://S:train:0/weights/none"}`},
	{"/copy_weights", `{"session_id":"S","source_path":"tinker://S:train:0/weights/one"}`},
	{"/copy_weights", `{"source_path":"tinker://S:train:0/weights/one"}`},
	{"/copy_weights", `{"destination_project_id":"a/b","source_path":"tinker://S:train:0/weights/one"}`},
	{"/copy_weights", `{"destination_project_id":"archive","source_path":"tinker://S:train:0/weights/one","weights_access_token":"t"}`},
	{"/optim_step", `{"model_id":"S:train:5","seq_id":1,"adam_params":{}}`},
	{"/asample", `{"model_path":"tinker://S:train:5/sampler_weights/one","prompt":{"chunks":[{"tokens":[1]}]},"sampling_params":{"max_tokens":3}}`},
	{"/retrieve_futures", `{"target":{"type":"sampling_session","sampling_session_id":"S:sample:9"}}`},
	{"/retrieve_futures", `{"target":{"type":"training"}}`},
	{"/create_custom_loss", `{"session_id":"S","custom_loss_seq_id":0,"name":"n","inputs":[],"graph":{}}`},
	{"/sessions/search", `{"session_id":"none"}`},
	{"/sessions/search", `{"limit":201}`},
	{"/sessions/search", `{"statuses":[{"type":"active","reasons":["success"]}]}`},
	{"/sessions/search", `{"cursor":{"last_created_at":"yesterday","last_session_id":"a"}}`},
	{"/sessions/search", `{"owner":{"type":"user","owner_urns":["tml:organization_user:another"]}}`},
	{"/unload_model", `{"model_id":"S:train:0","seq_id":18,"type":"unload_model"}`},
	{"/optim_step", `{"model_id":"S:train:0","seq_id":19,"adam_params":{}}`},
}

func TestTranscript(t *testing.T) {
	c := newClient(t)
	session := c.session()
	var all strings.Builder
	random := regexp.MustCompile(`(fut|ephemeral|checkpoint)[_-][a-zA-Z0-9]{24}`)
	for _, each := range conversation {
		reply := c.finish(each[0], strings.ReplaceAll(each[1], "S:", session+":"))
		if strings.Contains(each[1], `"S"`) {
			reply = c.finish(each[0], strings.ReplaceAll(strings.ReplaceAll(each[1], `"S"`, `"`+session+`"`), "S:", session+":"))
		}
		reply = random.ReplaceAllString(strings.ReplaceAll(reply, session, "S"), "$1")
		fmt.Fprintf(&all, "%s %s\n%s\n\n", each[0], each[1], reply)
	}
	const path = "testdata/transcript.txt"
	if *update {
		_ = os.MkdirAll("testdata", 0o755)
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wanted, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != string(wanted) {
		for i, line := range strings.Split(all.String(), "\n") {
			if lines := strings.Split(string(wanted), "\n"); i >= len(lines) || line != lines[i] {
				t.Fatalf("line %d: found\n%s\nwanted\n%s", i+1, line, append(lines, make([]string, i+1)...)[i])
			}
		}
		t.Fatal("the transcript is longer")
	}
}

// message builds protobuf.
type message []byte

func (m message) bytes(number protowire.Number, value []byte) message {
	return appendMessage(m, number, value)
}
func (m message) number(number protowire.Number, value uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), value)
}

func tensorOf(kind uint64, raw []byte) message { return message{}.bytes(1, raw).number(3, kind) }

func int64Bytes(values ...int64) (raw []byte) {
	for _, value := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(value))
	}
	return raw
}

func request(model string, number uint64, data ...message) message {
	made := message{}.bytes(1, []byte(model)).number(2, number)
	for _, one := range data {
		made = made.bytes(3, one)
	}
	return made.bytes(4, []byte("cross_entropy"))
}

func datumOf(tokens []int32, targets message) message {
	text := message{}.bytes(1, tokenBytes(tokens))
	return message{}.bytes(1, message{}.bytes(1, text)).bytes(2, message{}.bytes(1, []byte("target_tokens")).bytes(2, targets))
}

func TestProtobufIsReadAsTheSDKWritesIt(t *testing.T) {
	sparse := message{}.bytes(1, int64Bytes(5, 6)).bytes(2, int64Bytes(0, 1, 1, 2)).bytes(3, int64Bytes(1, 0))
	targets := message{}.bytes(2, sparse).number(3, typeInt64).bytes(4, []byte{3, 2})
	config := message{}.bytes(1, []byte("clip")).bytes(2, protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(0.5)))
	made, failure, err := readBatch(request("m", 3, datumOf([]int32{1, 2, 3}, targets)).bytes(7, config).number(6, 1))
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if made.model != "m" || made.number != 3 || made.backward || made.loss.Name != "cross_entropy" || made.loss.Config["clip"] != 0.5 {
		t.Fatalf("found %+v", made)
	}
	found := made.data[0]
	if !reflect.DeepEqual(found.Tokens, []int32{1, 2, 3}) || !reflect.DeepEqual(found.Inputs["target_tokens"].Integers, []int64{0, 5, 0, 0, 6, 0}) {
		t.Fatalf("found %+v", found)
	}
}

func TestHostileProtobuf(t *testing.T) {
	good := datumOf([]int32{1}, tensorOf(typeInt64, int64Bytes(1)))
	huge := message{}.bytes(2, message{}.bytes(1, int64Bytes(5)).bytes(2, int64Bytes(0, 1)).bytes(3, int64Bytes(0))).number(3, typeInt64).
		bytes(4, protowire.AppendVarint(protowire.AppendVarint(nil, 1<<40), 1<<40))
	falling := message{}.bytes(2, message{}.bytes(1, int64Bytes(5, 6)).bytes(2, int64Bytes(0, 9, 2)).bytes(3, int64Bytes(0, 0))).number(3, typeInt64).bytes(4, []byte{2, 2})
	negative := message{}.bytes(2, message{}.bytes(1, int64Bytes(5)).bytes(2, int64Bytes(0, 1)).bytes(3, int64Bytes(-1))).number(3, typeInt64).bytes(4, []byte{1, 2})
	for name, one := range map[string]struct {
		body    []byte
		refused bool // as a whole; else the request fails, whose number came
	}{
		"empty":            {nil, true},
		"no number":        {request("m", 0, good), true},
		"negative number":  {request("m", math.MaxUint64, good), true},
		"cut":              {request("m", 1, good)[:20], true},
		"group":            {[]byte{0x0b, 0x0c}, true},
		"length too large": {[]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, true},
		"wrong type":       {message{}.number(1, 7), true},
		"odd tokens":       {request("m", 1, message{}.bytes(1, message{}.bytes(1, message{}.bytes(1, []byte{1, 2, 3})))), false},
		"odd integers":     {request("m", 1, datumOf([]int32{1}, tensorOf(typeInt64, []byte{1}))), false},
		"unknown elements": {request("m", 1, datumOf([]int32{1}, tensorOf(9, int64Bytes(1)))), false},
		"an image":         {request("m", 1, message{}.bytes(1, message{}.bytes(2, nil))), false},
		"huge sparse":      {request("m", 1, datumOf([]int32{1}, huge)), false},
		"falling pointers": {request("m", 1, datumOf([]int32{1}, falling)), false},
		"negative column":  {request("m", 1, datumOf([]int32{1}, negative)), false},
		"text setting":     {request("m", 1, good).bytes(7, message{}.bytes(1, []byte("a")).bytes(2, message{}.bytes(2, []byte("b")))), false},
	} {
		_, failure, err := readBatch(one.body)
		if (err != nil) != one.refused || (failure != nil) == one.refused {
			t.Errorf("%s: found error %v, failure %v", name, err, failure)
		}
	}
	body := request("m", 1, good)
	for cut := range body { // no panic
		_, _, _ = readBatch(body[:cut])
		for _, flip := range []byte{1, 0x80, 0xff} {
			changed := append([]byte{}, body...)
			changed[cut] ^= flip
			_, _, _ = readBatch(changed)
		}
	}
}

func TestProtobufReplies(t *testing.T) {
	c := newClient(t)
	session := c.session()
	run := session + ":train:0"
	c.finish("/create_model", `{"session_id":"`+session+`","model_seq_id":0,"base_model":"base"}`)
	header := http.Header{}
	header.Set("Content-Type", Protobuf)
	header.Set("Accept", Protobuf)
	status, reply := c.call("POST", "/api/v1/forward_backward", header, request(run, 1, datumOf([]int32{1, 2}, tensorOf(typeInt64, int64Bytes(2, 3)))))
	var made begun
	if err := json.Unmarshal(reply, &made); err != nil || status != 200 {
		t.Fatal(status, string(reply))
	}
	_, reply = c.call("POST", "/api/v1/retrieve_future", header, []byte(`{"request_id":"`+made.Request+`"}`))
	values := floatBytes([]float32{-1, -1})
	if !bytes.Contains(reply, values) || !bytes.Contains(reply, []byte("loss:sum")) || !bytes.Contains(reply, int64Bytes(0, 8)) {
		t.Fatalf("found %q", reply)
	}
}
