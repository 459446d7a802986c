package ollama

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

type details struct {
	Parent   string   `json:"parent_model"`
	Format   string   `json:"format"`
	Family   string   `json:"family"`
	Families []string `json:"families"`
	Size     string   `json:"parameter_size"`
	Level    string   `json:"quantization_level"`
}

func newDetails(known inference.Info) details {
	return details{known.Base, "", known.Architecture, []string{known.Architecture}, parameterSize(known.Parameters), strings.ToUpper(known.Type)}
}

// parameterSize is a count as people say it: 134.52M, 8.0B.
func parameterSize(count int64) string {
	switch {
	case count >= 1e9:
		return strconv.FormatFloat(float64(count)/1e9, 'f', 1, 64) + "B"
	case count >= 1e6:
		return strconv.FormatFloat(float64(count)/1e6, 'f', 2, 64) + "M"
	case count >= 1e3:
		return strconv.FormatFloat(float64(count)/1e3, 'f', 2, 64) + "K"
	}
	return strconv.FormatInt(count, 10)
}

// digest tells versions of a model apart by what is known of its file; its bytes are not hashed.
func digest(known inference.Info) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s\x00%d\x00%d", known.Name, known.Created, known.Bytes)))
	return hex.EncodeToString(sum[:])
}

func moment(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

type listed struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Modified string  `json:"modified_at"`
	Size     int64   `json:"size"`
	Digest   string  `json:"digest"`
	Details  details `json:"details"`
}

func listModels(_ *dialect.Call, models inference.Models, _ <-chan struct{}) (any, error) {
	list := []listed{}
	for _, known := range models.List() {
		list = append(list, listed{known.Name, known.Name, moment(known.Created), known.Bytes, digest(known), newDetails(known)})
	}
	return struct {
		Models []listed `json:"models"`
	}{list}, nil
}

type loaded struct {
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Size    int64   `json:"size"`
	Digest  string  `json:"digest"`
	Details details `json:"details"`
	Expires string  `json:"expires_at"`
	Device  int64   `json:"size_vram"`
	Context int64   `json:"context_length"`
}

// listLoaded has a time of unloading far ahead, as the service decides it.
func listLoaded(call *dialect.Call, models inference.Models, _ <-chan struct{}) (any, error) {
	list := []loaded{}
	expires := call.Now.UTC().AddDate(100, 0, 0).Format(time.RFC3339)
	for _, known := range models.List() {
		if known.Loaded {
			list = append(list, loaded{known.Name, known.Name, known.Bytes, digest(known), newDetails(known), expires, 0, known.Context})
		}
	}
	return struct {
		Models []loaded `json:"models"`
	}{list}, nil
}

type shown struct {
	License      string         `json:"license"`
	Modelfile    string         `json:"modelfile"`
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"`
	Details      details        `json:"details"`
	Info         map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	Modified     string         `json:"modified_at"`
}

func show(call *dialect.Call, models inference.Models, _ <-chan struct{}) (any, error) {
	body, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	name := modelName(body)
	body.Pass("verbose")
	for _, member := range []string{"system", "template"} {
		body.Only(member, `""`)
	}
	body.Only("options", "{}")
	if err := body.Done(); err != nil {
		return nil, err
	}
	for _, known := range models.List() {
		if known.Name == name {
			return newShown(known), nil
		}
	}
	return nil, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Message: "model '" + name + "' not found"}
}

func newShown(known inference.Info) shown {
	info := map[string]any{"general.architecture": known.Architecture, "general.basename": known.Name, "general.parameter_count": known.Parameters}
	if known.Context > 0 {
		info[known.Architecture+".context_length"] = known.Context
	}
	return shown{Modelfile: "FROM " + known.Name + "\n", Template: known.Template, Details: newDetails(known), Info: info,
		Capabilities: capabilities(known), Modified: moment(known.Created)}
}

// capabilities reads of tools and reasoning off the template.
func capabilities(known inference.Info) []string {
	can := []string{}
	if does(known, "generate") || does(known, "chat") {
		can = append(can, "completion")
	}
	if strings.Contains(known.Template, "tools") {
		can = append(can, "tools")
	}
	for _, mark := range []string{"think", "reasoning"} {
		if strings.Contains(known.Template, mark) {
			can = append(can, "thinking")
			break
		}
	}
	if does(known, "embed") {
		can = append(can, "embedding")
	}
	return can
}
