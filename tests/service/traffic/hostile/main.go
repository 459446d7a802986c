// hostile starts tessera-serve, and sends it what no client should: malformed requests by the thousand, clients that send too slowly, clients
// that never read. Sound clients are served all the while. The service may not fail, end, grow, or serve the sound ones slower. What is
// sent is a function of the seed, so that a finding repeats. Exits with 1 where there is one.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

type options struct {
	program, model, corpus string
	only                   string
	seed                   int64
	from, count, at        int
	slow, unread, sound    int
	rate                   float64
	seconds                float64
	show                   bool
}

func main() {
	var o options
	flag.StringVar(&o.program, "serve", "tessera-serve", "the program")
	flag.StringVar(&o.model, "model", "", "a small model with a tokenizer")
	flag.StringVar(&o.corpus, "corpus", "../../../service/dialect", "folder of sound requests: service/dialect")
	flag.StringVar(&o.only, "only", "", "a family of malformed requests; those of others are left out")
	flag.Int64Var(&o.seed, "seed", 1, "of all that is sent")
	flag.IntVar(&o.from, "from", 0, "number of the first malformed request")
	flag.IntVar(&o.count, "count", 100000, "malformed requests")
	flag.IntVar(&o.at, "at-once", 16, "connections of malformed requests")
	flag.Float64Var(&o.rate, "rate", 0, "malformed requests a second at most; then the sound clients' speed beside them is asked for too")
	flag.IntVar(&o.slow, "slow", 1000, "slow clients")
	flag.IntVar(&o.unread, "unread", 200, "clients that never read")
	flag.IntVar(&o.sound, "sound", 2, "sound clients")
	flag.Float64Var(&o.seconds, "seconds", 20, "of each measurement of the sound clients alone")
	flag.BoolVar(&o.show, "show", false, "print what is sent and what comes")
	flag.Parse()
	if o.model == "" || flag.NArg() > 0 || o.at < 1 || o.count < 0 || o.slow < 0 || o.unread < 0 || o.sound < 0 || o.seconds <= 0 {
		fmt.Fprintln(os.Stderr, "hostile: wanted --model FILE and counts of 0 or more (--help)")
		os.Exit(2)
	}
	findings, err := o.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	if findings > 0 {
		fmt.Printf("%d findings\n", findings)
		os.Exit(1)
	}
	fmt.Println("ok: nothing was found")
}

func (o *options) run() (findings int, err error) {
	folder, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return 0, err
	}
	s, err := startService(o.program, o.model, folder)
	if err != nil {
		return 0, err
	}
	name := strings.TrimSuffix(filepath.Base(o.model), filepath.Ext(o.model))
	w := &watch{options: o, service: s, model: name}
	if err = w.all(); err != nil {
		_ = s.stop()
		return 0, fmt.Errorf("%w (the log is %s)", err, s.log)
	}
	if err := s.stop(); err != nil {
		w.report(err.Error())
	}
	for i, line := range s.faults() {
		if i < mostShown {
			w.report("the log: " + line)
		}
	}
	if w.findings > 0 {
		fmt.Println("the log is", s.log)
		return w.findings, nil
	}
	return 0, os.RemoveAll(folder)
}

func (o *options) pause() { time.Sleep(time.Duration(o.seconds * float64(time.Second))) }
