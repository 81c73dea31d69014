package switches

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// posted is the switches as a server signs them for a board.
type posted struct {
	Revision int64    `json:"revision"`
	Mode     string   `json:"mode"`
	Denied   []string `json:"denied,omitempty"`
	By       string   `json:"by"` // who set them
}

// signedPost is the text on a board. Others than servers can write there, so only what the MAC covers is believed.
type signedPost struct {
	Switches []byte `json:"switches"` // posted, as JSON
	MAC      []byte `json:"mac"`      // HMAC-SHA256 of it, by the servers' secret
}

// switchSecret is the name of the secret that servers of one policy store sign switches with.
const switchSecret = "switches"

// errForged means that what is on a board was not posted by a server of this policy store.
var errForged = errors.New("not signed by a server of this policy store")

// sign returns the text of p for a board.
func sign(secret []byte, p *posted) (string, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(signedPost{b, macOf(secret, b)})
	return string(text), err
}

// verified returns the switches that a server posted under that revision, or an error that wraps errForged.
func verified(secret []byte, revision int64, text string) (sw limit.Switches, by string, err error) {
	var s signedPost
	var p posted
	if json.Unmarshal([]byte(text), &s) != nil || !hmac.Equal(s.MAC, macOf(secret, s.Switches)) {
		return sw, "", errForged
	}
	if err := json.Unmarshal(s.Switches, &p); err != nil {
		return sw, "", fmt.Errorf("what a server posted cannot be read: %w", err)
	}
	if p.Revision != revision {
		return sw, "", fmt.Errorf("%w under revision %d: it is of %d", errForged, revision, p.Revision)
	}
	mode, ok := limit.ParseMode(p.Mode)
	if !ok {
		return sw, "", fmt.Errorf("what is posted has the mode %s, which this server does not know", limit.Quote(p.Mode))
	}
	return limit.Switches{Mode: mode, Denied: p.Denied, Revision: p.Revision}, p.By, nil
}

func macOf(secret, switches []byte) []byte {
	m := hmac.New(sha256.New, secret)
	_, _ = m.Write(switches) // it never fails
	return m.Sum(nil)
}

// secretOf returns the servers' secret, as it was last read. It asks the policy store if anew is set, or if it was
// never read. Round and Set call it concurrently.
func (s *Switchboard) secretOf(ctx context.Context, anew bool) ([]byte, error) {
	s.mu.Lock()
	secret := s.secret
	s.mu.Unlock()
	if secret != nil && !anew {
		return secret, nil
	}
	secret, err := s.store.Secret(ctx, switchSecret)
	if err != nil {
		return nil, fmt.Errorf("the secret that servers sign switches with: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
	return secret, nil
}

// Arm has what the board is read and written with while the policy store is away, or an error that says why not. The
// server is not ready before.
func (s *Switchboard) Arm(ctx context.Context) error {
	if s.board == nil {
		return nil
	}
	_, err := s.secretOf(ctx, false)
	return err
}
