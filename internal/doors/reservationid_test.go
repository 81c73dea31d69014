package doors

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// An id says what it was made of, to whoever has the key; any change of a character is found out.
func TestReservationIDs(t *testing.T) {
	key, other := NewIDKey(bytes.Repeat([]byte("s"), 32)), RandomIDKey()
	for _, want := range []reservationID{
		{agent: "a", of: client.ReservationID{Epoch: 1, Number: 2}, expires: 3},
		{agent: strings.Repeat("a", limit.MaxAgentLen), address: strings.Repeat("h", MaxAdvertised), of: client.ReservationID{Epoch: math.MaxInt64, Number: math.MaxInt64}, expires: -1},
	} {
		text := key.seal(want)
		if len(text) > maxID {
			t.Errorf("%d characters, want at most %d", len(text), maxID)
		}
		if got, sealed, err := key.open(text); got != want || !sealed || err != nil {
			t.Errorf("got %+v, %t, %v, want %+v", got, sealed, err, want)
		}
		if got, sealed, err := other.open(text); got != want || sealed || err != nil {
			t.Errorf("under another key: got %+v, %t, %v", got, sealed, err)
		}
		for i := range text {
			forged := []byte(text)
			if forged[i] = 'A'; text[i] == 'A' {
				forged[i] = 'Q'
			}
			if _, sealed, err := key.open(string(forged)); sealed && err == nil {
				t.Errorf("character %d changed: still sealed", i)
			}
		}
	}
	for _, text := range []string{"", "x", "====", strings.Repeat("A", maxID+1), "AQ", "AQZhZ2VudDEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		if _, sealed, err := key.open(text); sealed || !errors.Is(err, errID) {
			t.Errorf("%.20q: %t, %v", text, sealed, err)
		}
	}
}

// The secret that a journal's directory keeps is the same at the next start; one that a crash left short is made anew.
func TestKeptIDKey(t *testing.T) {
	dir := t.TempDir()
	first, err := KeptIDKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := KeptIDKey(dir); err != nil || !bytes.Equal(first.key, again.key) {
		t.Errorf("another key at the next start: %v", err)
	}
	if elsewhere, err := KeptIDKey(t.TempDir()); err != nil || bytes.Equal(first.key, elsewhere.key) {
		t.Errorf("the same key elsewhere: %v", err)
	}
	if _, err := KeptIDKey(dir + "/nowhere"); err == nil {
		t.Error("kept where there is no directory")
	}
}

func TestAdvertisedAddresses(t *testing.T) {
	for _, good := range []string{"10.0.0.1:7611", "agent-1.internal:7611", "[fd00::1]:1"} {
		if err := CheckAdvertised(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "x", ":7611", "0.0.0.0:7611", "[::]:7611", "a:0", "a:65536", "a:http", "unix:/x", strings.Repeat("a", 300) + ":1"} {
		if err := CheckAdvertised(bad); !errors.Is(err, ErrAddress) {
			t.Errorf("%.20s: %v", bad, err)
		}
	}
}

// Whatever is given as an id, nothing breaks, and nothing but what was sealed counts as sealed.
func FuzzOpenID(f *testing.F) {
	key := NewIDKey(bytes.Repeat([]byte("s"), 32))
	f.Add(key.seal(reservationID{agent: "gw-1", address: "10.0.0.1:7611", of: client.ReservationID{Epoch: 5, Number: 6}, expires: 7}))
	f.Add("AQZhZ2VudDEAAAAAAAAA")
	f.Add("AQRndy0xDTEwLjAuMTEAAA")             // as long as a MAC
	f.Add("Af9h" + strings.Repeat("YWFh", 100)) // a text of 255 bytes
	f.Fuzz(func(t *testing.T, text string) {
		id, sealed, err := key.open(text)
		if err == nil && sealed && key.seal(id) != text {
			t.Fatalf("%+v is sealed as %q", id, text)
		}
	})
}
