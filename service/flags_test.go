package main

import (
	"fmt"
	"strings"
	"testing"

	"tessera.dev/service/keys"
)

func TestFlags(t *testing.T) {
	f, err := parseFlags([]string{"a.gguf", "--port", "9", "b", "--alias", "x=a", "--memory-limit=1.5GiB", "--context", "512"})
	if err != nil || len(f.paths) != 2 || f.port != 9 || f.memoryLimit != 3<<29 || f.models(nil).Engine["context"] != 512 {
		t.Errorf("found %+v, %v", f, err)
	}
	for words, wanted := range map[string]string{"m": "0.8", "m --inference-share 0.25": "0.25", "m --inference-share off": ""} {
		f, err := parseFlags(strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		if share := f.models(nil).InferenceShare; share != nil {
			found = fmt.Sprint(*share)
		}
		if found != wanted {
			t.Errorf("%q: found %q, wanted %q", words, found, wanted)
		}
	}
	for words, wanted := range map[string]string{
		"":                          "name a model",
		"m --prot 1":                "did you mean --port",
		"m --port x":                "--port",
		"m --port 70000":            "wanted 0 to 65535",
		"m --alias x":               "wanted NAME=PATH",
		"m --alias x=a --alias x=b": "given twice",
		"m --memory-limit 3QB":      "such as 8GiB",
		"m --tls-key k":             "needs both",
		"m --log-level loud":        "wanted debug",
		"m --idle -1":               "wanted 0 or more",
		"m --training-slots -1":     "wanted 0 or more",
		"m --inference-share 1.5":   "wanted a number from 0 to 1",
	} {
		if _, err := parseFlags(strings.Fields(words)); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: found %v, wanted %q", words, err, wanted)
		}
	}
	if _, err := parseFlags([]string{"--help"}); err != errHelp {
		t.Errorf("help: found %v", err)
	}
}

func TestExposure(t *testing.T) {
	known := &keys.Memory{}
	for host, wanted := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "0.0.0.0": false, "": false, "192.168.1.2": false, "box": false} {
		if err := checkExposure(&flags{host: host}, known); (err == nil) != wanted {
			t.Errorf("%q: found %v", host, err)
		}
	}
	if checkExposure(&flags{host: "0.0.0.0", insecure: true}, known) != nil {
		t.Error("--insecure is refused")
	}
	known.Add("k", keys.Key{})
	if checkExposure(&flags{host: "0.0.0.0"}, known) != nil {
		t.Error("an address is refused though there are keys")
	}
}

func TestReadsChunks(t *testing.T) {
	for version, wanted := range map[string]bool{"go1.19.8": false, "go1.23.5": false, "go1.24": false, "go1.24.1": false, "go1.24.2": true, "go1.27.3": true, "devel": false} {
		if readsChunks(version) != wanted {
			t.Errorf("%s: found %v", version, !wanted)
		}
	}
}
