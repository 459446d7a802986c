package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"tessera.dev/service/keys"
	"tessera.dev/service/models"
	"tessera.dev/tessera"
)

// errHelp says that the help was asked for.
var errHelp = errors.New("help")

// flags are the words of the command line.
type flags struct {
	paths             []string
	aliases, adapters named

	host                        string
	port                        int
	hostNames                   list
	apiKeys                     list
	apiKeyFile, state           string
	insecure                    bool
	certificate, certificateKey string

	devices, parallel, precision, weights, cacheType string
	adapterOn                                        string
	speculation, draftModel                          string
	context, sequences, cacheTokens, draftTokens     int
	adapterSlots, adapterRank, threads               int
	trainers, trainContext                           int
	trainingSlots, trainingRank, trainingRows        int
	memoryLimit                                      size
	inferenceShare                                   share
	idle, drain                                      int
	queueTokens                                      int64
	body                                             size
	bodyBytes                                        int64

	preload, metricsPrefix, logLevel string
	logText, version                 bool
}

// named is a flag NAME=VALUE that may be repeated.
type named map[string]string

func (n named) String() string { return "" }

func (n named) Set(given string) error {
	name, value, found := strings.Cut(given, "=")
	if !found || name == "" || value == "" {
		return errors.New("wanted NAME=PATH")
	}
	if _, twice := n[name]; twice {
		return fmt.Errorf("the name %q is given twice", name)
	}
	n[name] = value
	return nil
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return "" }

func (l *list) Set(given string) error {
	if given == "" {
		return errors.New("wanted a word")
	}
	*l = append(*l, given)
	return nil
}

// size is a flag of bytes: 8GiB.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

