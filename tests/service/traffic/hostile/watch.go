package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"tessera.dev/traffic/observe"
)

// Bounds: the share of their speed that sound clients keep, the growth of anonymous memory, and what of it is noise of a collector in a
// small process. Shorter runs than leastHalf and leastTime look for faults alone: memory is not steady yet, and speeds are noise.
const (
	keptSpeed   = 0.95
	mostGrowth  = 0.05
	growthNoise = 4 << 20
	leastWarm   = 500 // malformed requests before anything is measured
	warmRounds  = 2   // of the largest bodies of each kind, too
	leastHalf   = 10000
	leastTime   = 10 // seconds
	restTime    = 10 * time.Second
	trimTime    = 10 * time.Second  // from a large body until the service gives memory back
	collectTime = 150 * time.Second // Go's collector runs every two minutes where nothing else makes it
	idleTime    = time.Minute       // of the service's connections
)

// watch is the phases, and what is seen of the service in them.
type watch struct {
	options  *options
	service  *service
	model    string
	others   *others
	alone    pace // of the sound clients
	findings int
	// The connections of clients that never read, and the service's files without them.
	leave       chan struct{}
	gone        sync.WaitGroup
	descriptors int
}

func (w *watch) report(what string) {
	w.findings++
	fmt.Println("FOUND", what)
}

// all is the phases one after the other.
func (w *watch) all() error {
	session, run, err := w.service.train(w.model)
	if err != nil {
		return err
	}
	from, err := readCorpus(w.options.corpus, w.model, session, run)
	if err != nil {
		return err
	}
	w.others = startOthers(w.service.address, w.model, w.options.sound)
	defer func() {
		if !w.others.stopped() {
			w.others.end()
		}
	}()
	// Memory is measured from the second half of the malformed requests on: in the first the service allocates what it keeps.
	half := w.options.count / 2
	w.warm(from)
	if half > 0 {
		w.flood(from, w.options.from, half).print()
	}
	if w.alone, err = w.others.pace(w.service.process, w.options.pause); err != nil {
		return err
	}
	fmt.Printf("sound clients alone: %.0f events/s, %.0f a CPU second\n", w.alone.second, w.alone.cpu)
	w.descriptors = w.service.descriptors()
	before, err := w.rest()
	if err != nil {
		return err
	}
	for _, phase := range []struct {
		name  string
		count int
		asked bool   // for the speed of the others
		open  func() // before the others' speed is measured
		run   func()
	}{
		{"malformed requests", w.options.count - half, w.options.rate > 0, func() {}, func() {
			w.flood(from, w.options.from+half,
				w.options.count-half).print()
		}},
		{"slow clients", w.options.slow, true, func() {}, w.slow},
		{"clients that never read", w.options.unread, true, w.openUnread, w.closeUnread},
	} {
		if phase.count > 0 {
			if err := w.phase(fmt.Sprintf("%d %s", phase.count, phase.name), phase.asked, before, phase.open, phase.run); err != nil {
				return err
			}
		}
	}
	w.others.end()
	if failed := w.others.failures.Load(); failed > 0 {
		w.report(fmt.Sprintf("%d texts of sound clients failed, the last with: %v", failed, w.others.failure))
	}
	return w.leftovers()
}

// rest lets the service give back what it keeps free, and reads the memory.
func (w *watch) rest() (observe.Memory, error) {
	if w.judgesMemory() {
		time.Sleep(trimTime + restTime)
	}
	return w.service.process.Memory()
}

func (w *watch) flood(from *corpus, first, count int) *flood {
	f := &flood{address: w.service.address, state: w.service.state, only: w.options.only, seed: w.options.seed, from: first, count: count, at: w.options.at,
		rate: w.options.rate, make: makeAttack, show: w.options.show, report: w.report}
	f.run(from, w.service.runs)
	return f
}

// warm has the service allocate what it keeps: some of all malformed requests, and, where memory is judged, the largest bodies.
func (w *watch) warm(from *corpus) {
	w.flood(from, w.options.from+w.options.count, leastWarm)
	if !w.judgesMemory() {
		return
	}
	f := &flood{address: w.service.address, state: w.service.state, only: w.options.only, seed: w.options.seed, count: warmRounds * largeKinds, at: 2,
		make: warmAttack, show: w.options.show, report: w.report}
	begun := time.Now()
	f.run(from, w.service.runs)
	fmt.Printf("%d large bodies in %.1f s\n", f.count, time.Since(begun).Seconds())
}

// judgesMemory says whether the run is long enough for memory that is steady.
func (w *watch) judgesMemory() bool { return w.options.count >= 2*leastHalf }

