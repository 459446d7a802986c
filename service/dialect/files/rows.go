package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

const (
	mostRowBytes = 64 << 20 // as the library reads
	mostMistakes = 5        // that one error names
)

// CheckRows reads lines of JSON as trainings read them: conversations, prompts with completions, texts, or preferences, all of
// one kind. The error names the lines that are none.
func CheckRows(content io.Reader) error {
	reader := bufio.NewReaderSize(content, 1<<20)
	check := rowCheck{}
	for number := 1; ; number++ {
		line, err := readLine(reader)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			var known *inference.Error
			if errors.As(err, &known) {
				check.mistake(number, known.Message)
				break
			}
			return err
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			check.row(number, line)
		}
		if len(check.mistakes) == mostMistakes {
			break
		}
	}
	return check.result()
}

func readLine(reader *bufio.Reader) ([]byte, error) {
	var whole []byte
	for {
		piece, err := reader.ReadSlice('\n')
		whole = append(whole, piece...)
		if len(whole) > mostRowBytes {
			return nil, invalid("", "", "has more than %d MiB", mostRowBytes>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return whole, err
		}
	}
}

type rowCheck struct {
	kind     string
	first    int // line of the first row
	mistakes []string
}

func (c *rowCheck) mistake(number int, what string) {
	c.mistakes = append(c.mistakes, fmt.Sprintf("line %d: %s", number, what))
}

func (c *rowCheck) result() error {
	switch {
	case len(c.mistakes) == mostMistakes:
		return invalid("file", "invalid_file_format", "the file is no training data: %s; and perhaps more", strings.Join(c.mistakes, "; "))
	case len(c.mistakes) > 0:
		return invalid("file", "invalid_file_format", "the file is no training data: %s", strings.Join(c.mistakes, "; "))
	case c.kind == "":
		return invalid("file", "invalid_file_format", "the file has no rows; lines of JSON are wanted")
	}
	return nil
}

func (c *rowCheck) row(number int, line []byte) {
	row, err := fields.Body(line)
	if err != nil {
		c.mistake(number, strings.Replace(err.Error(), "the body", "the row", 1))
		return
	}
	kind := checkRow(row)
	switch {
	case row.Err() != nil:
		c.mistake(number, row.Err().Error())
	case c.kind == "":
		c.kind, c.first = kind, number
	case c.kind != kind:
		c.mistake(number, fmt.Sprintf("the row is %s, and line %d is %s; one kind is wanted", kind, c.first, c.kind))
	}
}

// checkRow finds the kind of a row by its members, and checks their types. What a row means the training reads itself.
func checkRow(row *fields.Object) (kind string) {
	switch {
	case row.Has("messages"):
		checkMessages(row, "messages", true)
		return "a conversation"
	case row.Has("input") || row.Has("preferred_output"):
		checkMessages(row.NeedObject("input"), "messages", false)
		checkMessages(row, "preferred_output", true)
		checkMessages(row, "non_preferred_output", true)
		return "a preference"
	case row.Has("chosen") || row.Has("rejected"):
		for _, name := range []string{"chosen", "rejected"} {
			checkTextOrMessages(row, name)
		}
		return "a preference"
	case row.Has("prompt") || row.Has("completion"):
		checkTextOrMessages(row, "prompt")
		checkTextOrMessages(row, "completion")
		return "a prompt with its completion"
	case row.Has("text"):
		row.NeedText("text")
		return "a text"
	}
	row.Fail("messages", fields.Missing, "is missing; a row has messages, prompt and completion, text, or input with preferred_output "+
		"and non_preferred_output; this one has %s", strings.Join(row.Names(), ", "))
	return ""
}

func checkTextOrMessages(row *fields.Object, name string) {
	if value, ok := row.Value(name); ok && value.Kind() == fields.List {
		checkMessages(row, name, false)
		return
	}
	row.NeedText(name)
}

var roles = []string{"system", "developer", "user", "assistant", "tool"}

func checkMessages(row *fields.Object, name string, answered bool) {
	assistant := false
	for _, each := range row.NeedList(name, 1, 1<<20) {
		message := each.Object()
		message.NeedText("role")
		role, _ := message.Choice("role", roles...)
		assistant = assistant || role == "assistant"
		content, ok := message.Value("content")
		if ok && content.Kind() != fields.List {
			content.Text()
		}
		if !ok && role != "assistant" {
			message.Fail("content", fields.Missing, "is missing; a text is wanted")
		}
		if role == "assistant" && !ok && !message.Has("tool_calls") {
			message.Fail("content", fields.Missing, "is missing; a text, or tool_calls, is wanted")
		}
		message.Number("weight", 0, 1e6)
	}
	if answered && !assistant && row.Err() == nil {
		row.Fail(name, fields.InvalidValue, "has no message of the assistant: nothing would be learnt")
	}
}