func (s *size) Set(given string) error {
	units := map[string]int64{"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
	digits := strings.TrimRight(given, "KMGTIBkmgtib")
	number, err := strconv.ParseFloat(digits, 64)
	unit, known := units[strings.ToUpper(given[len(digits):])]
	if err != nil || !known || number < 0 || number*float64(unit) > 1<<60 {
		return errors.New("wanted a size such as 8GiB")
	}
	*s = size(number * float64(unit))
	return nil
}

// share is a flag of a part of the cores: 0 to 1, or off.
type share struct{ part *float64 } // nil: off

func (s *share) String() string { return "" }

func (s *share) Set(given string) error {
	if given == "off" {
		s.part = nil
		return nil
	}
	value, err := strconv.ParseFloat(given, 64)
	if err != nil || !(value >= 0 && value <= 1) {
		return errors.New("wanted a number from 0 to 1, or off")
	}
	s.part = &value
	return nil
}

func (f *flags) define(set *flag.FlagSet) {
	set.Var(f.aliases, "alias", "")
	set.Var(f.adapters, "adapter", "")
	set.StringVar(&f.host, "host", "127.0.0.1", "")
	set.IntVar(&f.port, "port", 8080, "")
	set.Var(&f.hostNames, "host-name", "")
	set.Var(&f.apiKeys, "api-key", "")
	set.StringVar(&f.apiKeyFile, "api-key-file", "", "")
	set.StringVar(&f.state, "state", os.Getenv("TESSERA_STATE"), "")
	set.BoolVar(&f.insecure, "insecure", false, "")
	set.StringVar(&f.certificate, "tls-certificate", "", "")
	set.StringVar(&f.certificateKey, "tls-key", "", "")
	set.StringVar(&f.devices, "devices", "", "")
	set.StringVar(&f.parallel, "parallel", "", "")
	set.StringVar(&f.precision, "precision", "", "")
	set.StringVar(&f.weights, "weights", "", "")
	set.StringVar(&f.cacheType, "cache-type", "", "")
	set.StringVar(&f.speculation, "speculation", "", "")
	set.StringVar(&f.draftModel, "draft-model", "", "")
	set.IntVar(&f.draftTokens, "draft-tokens", 0, "")
	set.IntVar(&f.context, "context", 0, "")
	set.IntVar(&f.sequences, "sequences", 0, "")
	set.IntVar(&f.cacheTokens, "cache-tokens", 0, "")
	set.IntVar(&f.adapterSlots, "adapters", 4, "")
	set.IntVar(&f.adapterRank, "adapter-rank", 16, "")
	set.StringVar(&f.adapterOn, "adapter-on", "blocks", "")
	set.IntVar(&f.threads, "threads", 0, "")
	set.IntVar(&f.trainers, "trainers", 4, "")
	set.IntVar(&f.trainContext, "train-context", 0, "")
	set.IntVar(&f.trainingSlots, "training-slots", 8, "")
	set.IntVar(&f.trainingRank, "training-rank", 32, "")
	set.IntVar(&f.trainingRows, "training-rows", 1, "")
	set.Var(&f.memoryLimit, "memory-limit", "")
	usual := 0.8
	f.inferenceShare.part = &usual
	set.Var(&f.inferenceShare, "inference-share", "")
	set.IntVar(&f.idle, "idle", 0, "")
	set.IntVar(&f.drain, "drain", 30, "")
	set.Int64Var(&f.queueTokens, "queue-tokens", 0, "")
	set.Var(&f.body, "body-limit", "")
	set.StringVar(&f.preload, "preload", "", "")
	set.StringVar(&f.metricsPrefix, "metrics-prefix", "vllm", "")
	set.StringVar(&f.logLevel, "log-level", "info", "")
	set.BoolVar(&f.logText, "log-text", false, "")
	set.BoolVar(&f.version, "version", false, "")
}

func parseFlags(words []string) (*flags, error) {
	f := &flags{aliases: named{}, adapters: named{}}
	set := flag.NewFlagSet("tessera-serve", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.define(set)
	for { // flags may follow paths
		if err := set.Parse(words); err == flag.ErrHelp {
			return nil, errHelp
		} else if err != nil {
			return nil, hinted(set, err)
		}
		if words = set.Args(); len(words) == 0 {
			break
		}
		f.paths = append(f.paths, words[0])
		words = words[1:]
	}
	return f, f.check()
}

// hinted adds what may be meant by an unknown flag.
func hinted(set *flag.FlagSet, err error) error {
	const unknown = "flag provided but not defined: -"
	text := err.Error()
	if !strings.HasPrefix(text, unknown) {
		return errors.New(strings.Replace(text, "flag -", "flag --", 1))
	}
	word := "--" + strings.TrimLeft(strings.TrimPrefix(text, unknown), "-")
	var known []string
	set.VisitAll(func(one *flag.Flag) { known = append(known, "--"+one.Name) })
	hint, _ := tessera.WordHint("option", word, known)
	if hint != "" {
		hint = "; " + hint
	}
	return fmt.Errorf("there is no option %s%s (`tessera-serve --help` lists all)", word, hint)
}

func (f *flags) check() error {
	if f.version {
		return nil
	}
	if len(f.paths) == 0 && len(f.aliases) == 0 {
		return errors.New("name a model: a .gguf or .tsr file, a Hugging Face folder, or a folder of these (`tessera-serve --help`)")
	}
	if f.port < 0 || f.port > 65535 {
		return fmt.Errorf("--port: found %d, wanted 0 to 65535", f.port)
	}
	if (f.certificate == "") != (f.certificateKey == "") {
		return errors.New("TLS needs both --tls-certificate and --tls-key")
	}
	if _, known := levels[f.logLevel]; !known {
		return fmt.Errorf("--log-level: found %q, wanted debug, info, warning or error", f.logLevel)
	}
	for name, value := range map[string]int{"context": f.context, "sequences": f.sequences, "cache-tokens": f.cacheTokens, "draft-tokens": f.draftTokens,
		"adapters": f.adapterSlots, "adapter-rank": f.adapterRank, "threads": f.threads, "trainers": f.trainers, "train-context": f.trainContext, "idle": f.idle, "drain": f.drain,
		"training-slots": f.trainingSlots, "training-rank": f.trainingRank, "training-rows": f.trainingRows} {
		if value < 0 {
			return fmt.Errorf("--%s: found %d, wanted 0 or more", name, value)
		}
	}
	f.bodyBytes = int64(f.body)
	return nil
}

// models is how the registry is made.
func (f *flags) models(log func(level, message string, fields map[string]any)) models.Config {
	options := tessera.Options{}
	for key, value := range map[string]string{"devices": f.devices, "parallel": f.parallel, "precision": f.precision, "weights": f.weights,
		"cache_type": f.cacheType, "speculation": f.speculation, "draft_model": f.draftModel} {
		if value != "" {
			options[key] = value
		}
	}
	for key, value := range map[string]int{"context": f.context, "sequences": f.sequences, "cache_tokens": f.cacheTokens, "draft_tokens": f.draftTokens} {
		if value > 0 {
			options[key] = value
		}
	}
	if f.adapterSlots > 0 {
		options["adapters"], options["adapter_rank"], options["adapter_on"] = f.adapterSlots, f.adapterRank, f.adapterOn
	}
	return models.Config{Paths: f.paths, Aliases: f.aliases, Adapters: f.adapters, Engine: options, Threads: f.threads,
		MemoryLimit: int64(f.memoryLimit), InferenceShare: f.inferenceShare.part, Idle: time.Duration(f.idle) * time.Second, QueueTokens: f.queueTokens, Log: log}
}

// keys are those of the command line, of a file, and of the environment, which other users of the machine do not see.
func (f *flags) keys() (keys.Keys, error) {
	all := &keys.Memory{}
	given := append([]string{}, f.apiKeys...)
	if fromEnvironment := os.Getenv("TESSERA_API_KEY"); fromEnvironment != "" {
		given = append(given, fromEnvironment)
	}
	if f.apiKeyFile != "" {
		text, err := os.ReadFile(f.apiKeyFile)
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				given = append(given, line)
			}
		}
	}
	for i, token := range given {
		all.Add(token, keys.Key{Tenant: fmt.Sprintf("key-%d", i+1), Scopes: []keys.Scope{keys.Admin}})
	}
	return all, nil
}
