package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"strconv"
	"strings"
	"unicode"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

const (
	mostFields     = 16
	mostFieldBytes = 4 << 10
	mostNameBytes  = 255
)

// purposes that may be uploaded.
var purposes = []string{tuning.FineTune, "batch", "evals", "user_data"}

// form is what the parts of an upload say.
type form struct {
	draft  tuning.Draft // of the part file; nil before it
	name   string
	fields map[string]string
}

func (s *service) upload(call *dialect.Call, body io.Reader) (any, error) {
	once, err := tuning.NewOnce(call.Header, call.Tenant, "POST /v1/files")
	if err != nil {
		return nil, err
	}
	parts, err := newParts(call, body)
	if err != nil {
		return nil, err
	}
	read := &form{fields: map[string]string{}}
	defer func() {
		if read.draft != nil {
			read.draft.Discard()
		}
	}()
	if err := s.read(read, parts); err != nil {
		return nil, err
	}
	file, err := read.describe(s.now().Unix())
	if err != nil {
		return nil, err
	}
	if file.Purpose == tuning.FineTune {
		content, err := read.draft.Content()
		if err != nil {
			return nil, err
		}
		defer content.Close()
		if err := CheckRows(content); err != nil {
			return nil, err
		}
	}
	content := read.draft.Hash()
	once.Digest = sha256.Sum256([]byte(fmt.Sprintf("%q %q %q %x", file.Purpose, file.Name, read.fields["expires_after[seconds]"], content)))
	file.Tenant = call.Tenant
	kept, err := read.draft.Commit(call.Context, file, once)
	if err != nil {
		return nil, err
	}
	return newObject(kept), nil
}

func newParts(call *dialect.Call, body io.Reader) (*multipart.Reader, error) {
	kind, parameters, err := mime.ParseMediaType(call.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || parameters["boundary"] == "" || len(parameters["boundary"]) > 70 {
		return nil, invalid("", "invalid_content_type", "Content-Type is %q; multipart/form-data with a boundary is wanted",
			call.Header.Get("Content-Type"))
	}
	return multipart.NewReader(body, parameters["boundary"]), nil
}

// read takes the parts in any order; the file goes to the disk as it comes.
func (s *service) read(into *form, parts *multipart.Reader) error {
	for count := 0; ; count++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if count >= mostFields {
			return invalid("", "too_many_parts", "the body has more than %d parts", mostFields)
		}
		if name := part.FormName(); name == "file" {
			err = s.readFile(into, part)
		} else {
			err = into.readField(name, part)
		}
		if err != nil {
			return err
		}
	}
}

func (s *service) readFile(into *form, part *multipart.Part) (err error) {
	if into.draft != nil {
		return invalid("file", "duplicate_part", "the body has the part 'file' twice; one file is wanted")
	}
	if into.draft, err = s.files.Draft(); err != nil {
		return err
	}
	into.name = cleanName(part.FileName())
	count, err := io.Copy(into.draft, io.LimitReader(part, s.most+1))
	if err != nil {
		return broken(err)
	}
	if count > s.most {
		return &inference.Error{Kind: inference.TooLarge, Code: "file_too_large", Param: "file",
			Message: fmt.Sprintf("the file is larger than %d MiB, which is the most that is read: split it", s.most>>20)}
	}
	return nil
}

func (f *form) readField(name string, part *multipart.Part) error {
	if _, twice := f.fields[name]; twice {
		return invalid(name, "duplicate_part", "the body has the part '%s' twice", name)
	}
	text, err := io.ReadAll(io.LimitReader(part, mostFieldBytes+1))
	if err != nil {
		return broken(err)
	}
	if len(text) > mostFieldBytes {
		return invalid(name, "part_too_large", "'%s' has more than %d bytes", name, mostFieldBytes)
	}
	f.fields[name] = string(text)
	return nil
}

// broken is the error of a body that cannot be read on: what the reader or the store said, else that it is no sound multipart.
func broken(err error) error {
	var known *inference.Error
	if errors.As(err, &known) {
		return known
	}
	return invalid("", "invalid_multipart", "the body is no sound multipart/form-data: %v", err)
}

// cleanName is the user's name of the file only for showing; on the disk it has another.
func cleanName(given string) string {
	name := strings.Map(func(each rune) rune {
		if unicode.IsControl(each) || each == unicode.ReplacementChar {
			return -1
		}
		return each
	}, path.Base(strings.ReplaceAll(given, `\`, "/")))
	if len(name) > mostNameBytes {
		name = strings.ToValidUTF8(name[:mostNameBytes], "")
	}
	if name == "" || name == "." || name == "/" || name == ".." {
		return "file"
	}
	return name
}

// describe checks the fields.
func (f *form) describe(now int64) (tuning.File, error) {
	file := tuning.File{Name: f.name, Purpose: f.fields["purpose"]}
	for name := range f.fields {
		switch name {
		case "purpose", "expires_after[anchor]", "expires_after[seconds]":
		default:
			return file, invalid(name, "unknown_parameter", "'%s' is no part that is known here", name)
		}
	}
	switch {
	case f.draft == nil:
		return file, invalid("file", "missing_required_parameter", "'file' is missing; a part with a file is wanted")
	case file.Purpose == "":
		return file, invalid("purpose", "missing_required_parameter", "'purpose' is missing; one of %s is wanted", strings.Join(purposes, ", "))
	case !contains(purposes, file.Purpose):
		return file, invalid("purpose", "invalid_value", "'purpose' is %q; one of %s is wanted", file.Purpose, strings.Join(purposes, ", "))
	case f.draft.Bytes() == 0:
		return file, invalid("file", "empty_file", "the file is empty")
	}
	seconds, given := f.fields["expires_after[seconds]"]
	anchor, anchored := f.fields["expires_after[anchor]"]
	if !given && !anchored {
		return file, nil
	}
	if anchor != "created_at" {
		return file, invalid("expires_after.anchor", "invalid_value", "'expires_after.anchor' is %q; created_at is wanted", anchor)
	}
	count, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || count < 3600 || count > 2592000 {
		return file, invalid("expires_after.seconds", "invalid_value", "'expires_after.seconds' is %q; 3600 to 2592000 is wanted", seconds)
	}
	file.Created, file.Expires = now, now+count
	return file, nil
}

func contains(words []string, word string) bool {
	for _, each := range words {
		if each == word {
			return true
		}
	}
	return false
}
