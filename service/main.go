// tessera-serve is the service of Tessera: models of this machine for the clients that people already use.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
	"tessera.dev/service/metrics"
	"tessera.dev/service/models"
	"tessera.dev/service/page"
	"tessera.dev/service/server"
	"tessera.dev/service/store"
	"tessera.dev/tessera"
)

// Exit statuses, as the help lists them.
const (
	failed = 1
	usage  = 2
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "keys" {
		os.Exit(keys.Command(os.Args[2:], os.Getenv("TESSERA_STATE"), os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "backup" {
		os.Exit(backup(os.Args[2:], os.Getenv("TESSERA_STATE"), os.Stdout, os.Stderr))
	}
	flags, err := parseFlags(os.Args[1:])
	if err == errHelp {
		fmt.Print(help)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tessera-serve:", err)
		os.Exit(usage)
	}
	if flags.version {
		fmt.Printf("tessera-serve %s (%s)\n", tessera.LibraryVersion(), runtime.Version())
		return
	}
	if err := serve(flags); err != nil {
		fmt.Fprintln(os.Stderr, "tessera-serve:", err)
		os.Exit(failed)
	}
}

// serve runs until a signal.
func serve(flags *flags) error {
	log := newLog(os.Stderr, flags.logLevel, flags.logText)
	known, err := flags.keys()
	if err != nil {
		return err
	}
	state, known, err := openState(flags.state, known)
	if err != nil {
		return err
	}
	if state != nil {
		defer state.Close()
	}
	if err := checkExposure(flags, known); err != nil {
		return err
	}
	models.BoundFreeMemory()
	registry, err := models.New(flags.models(log.write))
	if err != nil {
		return err
	}
	defer registry.Close()
	if err := preload(registry, flags.preload); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(flags.host, fmt.Sprint(flags.port)))
	if err != nil {
		return err
	}
	served, end, err := newServer(flags, registry, state, known, log)
	if err != nil {
		return err
	}
	defer end()
	return run(served, listener, flags, registry, log)
}

// newServer joins models, dialects and, with a folder of what lasts, jobs. end stops the jobs.
func newServer(flags *flags, registry *models.Registry, state *store.Store, known keys.Keys, log *log) (*server.Server, func(), error) {
	all, end := dialects(registry), func() {}
	if state != nil {
		tuned, stop, err := tuningDialects(flags, registry, state, log)
		if err != nil {
			return nil, nil, err
		}
		passes, err := newPasses(state, known)
		if err != nil {
			stop()
			return nil, nil, err
		}
		known = passes
		stepped, stopSteps, err := tinkerDialects(flags, registry, state, passes, log)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all, end = append(append(all, tuned...), stepped...), func() {
			stopSteps()
			stop()
		}
	}
	counted := metrics.New(flags.metricsPrefix)
	document, policy := page.New()
	version := map[string]string{"version": tessera.LibraryVersion(), "go": runtime.Version(), "service": "tessera-serve"}
	return server.New(server.Config{Models: registry, Dialects: all, Keys: known, Metrics: counted, Measure: registry.Measure, Plan: registry.Plan, Trim: models.Trim,
		Page: document, PagePolicy: policy, Log: log.write, Hosts: hostNames(flags), Chunked: readsChunks(runtime.Version()), BodyBytes: flags.bodyBytes, Version: version}), end, nil
}

// run serves until SIGTERM or an interrupt, and then drains; the second signal ends the process.
func run(served *server.Server, listener net.Listener, flags *flags, registry *models.Registry, log *log) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(listener, flags.certificate, flags.certificateKey) }()
	scheme := "http"
	if flags.certificate != "" {
		scheme = "https"
	}
	log.write("info", "serving", map[string]any{"url": scheme + "://" + listener.Addr().String(), "models": names(registry.List())})
	notify("READY=1")
	select {
	case err := <-ended:
		return err
	case <-signals:
	}
	notify("STOPPING=1")
	log.write("info", "draining", map[string]any{"seconds": flags.drain})
	go func() {
		<-signals
		os.Exit(failed)
	}()
	ctx, end := context.WithTimeout(context.Background(), time.Duration(flags.drain)*time.Second)
	defer end()
	if err := served.Shutdown(ctx); err != nil {
		log.write("warning", "requests were ended", map[string]any{"error": err.Error()})
	}
	log.write("info", "stopped", nil)
	return nil
}

// openState opens the folder of what lasts, whose keys join the others; nil without a folder.
func openState(folder string, known keys.Keys) (*store.Store, keys.Keys, error) {
	if folder == "" {
		return nil, known, nil
	}
	state, err := store.Open(folder, store.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("--state %s: %w", folder, err)
	}
	return state, keys.Joined{known, keys.NewStored(state)}, nil
}

func preload(registry *models.Registry, wanted string) error {
	if wanted == "" {
		return nil
	}
	for _, name := range strings.Split(wanted, ",") {
		if err := registry.Load(context.Background(), name); err != nil {
			return fmt.Errorf("--preload %s: %w", name, err)
		}
	}
	return nil
}

func names(all []inference.Info) []string {
	var found []string
	for _, info := range all {
		found = append(found, info.Name)
	}
	return found
}

// checkExposure refuses addresses that others reach while no key is asked for.
func checkExposure(flags *flags, known keys.Keys) error {
	if known.Any() || flags.insecure || flags.host == "localhost" {
		return nil
	}
	if address := net.ParseIP(flags.host); address != nil && address.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--host %s is reached from other machines, and there are no keys: make one with `tessera serve keys new --state FOLDER`, or give --api-key-file, or --insecure", flags.host)
}

// hostNames are the names by which clients call this machine.
func hostNames(flags *flags) []string {
	all := append([]string{}, flags.hostNames...)
	if flags.host != "" && net.ParseIP(flags.host) == nil {
		all = append(all, flags.host)
	}
	return all
}

// readsChunks says whether this Go reads chunked bodies without the faults that earlier ones have (fixed in 1.24.2 and 1.23.8).
func readsChunks(version string) bool {
	var major, minor, patch int
	count, _ := fmt.Sscanf(version, "go%d.%d.%d", &major, &minor, &patch)
	if count < 2 || major != 1 {
		return false
	}
	return minor > 24 || minor == 24 && patch >= 2
}
