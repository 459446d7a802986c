package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tessera.dev/traffic/observe"
)

// service is a running tessera-serve with a folder of its own.
type service struct {
	command *exec.Cmd
	process observe.Process
	address string
	state   string
	log     string
	ended   chan error
}

// startService starts the program over a model in a folder, which keeps its state and its log.
func startService(program, model, folder string) (*service, error) {
	s := &service{state: filepath.Join(folder, "state"), log: filepath.Join(folder, "service.log"), ended: make(chan error, 1)}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.command = exec.Command(program, model, "--port", "0", "--state", s.state, "--context", "512", "--sequences", "16", "--train-context",
		"64", "--log-level", "info")
	s.command.Stderr = log
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.process = observe.Process(s.command.Process.Pid)
	go func() { s.ended <- s.command.Wait() }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s.address = s.findAddress(); s.address != "" {
			return s, nil
		}
		if !s.runs() {
			break
		}
	}
	text, _ := os.ReadFile(s.log)
	return nil, fmt.Errorf("the service did not begin to serve: %.2000s", text)
}

func (s *service) findAddress() string {
	file, err := os.Open(s.log)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.URL != "" {
			return strings.TrimPrefix(line.URL, "http://")
		}
	}
	return ""
}

func (s *service) runs() bool {
	select {
	case err := <-s.ended:
		s.ended <- err
		return false
	default:
		return true
	}
}

// stop ends the service as an operator does; an error is an end that was none of its own.
func (s *service) stop() error {
	if !s.runs() {
		return fmt.Errorf("the service has ended: %v", <-s.ended)
	}
	_ = s.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.ended:
		if err != nil {
			return fmt.Errorf("the service ended with %v, wanted status 0", err)
		}
		return nil
	case <-time.After(time.Minute):
		_ = s.command.Process.Kill()
		return fmt.Errorf("the service did not end within a minute of SIGTERM")
	}
}

// ask posts JSON and reads the reply.
func (s *service) ask(path, body string, into any) error {
	reply, err := http.Post("http://"+s.address+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: found the status %s: %s", path, reply.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// train begins a training of Tinker's, which protobuf is sent to.
func (s *service) train(model string) (session, run string, err error) {
	var made struct {
		Session string `json:"session_id"`
		Request string `json:"request_id"`
		Model   string `json:"model_id"`
		Type    string
		Error   string
	}
	if err := s.ask("/api/v1/create_session", `{"sdk_version":"0.38.0","type":"create_session"}`, &made); err != nil {
		return "", "", err
	}
	session = made.Session
	if err := s.ask("/api/v1/create_model",
		fmt.Sprintf(`{"session_id":%q,"model_seq_id":0,"base_model":%q,"lora_config":{"rank":4},"type":"create_model"}`, session, model),
		&made); err != nil {
		return "", "", err
	}
	request := made.Request
	for made.Model == "" && made.Error == "" {
		if err := s.ask("/api/v1/retrieve_future", fmt.Sprintf(`{"request_id":%q}`, request), &made); err != nil {
			return "", "", err
		}
	}
	if made.Error != "" {
		return "", "", fmt.Errorf("create_model: %s", made.Error)
	}
	return session, made.Model, nil
}

// requests are those in the engine, running and waiting.
func (s *service) requests() (int, error) {
	metrics, err := observe.ReadMetrics(s.address, "")
	return int(metrics["num_requests_running"] + metrics["num_requests_waiting"]), err
}

// descriptors counts the open files of the process, which connections are.
func (s *service) descriptors() int {
	found, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.process))
	return len(found)
}

// faults are the lines of the log that a service without faults does not write.
func (s *service) faults() (found []string) {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return []string{err.Error()}
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		var said struct{ Level, Message string }
		isLine := json.Unmarshal(line, &said) == nil
		if len(line) > 0 && (!isLine || said.Level == "error") {
			found = append(found, fmt.Sprintf("%.600s", line))
		}
	}
	return found
}
