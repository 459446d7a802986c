package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// PassLife is how long a pass stands for its key.
const PassLife = time.Hour

// passHead is the first part of each pass, a JSON web token. Clients read the claims and check no signature.
var passHead = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"A256GCM","typ":"JWT"}`))

// Passes are keys, and short-lived tokens that stand for them: JSON web tokens whose third part is the token of the key, sealed together
// with the claims. A pass does what its key does, until it expires or the key is revoked. Any goroutine.
type Passes struct {
	Keys
	seal cipher.AEAD
	now  func() time.Time
}

// NewPasses seals with a secret of any length; passes of the same secret are known after a restart.
func NewPasses(of Keys, secret []byte) *Passes {
	hash := sha256.Sum256(secret)
	block, err := aes.NewCipher(hash[:])
	if err != nil {
		panic(err) // no other length is given
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &Passes{of, seal, time.Now}
}

// Issue makes a pass for the token of a key, with claims for the client's eyes. A pass gets no other one: it would outlive the first.
func (p *Passes) Issue(token string, claims map[string]any) string {
	if _, known := p.open(token); known {
		return token
	}
	all := map[string]any{"iat": p.now().Unix(), "exp": p.now().Add(PassLife).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // claims are texts and numbers
	}
	nonce := make([]byte, p.seal.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		panic(err) // the system has no random numbers
	}
	open := passHead + "." + base64.RawURLEncoding.EncodeToString(text)
	return open + "." + base64.RawURLEncoding.EncodeToString(p.seal.Seal(nonce, nonce, []byte(token), []byte(open)))
}

// Lookup gives the key of its token, or of a pass.
func (p *Passes) Lookup(token string) (Key, bool) {
	if inner, known := p.open(token); known {
		token = inner
	}
	return p.Keys.Lookup(token)
}

// open gives the token of a pass that has not expired.
func (p *Passes) open(pass string) (token string, known bool) {
	last := strings.LastIndexByte(pass, '.')
	if last < 0 || !strings.HasPrefix(pass, passHead+".") {
		return "", false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(pass[last+1:])
	if err != nil || len(sealed) < p.seal.NonceSize() {
		return "", false
	}
	size := p.seal.NonceSize()
	text, err := p.seal.Open(nil, sealed[:size], sealed[size:], []byte(pass[:last]))
	if err != nil {
		return "", false
	}
	claims, err := base64.RawURLEncoding.DecodeString(pass[len(passHead)+1 : last])
	var until struct {
		Expires int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(claims, &until) != nil || p.now().Unix() >= until.Expires {
		return "", false
	}
	return string(text), true
}
