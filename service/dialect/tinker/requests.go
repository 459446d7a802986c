package tinker

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

// begun is the reply to requests whose result comes later.
type begun struct {
	Request   string   `json:"request_id"`
	Model     string   `json:"model_id,omitempty"`
	Sequences []string `json:"sample_sequence_ids,omitempty"`
}

func future(f *tinker.Future, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return begun{f.ID, f.Run, f.Sequences}, nil
}

const mostNumber = int64(math.MaxInt64)

// body reads an object whose member type, where there is one, is the path's.
func body(call *dialect.Call, kind string) (*fields.Object, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	given.Only("type", `"`+kind+`"`)
	return given, nil
}

// metadata are texts; other values are kept as JSON.
func metadata(given *fields.Object, name string) map[string]string {
	object, ok := given.Object(name)
	if !ok {
		return nil
	}
	made := map[string]string{}
	for _, key := range object.Names() {
		value, ok := object.Value(key)
		switch {
		case !ok:
		case value.Kind() == fields.Text:
			made[key] = value.Text()
		default:
			made[key] = string(value.Raw())
		}
	}
	object.Rest()
	return made
}

func (s *service) health(*dialect.Call) (any, error) { return map[string]string{"status": "ok"}, nil }

// config are the flags of the SDK: whether its key is exchanged; batches as protobuf, which its older versions send where it is set; whether
// clones of a sampler's client ask for a number, and ask for what is done of all requests of one at once.
func (s *service) config(call *dialect.Call) (any, error) {
	return map[string]any{"pjwt_auth_enabled": s.passes != nil, "proto_write_fwdbwd": false, "proto_compress_fwdbwd": false, "parallel_fwdbwd_chunks": true,
		"sample_join_sampling_session": true, "sample_use_retrieve_futures": true, "custom_loss_server_side": false}, checkObject(call)
}

func (s *service) dynamicConfig(call *dialect.Call) (any, error) {
	return map[string]any{"sample_cancel_enabled": true}, checkObject(call)
}

// telemetry is dropped.
func (s *service) telemetry(call *dialect.Call) (any, error) {
	return map[string]string{"status": "accepted"}, checkObject(call)
}

// checkObject refuses a body that is no object. Its members have no effect.
func checkObject(call *dialect.Call) error {
	_, err := fields.Body(call.Body)
	return err
}

func (s *service) createSession(call *dialect.Call) (any, error) {
	given, err := body(call, "create_session")
	if err != nil {
		return nil, err
	}
	session := tinker.Session{Metadata: metadata(given, "user_metadata")}
	if tags, ok := given.Value("tags"); ok {
		session.Tags = tags.Texts(0, 1000)
	}
	session.Name, _ = given.Text("display_name")
	session.Project, _ = given.Text("project_id")
	given.Pass("sdk_version")
	if err := given.Done(); err != nil {
		return nil, err
	}
	id, err := s.work.NewSession(call.Context, call.Tenant, repeatKey(call), session)
	return map[string]any{"type": "create_session", "session_id": id}, err
}

// repeatKey makes a request safe to repeat; "" for none.
func repeatKey(call *dialect.Call) string {
	if key := call.Header.Get("X-Idempotency-Key"); key != "" {
		return key
	}
	return call.Header.Get("Idempotency-Key")
}

func (s *service) heartbeat(call *dialect.Call) (any, error) {
	given, err := body(call, "session_heartbeat")
	if err != nil {
		return nil, err
	}
	id := given.NeedText("session_id")
	if err := given.Done(); err != nil {
		return nil, err
	}
	return map[string]any{"type": "session_heartbeat"}, s.work.Heartbeat(call.Context, call.Tenant, id)
}

func number(given *fields.Object, name string, least int64) int64 {
	value, ok := given.Integer(name, least, 1<<40)
	if !ok {
		given.Fail(name, fields.Missing, "is missing; an integer is wanted")
	}
	return value
}

// sequence is the number of a request; 0 where it has none.
func sequence(given *fields.Object) int64 {
	value, _ := given.Integer("seq_id", 1, mostNumber)
	return value
}

