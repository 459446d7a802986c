// load asks a running tessera-serve for streamed texts with many clients at once, each of which sends its next request at the end of the
// last, and prints what came and what it took: tokens a second, CPU seconds a token of both processes, times, the service's own delays.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"tessera.dev/traffic/observe"
)

// load is what is asked for.
type load struct {
	address, model, key string
	process             observe.Process
	clients, hold       int
	prompt, tokens      int
	requests            int64
	vocabulary          int64
	duration            time.Duration
	asJSON              bool
}

func parse() (*load, error) {
	l := &load{}
	flag.StringVar(&l.address, "address", "127.0.0.1:8080", "host and port of the service")
	flag.StringVar(&l.model, "model", "", "the name of a model that generates texts")
	flag.StringVar(&l.key, "key", "", "key of the service")
	process := flag.Int("pid", 0, "the service's process, on this machine")
	flag.IntVar(&l.clients, "clients", 64, "at once")
	minutes := flag.Float64("minutes", 5, "time after which no request is begun")
	flag.Int64Var(&l.requests, "requests", 0, "in all, in place of --minutes")
	flag.IntVar(&l.prompt, "prompt", 128, "random tokens of each prompt")
	flag.IntVar(&l.tokens, "new", 128, "tokens of each text")
	flag.Int64Var(&l.vocabulary, "vocabulary", 49152, "prompts have tokens below this one")
	flag.IntVar(&l.hold, "hold", 0, "measure the memory of so many streams that are open at once, in place of a load")
	flag.BoolVar(&l.asJSON, "json", false, "one JSON object on standard output")
	flag.Parse()
	l.process, l.duration = observe.Process(*process), time.Duration(*minutes*float64(time.Minute))
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("found the argument %q, wanted options alone", flag.Arg(0))
	case l.model == "":
		return nil, fmt.Errorf("--model is missing: the name of a model of the service")
	case *process < 1:
		return nil, fmt.Errorf("--pid: found %d, wanted the number of the service's process", *process)
	case l.clients < 1 || l.prompt < 1 || l.tokens < 1 || l.vocabulary < 1 || l.requests < 0 || l.hold < 0 || l.duration <= 0:
		return nil, fmt.Errorf("found a number below 1 in --clients, --prompt, --new, --vocabulary, --requests, --minutes or --hold, wanted 1 or more")
	}
	return l, nil
}

func main() {
	l, err := parse()
	if err == nil {
		var result printed
		if l.hold > 0 {
			result, err = l.measureStreams()
		} else {
			result, err = l.measure()
		}
		if err == nil && l.asJSON {
			err = json.NewEncoder(os.Stdout).Encode(result)
		} else if err == nil {
			result.print(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
