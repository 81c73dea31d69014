package doors

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

const (
	idVersion = 1
	macLen    = 16
	// maxID bounds an id's characters: of an agent's name and an address of the longest, and what else is in it.
	maxID = 512
	// MaxAdvertised bounds an address that other agents are told, in bytes: with it every id fits.
	MaxAdvertised = maxID*3/4 - 3 - 3*8 - macLen - limit.MaxAgentLen
	// MinPeerSecret is the fewest bytes of a secret that agents share.
	MinPeerSecret = 32
	// keptSecret is the file of a journal's directory that keeps a secret for ids, so that they outlive the agent.
	keptSecret = "reservation-secret"
)

// IDKey seals the ids of reservations, so that nobody can make one up: not even of a reservation that there is.
type IDKey struct{ key []byte }

// NewIDKey returns the key of a secret. Agents of one secret know each other's ids.
func NewIDKey(secret []byte) IDKey {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("quota reservation ids"))
	return IDKey{m.Sum(nil)}
}

// CheckAdvertised reports what is wrong with an address that other agents are told. The error wraps ErrAddress.
func CheckAdvertised(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || host == "" || e != nil || n == 0 || len(address) > MaxAdvertised {
		return fmt.Errorf("%w: %q: write HOST:PORT, at most %d bytes", ErrAddress, address, MaxAdvertised)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return fmt.Errorf("%w: %q: nobody reaches %s from elsewhere", ErrAddress, address, host)
	}
	return nil
}

// RandomIDKey returns a key that nobody else has, and no later start.
func RandomIDKey() IDKey {
	secret := make([]byte, MinPeerSecret)
	_, _ = rand.Read(secret) // never fails
	return NewIDKey(secret)
}

// KeptIDKey returns the key that is kept in a directory, and makes it where there is none. The directory is one
// process's alone.
func KeptIDKey(dir string) (IDKey, error) {
	path := filepath.Join(dir, keptSecret)
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(secret) < MinPeerSecret { // a crash came in between
		secret = make([]byte, MinPeerSecret)
		_, _ = rand.Read(secret) // never fails
		err = os.WriteFile(path, secret, 0o600)
	}
	if err != nil {
		return IDKey{}, fmt.Errorf("doors: the secret of reservations' ids: %w", err)
	}
	return NewIDKey(secret), nil
}

// reservationID is what an id says.
type reservationID struct {
	agent   string // that has the reservation
	address string // where other agents reach it; empty for nowhere
	of      client.ReservationID
	expires int64 // Unix milliseconds, when it was made
}

// errID means that a text is no id at all.
var errID = errors.New("this is no reservation's id")

func (k IDKey) mac(b []byte) []byte {
	m := hmac.New(sha256.New, k.key)
	m.Write(b)
	return m.Sum(nil)[:macLen]
}

// seal returns the id as callers get it.
func (k IDKey) seal(id reservationID) string {
	b := append(make([]byte, 0, maxID), idVersion, byte(len(id.agent)))
	b = append(append(b, id.agent...), byte(len(id.address)))
	b = append(b, id.address...)
	for _, v := range []int64{id.of.Epoch, id.of.Number, id.expires} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return base64.RawURLEncoding.EncodeToString(append(b, k.mac(b)...))
}

// open reads an id, and reports whether it was sealed under the key. Else what it says is anybody's word. The error is
// errID.
func (k IDKey) open(text string) (id reservationID, sealed bool, err error) {
	if text == "" || len(text) > maxID {
		return id, false, errID
	}
	whole, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(whole) <= macLen || whole[0] != idVersion {
		return id, false, errID
	}
	b := whole[1 : len(whole)-macLen]
	if id.agent, b, err = cutText(b); err != nil || !limit.ValidAgent(id.agent) {
		return id, false, errID
	}
	if id.address, b, err = cutText(b); err != nil || len(b) != 3*8 {
		return id, false, errID
	}
	id.of = client.ReservationID{Epoch: int64(binary.BigEndian.Uint64(b)), Number: int64(binary.BigEndian.Uint64(b[8:]))}
	id.expires = int64(binary.BigEndian.Uint64(b[16:]))
	return id, hmac.Equal(whole[len(whole)-macLen:], k.mac(whole[:len(whole)-macLen])), nil
}

// cutText reads a text that follows its length.
func cutText(b []byte) (s string, rest []byte, err error) {
	if len(b) == 0 || len(b) <= int(b[0]) {
		return "", nil, errID
	}
	end := 1 + int(b[0])
	return string(b[1:end]), b[end:], nil
}
