package server

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/keys"
)

func (s *Server) servePlain(p dialect.Plain) func(http.ResponseWriter, *http.Request, *dialect.Call, keys.Key) {
	return func(w http.ResponseWriter, r *http.Request, call *dialect.Call, _ keys.Key) {
		if err := s.readBody(w, r, call, p.Types, p.Most); err != nil {
			s.fail(w, r, p.Errors, err)
			return
		}
		ctx, end := s.ending(r)
		defer end()
		call.Context = ctx
		body, err := p.Reply(call, s.config.Models, ctx.Done())
		s.replyJSON(w, r, p.Errors, body, err)
	}
}

func (s *Server) replyJSON(w http.ResponseWriter, r *http.Request, form dialect.Errors, body any, err error) {
	if err == nil {
		var bytes []byte
		kind := "application/json"
		switch given := body.(type) {
		case json.RawMessage:
			bytes = given
		case dialect.Bytes:
			bytes, kind = given.Body, given.Type
		default:
			bytes, err = json.Marshal(body)
		}
		if err == nil {
			s.reply(w, r, http.StatusOK, kind, bytes)
			return
		}
	}
	if r.Context().Err() != nil {
		w.(*statusWriter).status = clientLeft
		return
	}
	s.fail(w, r, form, err)
}

// paced is a large body, at its least speed and within its size.
type paced struct {
	server *Server
	r      *http.Request
	most   int64
	read   int64
	begun  time.Time
	ended  bool // the whole body was read
}

func (p *paced) Read(bytes []byte) (int, error) {
	if connection := connectionOf(p.r); connection != nil {
		allowed := p.server.config.HeaderTime + time.Duration(float64(p.read)/float64(p.server.config.BytesASecond)*float64(time.Second))
		_ = connection.SetReadDeadline(p.begun.Add(allowed))
	}
	count, err := p.r.Body.Read(bytes)
	if p.read += int64(count); p.read > p.most {
		return count, tooLarge(p.most)
	}
	p.ended = p.ended || err == io.EOF
	if err != nil && err != io.EOF {
		err = bodyError(&slowBody{err})
	}
	return count, err
}

func (s *Server) serveUpload(u dialect.Upload) func(http.ResponseWriter, *http.Request, *dialect.Call, keys.Key) {
	return func(w http.ResponseWriter, r *http.Request, call *dialect.Call, _ keys.Key) {
		if r.ContentLength > u.Most {
			w.Header().Set("Connection", "close")
			s.fail(w, r, u.Errors, tooLarge(u.Most))
			return
		}
		body := &paced{server: s, r: r, most: u.Most, begun: time.Now()}
		reply, err := u.Reply(call, body)
		if body.read < r.ContentLength {
			w.Header().Set("Connection", "close") // what is left is not read
		}
		if connection := connectionOf(r); connection != nil {
			end := time.Time{}
			if !body.ended { // net/http reads what is left of a chunked body
				end = time.Now().Add(s.config.HeaderTime)
			}
			_ = connection.SetReadDeadline(end)
		}
		s.replyJSON(w, r, u.Errors, reply, err)
	}
}

// patient renews the time of a piece with each write.
type patient struct {
	*statusWriter
	server *Server
	r      *http.Request
}

func (p patient) Write(bytes []byte) (int, error) {
	p.server.writeSoon(p.r)
	return p.statusWriter.Write(bytes)
}

func (s *Server) serveDownload(d dialect.Download) func(http.ResponseWriter, *http.Request, *dialect.Call, keys.Key) {
	return func(w http.ResponseWriter, r *http.Request, call *dialect.Call, _ keys.Key) {
		content, err := d.Open(call)
		if err != nil {
			s.fail(w, r, d.Errors, err)
			return
		}
		defer content.Reader.Close()
		kind := content.Type
		if kind == "" {
			kind = "application/octet-stream"
		}
		w.Header().Set("Content-Type", kind)
		if content.Name != "" {
			if value := mime.FormatMediaType("attachment", map[string]string{"filename": content.Name}); value != "" {
				w.Header().Set("Content-Disposition", value)
			}
		}
		http.ServeContent(patient{w.(*statusWriter), s, r}, r, "", time.Time{}, content.Reader)
	}
}