func adapters(given *fields.Object) (made tinker.Adapters) {
	made = tinker.Adapters{Rank: 32, Seed: int64(rand.Uint32()), Head: true, MLP: true, Attention: true}
	config, ok := given.Object("lora_config")
	if !ok {
		return made
	}
	if rank, ok := config.Integer("rank", 1, 4096); ok {
		made.Rank = rank
	}
	if seed, ok := config.Integer("seed", math.MinInt64, math.MaxInt64); ok {
		made.Seed = seed & math.MaxInt64
	}
	for name, flag := range map[string]*bool{"train_unembed": &made.Head, "train_mlp": &made.MLP, "train_attn": &made.Attention} {
		if value, ok := config.Flag(name); ok {
			*flag = value
		}
	}
	_ = config.Done()
	return made
}

func optimizer(given *fields.Object) {
	if config, ok := given.Object("optimizer_config"); ok {
		config.Only("type", `"adamw"`)
		_ = config.Done()
	}
}

func (s *service) createModel(call *dialect.Call) (any, error) {
	given, err := body(call, "create_model")
	if err != nil {
		return nil, err
	}
	order := tinker.RunOrder{Session: given.NeedText("session_id"), Number: number(given, "model_seq_id", 0), Base: given.NeedText("base_model"),
		Adapters: adapters(given), Metadata: metadata(given, "user_metadata"), Digest: numbered(call, 0).Digest}
	optimizer(given)
	if err := given.Done(); err != nil {
		return nil, err
	}
	return future(s.work.NewRun(call.Context, call.Tenant, order))
}

func (s *service) unloadModel(call *dialect.Call) (any, error) {
	given, err := body(call, "unload_model")
	if err != nil {
		return nil, err
	}
	id, at := given.NeedText("model_id"), sequence(given)
	if err := given.Done(); err != nil {
		return nil, err
	}
	return future(s.work.Unload(call.Context, call.Tenant, id, numbered(call, at)))
}

func (s *service) load(call *dialect.Call) (any, error) {
	given, err := body(call, "load_weights")
	if err != nil {
		return nil, err
	}
	given.Refuse("weights_access_token", notToken)
	origin := tinker.Origin{Checkpoint: given.NeedText("path")}
	origin.Optimizer, _ = given.Flag("optimizer")
	optimizer(given)
	if session, ok := given.Text("session_id"); ok {
		order := tinker.RunOrder{Session: session, Number: number(given, "model_seq_id", 0), Metadata: metadata(given, "user_metadata"),
			Digest: numbered(call, 0).Digest, Origin: &origin}
		order.Base, _ = given.Text("base_model")
		if err := given.Done(); err != nil {
			return nil, err
		}
		return future(s.work.NewRun(call.Context, call.Tenant, order))
	}
	id, at := given.NeedText("model_id"), sequence(given)
	failure, err := content(given, id)
	if err != nil {
		return nil, err
	}
	return future(s.work.Load(call.Context, call.Tenant, id, numbered(call, at), origin, failure))
}

// content ends the reading of a numbered request. What is wrong with it is a failure of the request, whose number has come, as long as
// its model is named.
func content(given *fields.Object, id string) (failure, err error) {
	found := given.Done()
	var known *inference.Error
	if id == "" || errors.As(found, &known) && (known.Param == "seq_id" || known.Param == "model_id") {
		return nil, found
	}
	return found, nil
}