// phase runs one kind of attack, and looks at the others' speed and at the memory.
func (w *watch) phase(name string, asked bool, before observe.Memory, open, run func()) error {
	open()
	own, err := observe.Self().CPU()
	if err != nil {
		return err
	}
	begun, sampled := time.Now(), w.sample()
	beside, err := w.others.pace(w.service.process, run)
	took := time.Since(begun).Seconds()
	fifths := sampled()
	if err != nil {
		return fmt.Errorf("the service has ended during %s: %w", name, err)
	}
	used, err := observe.Self().CPU()
	if err != nil {
		return err
	}
	after, err := w.rest()
	for end := time.Now().Add(collectTime); err == nil && w.judgesMemory() && w.hasGrown(before, after) && time.Now().Before(end); {
		after, err = w.rest()
	}
	if err != nil {
		return err
	}
	alone := w.alone
	if w.alone, err = w.others.pace(w.service.process, w.options.pause); err != nil {
		return err
	}
	alone.second, alone.cpu = (alone.second+w.alone.second)/2, (alone.cpu+w.alone.cpu)/2 // before and after
	cores, all := (used-own).Seconds()/took, float64(runtime.NumCPU())
	kept := beside.second / alone.second * all / (all - cores) // this program's cores are not the service's
	growth := float64(after.Anonymous-before.Anonymous) / float64(before.Anonymous)
	fmt.Fprintf(os.Stdout,
		"%s in %.1f s\n  sound clients %.0f events/s, %.2f of alone, %.2f with the %.2f cores of this program taken off; %.0f events a CPU second of the service, %.2f of alone\n",
		name, took, beside.second, beside.second/alone.second, kept, cores, beside.cpu, beside.cpu/alone.cpu)
	fmt.Fprintf(os.Stdout, "  memory %s MiB by fifths of the time, %.1f at rest, %+.1f %%\n", fifths, mebibytes(after), 100*growth)
	if asked && w.options.sound > 0 && w.options.seconds >= leastTime && kept < keptSpeed {
		w.report(fmt.Sprintf("%s: sound clients keep %.2f of their speed, wanted %.2f", name, kept, keptSpeed))
	}
	if w.judgesMemory() && w.hasGrown(before, after) {
		w.report(fmt.Sprintf("%s: anonymous memory grew from %.1f to %.1f MiB, wanted at most %.0f %%", name, mebibytes(before), mebibytes(after),
			100*mostGrowth))
	}
	return nil
}

func (w *watch) hasGrown(before, after observe.Memory) bool {
	grown := after.Anonymous - before.Anonymous
	return grown > growthNoise && float64(grown) > mostGrowth*float64(before.Anonymous)
}

func mebibytes(m observe.Memory) float64 { return float64(m.Anonymous) / (1 << 20) }

// sample reads the memory from now on, and then gives its means by fifths of the time.
func (w *watch) sample() (means func() string) {
	var found []float64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if memory, err := w.service.process.Memory(); err == nil {
				found = append(found, float64(memory.Anonymous)/(1<<20))
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() string {
		close(stop)
		<-stopped
		var words []string
		for i := 0; i < 5; i++ {
			sum, part := 0.0, found[i*len(found)/5:(i+1)*len(found)/5]
			for _, each := range part {
				sum += each
			}
			if len(part) > 0 {
				words = append(words, fmt.Sprintf("%.1f", sum/float64(len(part))))
			}
		}
		return strings.Join(words, " ")
	}
}

// slow is clients that send slowly, as many all the time.
func (w *watch) slow() {
	end := time.Now().Add(time.Duration(w.options.seconds * float64(time.Second)))
	said := atOnce(w.options.slow, func(number int) string {
		for time.Now().Before(end) {
			if complaint := slowClient(w.service.address, number); complaint != "" {
				return complaint
			}
		}
		return ""
	})
	for i := 0; i < len(said) && i < mostShown; i++ {
		w.report(said[i])
	}
}

// openUnread has clients ask for much and read nothing. It returns once the engine has computed all that it will for them.
func (w *watch) openUnread() {
	w.leave = make(chan struct{})
	w.gone.Add(w.options.unread)
	for i := 0; i < w.options.unread; i++ {
		go func(i int) {
			defer w.gone.Done()
			if said := unreadClient(w.service.address, w.model, i, w.leave); said != "" {
				fmt.Println(said)
			}
		}(i)
	}
	for end := time.Now().Add(idleTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if left, err := w.service.requests(); err == nil && left <= w.options.sound {
			return
		}
	}
}

// closeUnread waits until the service must have given them up: 30 s for a piece that nobody reads, and the time of idle connections for
// replies that the system's buffers hold.
func (w *watch) closeUnread() {
	time.Sleep(idleTime + restTime)
	if left := w.service.descriptors(); left > w.descriptors+5 {
		w.report(fmt.Sprintf("%d files are open after %v in which nobody read, wanted about %d: connections are not given up", left,
			idleTime+restTime, w.descriptors))
	}
	close(w.leave)
	w.gone.Wait()
}

// leftovers: once all clients are gone, so is what the service held for them.
func (w *watch) leftovers() error {
	left := 0
	for end := time.Now().Add(restTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if left, err = w.service.requests(); err != nil {
			return err
		}
		if left == 0 {
			break
		}
	}
	if left > 0 {
		w.report(fmt.Sprintf("%d requests are in the engine %v after all clients have left", left, restTime))
	}
	if found := w.service.descriptors(); found > w.descriptors+5 {
		w.report(fmt.Sprintf("%d files are open, and %d before", found, w.descriptors))
	}
	return nil
}
