package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// flood is all attacks, from several connections at once.
type flood struct {
	address, state string
	only           string // a family; "" for all
	seed           int64
	from, count    int
	at             int // connections at once
	rate           float64
	make           func(seed int64, number int, from *corpus) attack
	show           bool
	mutex          sync.Mutex
	statuses       map[string]map[int]int // by family
	slowest        []timed
	findings       int
	report         func(what string)
}

type timed struct {
	number int
	family string
	took   time.Duration
}

const mostShown = 20

func (f *flood) run(from *corpus, alive func() bool) {
	f.statuses = map[string]map[int]int{}
	var next atomic.Int64
	var running sync.WaitGroup
	begun := time.Now()
	for i := 0; i < f.at; i++ {
		running.Add(1)
		go func() {
			defer running.Done()
			for alive() {
				i := int(next.Add(1)) - 1
				if i >= f.count {
					return
				}
				if f.rate > 0 {
					time.Sleep(time.Until(begun.Add(time.Duration(float64(i) / f.rate * float64(time.Second)))))
				}
				made := f.make(f.seed, f.from+i, from)
				if f.only != "" && f.only != made.family {
					continue
				}
				replies, took, err := send(f.address, &made)
				if f.show {
					fmt.Printf("%s\n%q\n", made.family, made.bytes)
					for _, each := range replies {
						fmt.Printf("%d %v\n%s\n", each.status, each.header, each.body)
					}
				}
				f.note(&made, replies, took, judge(&made, replies, err, f.state))
			}
		}()
	}
	running.Wait()
}

func (f *flood) note(a *attack, replies []reply, took time.Duration, fault string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	counts := f.statuses[a.family]
	if counts == nil {
		counts = map[int]int{}
		f.statuses[a.family] = counts
	}
	for i := range replies {
		counts[replies[i].status]++
	}
	if len(replies) == 0 {
		counts[0]++
	}
	f.slowest = append(f.slowest, timed{a.number, a.family, took})
	if len(f.slowest) > 1000 {
		f.keepSlowest()
	}
	if fault == "" {
		return
	}
	if f.findings++; f.findings <= mostShown {
		f.report(fmt.Sprintf("%s, --seed %d --from %d --count 1 --show: %s\n  sent %.300q", a.family, f.seed, a.number, fault, a.bytes))
	}
}

func (f *flood) keepSlowest() {
	sort.Slice(f.slowest, func(i, j int) bool { return f.slowest[i].took > f.slowest[j].took })
	if len(f.slowest) > 5 {
		f.slowest = f.slowest[:5]
	}
}

// print tells what was answered by family, and what took longest.
func (f *flood) print() {
	for _, family := range families {
		var found []string
		var statuses []int
		for status := range f.statuses[family.name] {
			statuses = append(statuses, status)
		}
		sort.Ints(statuses)
		for _, status := range statuses {
			word := fmt.Sprint(status)
			if status == 0 {
				word = "closed"
			}
			found = append(found, fmt.Sprintf("%s: %d", word, f.statuses[family.name][status]))
		}
		if len(found) == 0 {
			continue
		}
		fmt.Fprintf(os.Stdout, "  %-14s %s\n", family.name, strings.Join(found, ", "))
	}
	f.keepSlowest()
	for _, each := range f.slowest {
		fmt.Fprintf(os.Stdout, "  slowest: %d (%s) %.2f s\n", each.number, each.family, each.took.Seconds())
	}
}