// step reads an optimizer step.
func (s *service) step(call *dialect.Call) (any, error) {
	given, err := body(call, "optim_step")
	if err != nil {
		return nil, err
	}
	id, at := given.NeedText("model_id"), sequence(given)
	update := tinker.DefaultUpdate
	params, ok := given.Object("adam_params")
	if other, there := given.Object("optimizer_params"); there {
		kind, _ := other.Text("type")
		if kind != "adamw" {
			other.Fail("type", fields.ValueRefused, "is %q; supported: \"adamw\", with adam_params", kind)
		}
		if !ok {
			params, ok = other, true
		}
	}
	if ok {
		for _, one := range []struct {
			name        string
			value       *float64
			least, most float64
		}{{"learning_rate", &update.LearningRate, 0, 1e6}, {"beta1", &update.Beta1, 0, 0.9999999}, {"beta2", &update.Beta2, 0, 0.9999999999},
			{"eps", &update.Eps, 0, 1}, {"weight_decay", &update.WeightDecay, 0, 1e6}, {"grad_clip_norm", &update.ClipNorm, 0, math.MaxFloat32}} {
			if value, ok := params.Number(one.name, one.least, one.most); ok {
				*one.value = value
			}
		}
		_ = params.Done()
	}
	failure, err := content(given, id)
	if err != nil {
		return nil, err
	}
	return future(s.work.Step(call.Context, call.Tenant, id, numbered(call, at), update, failure))
}

func (s *service) save(call *dialect.Call) (any, error) {
	given, err := body(call, "save_weights")
	if err != nil {
		return nil, err
	}
	return s.saveWith(call, given, s.work.Save)
}

func (s *service) saveForSampler(call *dialect.Call) (any, error) {
	given, err := body(call, "save_weights_for_sampler")
	if err != nil {
		return nil, err
	}
	given.Only("kind", `"snapshot"`) // "inflight" is weights that change below their clients
	return s.saveWith(call, given, s.work.SaveForSampler)
}

func (s *service) saveExternal(call *dialect.Call) (any, error) {
	given, err := body(call, "save_weights_external")
	if err != nil {
		return nil, err
	}
	given.NeedText("path")
	given.Refuse("age_encryption_recipients", "files are written as they are; encrypt what you download")
	return s.saveWith(call, given, s.work.SaveExternal)
}

func (s *service) saveWith(call *dialect.Call, given *fields.Object, save saver) (any, error) {
	id, at := given.NeedText("model_id"), sequence(given)
	order := tinker.SaveOrder{Sampler: -1, Metadata: metadata(given, "user_metadata")}
	order.Name, _ = given.Text("path")
	order.Overwrite, _ = given.Flag("overwrite")
	order.Life, _ = given.Integer("ttl_seconds", 1, mostNumber)
	if value, ok := given.Integer("sampling_session_seq_id", 0, 1<<40); ok && order.Name == "" {
		order.Sampler = value
	}
	failure, err := content(given, id)
	if err != nil {
		return nil, err
	}
	return future(save(call.Context, call.Tenant, id, numbered(call, at), order, failure))
}

func (s *service) cancel(call *dialect.Call) (any, error) {
	given, err := body(call, "cancel_future")
	if err != nil {
		return nil, err
	}
	id := given.NeedText("request_id")
	if err := given.Done(); err != nil {
		return nil, err
	}
	return map[string]string{"status": "accepted"}, s.work.Cancel(call.Tenant, id)
}

// accepts says whether the client reads protobuf.
func accepts(call *dialect.Call) bool { return strings.Contains(call.Header.Get("Accept"), Protobuf) }

func (s *service) retrieve(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	id := given.NeedText("request_id")
	given.Pass("model_id", "allow_metadata_only", "type")
	if err := given.Done(); err != nil {
		return nil, err
	}
	f, result, err, ready := s.work.Retrieve(call.Context, call.Tenant, id)
	switch {
	case f == nil:
		return nil, err
	case !ready:
		state := map[string]any{"type": "try_again", "request_id": id, "queue_state": "active"}
		if why := f.Paused(); why != "" {
			state["queue_state"], state["queue_state_reason"] = "paused_capacity", why
		}
		return state, nil
	case err != nil:
		return failed(err), nil
	}
	return shown(result, accepts(call))
}

// failed is the result of a request that failed.
func failed(err error) any {
	var known *inference.Error
	if !errors.As(err, &known) {
		known = &inference.Error{Kind: inference.Internal, Message: "an internal error; the service's log has it"}
	}
	return map[string]string{"error": known.Message, "category": category(known), "code": known.Code, "param": known.Param}
}

// saver is one of the two ways to write a state.
type saver func(ctx context.Context, tenant, id string, given tinker.Numbered, order tinker.SaveOrder, failure error) (*tinker.Future, error)
