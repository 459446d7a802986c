package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven by its debugging protocol over two pipes.
type browser struct {
	t       *testing.T
	out     io.Writer
	session string

	mutex   sync.Mutex
	next    int
	waiting map[int]chan reply
	noise   []string // errors of the console, exceptions, and violations of the policy
	asked   []string // addresses
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
	Method string
	Params json.RawMessage
}

// patience is long: browsers of a busy machine are slow.
const patience = 60 * time.Second

// findBrowser is the program, or the test is skipped.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("TESSERA_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("skipped: chromium is missing (apt install chromium)")
	return ""
}

func open(t *testing.T, address string) *browser {
	t.Helper()
	command := exec.Command(findBrowser(t), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
		"--window-size=1100,900", "--user-data-dir="+t.TempDir(), "about:blank")
	toBrowser, fromTest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toTest, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	b := &browser{t: t, out: fromTest, waiting: map[int]chan reply{}}
	go b.read(toTest)
	t.Cleanup(func() {
		b.try("Browser.close", nil)
		time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		fromTest.Close()
	})
	b.attach()
	b.do("Page.navigate", map[string]any{"url": address})
	b.wait("the page", `document.readyState === "complete"`)
	return b
}

func (b *browser) attach() {
	var made struct{ TargetID string }
	b.into(&made, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	b.into(&attached, "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true})
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		b.do(domain+".enable", nil)
	}
	b.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `addEventListener("securitypolicyviolation", e => console.error("policy: " + e.violatedDirective + " " + e.blockedURI))`})
}

func (b *browser) read(from io.Reader) {
	pieces := bufio.NewReader(from)
	for {
		text, err := pieces.ReadBytes(0)
		if err != nil {
			return
		}
		var message reply
		if json.Unmarshal(text[:len(text)-1], &message) != nil {
			continue
		}
		b.mutex.Lock()
		b.note(message)
		waiting := b.waiting[message.ID]
		delete(b.waiting, message.ID)
		b.mutex.Unlock()
		if waiting != nil {
			waiting <- message
		}
	}
}

func (b *browser) note(message reply) {
	text := string(message.Params)
	switch message.Method {
	case "Runtime.exceptionThrown":
		b.noise = append(b.noise, text)
	case "Runtime.consoleAPICalled":
		if strings.Contains(text, `"type":"error"`) {
			b.noise = append(b.noise, text)
		}
	case "Log.entryAdded":
		if strings.Contains(text, `"level":"error"`) {
			b.noise = append(b.noise, text)
		}
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		if json.Unmarshal(message.Params, &sent) == nil {
			b.asked = append(b.asked, sent.Request.URL)
		}
	}
}

func (b *browser) try(method string, params any) (json.RawMessage, error) {
	if params == nil {
		params = map[string]any{}
	}
	b.mutex.Lock()
	b.next++
	id, came := b.next, make(chan reply, 1)
	b.waiting[id] = came
	message := map[string]any{"id": id, "method": method, "params": params}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = b.out.Write(append(text, 0))
	}
	b.mutex.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case got := <-came:
		if got.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, got.Error.Message)
		}
		return got.Result, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer in %s", method, patience)
	}
}

func (b *browser) do(method string, params any) json.RawMessage {
	b.t.Helper()
	result, err := b.try(method, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *browser) into(value any, method string, params any) {
	b.t.Helper()
	if err := json.Unmarshal(b.do(method, params), value); err != nil {
		b.t.Fatal(method, err)
	}
}

// tell is the value of an expression of the page, as JSON.
func (b *browser) tell(expression string) string {
	b.t.Helper()
	var found struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.into(&found, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if found.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, found.ExceptionDetails)
	}
	return string(found.Result.Value)
}

func (b *browser) text(id string) string {
	b.t.Helper()
	var text string
	if err := json.Unmarshal([]byte(b.tell(`document.getElementById("`+id+`").innerText`)), &text); err != nil {
		b.t.Fatal(err)
	}
	return text
}

// wait waits until an expression is true.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		if b.tell("(() => { try { return Boolean("+expression+") } catch { return false } })()") == "true" { // a page that loads has no elements
			return
		}
	}
	b.t.Fatalf("%s did not come: %s\n%s\n%v", what, expression, b.tell("document.body.innerText"), b.noise)
}

func (b *browser) see(id, wanted string) {
	b.t.Helper()
	b.wait(wanted+" in "+id, fmt.Sprintf(`document.getElementById(%q).innerText.includes(%q)`, id, wanted))
}

func (b *browser) write(text string) { b.do("Input.insertText", map[string]any{"text": text}) }

var codes = map[string]int{"Enter": 13, "Tab": 9, "Escape": 27}

// press is a key of the keyboard.
func (b *browser) press(name string) {
	b.t.Helper()
	params := map[string]any{"type": "rawKeyDown", "key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
	if name == "Enter" {
		params["type"], params["text"] = "keyDown", "\r"
	}
	b.do("Input.dispatchKeyEvent", params)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name, "code": name, "windowsVirtualKeyCode": codes[name]})
}

// focus walks by Tab to an element, as who has no mouse does.
func (b *browser) focus(id string) {
	b.t.Helper()
	for i := 0; i < 40; i++ {
		if b.tell(`document.activeElement.id`) == `"`+id+`"` {
			return
		}
		b.press("Tab")
	}
	b.t.Fatalf("%s is not reached by Tab", id)
}

// quiet fails where the page complained, or asked another machine.
func (b *browser) quiet(origin string, expected ...string) {
	b.t.Helper()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, complaint := range b.noise {
		known := false
		for _, each := range expected {
			known = known || strings.Contains(complaint, each)
		}
		if !known {
			b.t.Errorf("console: %.500s", complaint)
		}
	}
	for _, address := range b.asked {
		if !strings.HasPrefix(address, origin) && address != "about:blank" {
			b.t.Errorf("the page asked %s", address)
		}
	}
	if len(b.asked) == 0 {
		b.t.Error("no requests were seen")
	}
}

// shoot writes a picture of the page, where a folder for them is named.
func (b *browser) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("TESSERA_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	b.into(&picture, "Page.captureScreenshot", map[string]any{"format": "png"})
	bytes, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(folder+"/"+name+".png", bytes, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}
