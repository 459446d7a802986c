// Package observe reads what a running service is seen to take: CPU time and memory of its process, and its metrics.
package observe

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Process is one of this machine, by its number.
type Process int

// Self is this process.
func Self() Process { return Process(os.Getpid()) }

// ticksASecond is USER_HZ, which is 100 on every Linux that has Go.
const ticksASecond = 100

// CPU is the time of all threads that are and were.
func (p Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses, which may have spaces; utime and stime are the 14th and 15th.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: found %d fields after the name, wanted 13", p, len(fields))
	}
	ticks := int64(0)
	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += count
	}
	return time.Duration(ticks) * time.Second / ticksASecond, nil
}

// Memory is in bytes.
type Memory struct{ Resident, Anonymous int64 }

// Memory reads the resident memory, and what of it no file is behind.
func (p Process) Memory() (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return Memory{}, err
	}
	found := map[string]int64{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, rest, cut := strings.Cut(line, ":"); cut {
			if count, _, _ := strings.Cut(strings.TrimSpace(rest), " kB"); strings.HasSuffix(rest, " kB") {
				kilobytes, err := strconv.ParseInt(count, 10, 64)
				if err != nil {
					return Memory{}, err
				}
				found[name] = kilobytes << 10
			}
		}
	}
	if found["VmRSS"] == 0 {
		return Memory{}, fmt.Errorf("the process %d has ended", p)
	}
	return Memory{found["VmRSS"], found["RssAnon"]}, nil
}
