package recovery

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// NewAgent makes a name that no other process has: of the host's name, the process id and chance.
func NewAgent() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "agent"
	}
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && limit.ValidAgent(string(r)) {
			return r
		}
		return '-'
	}, host)
	var chance [4]byte
	_, _ = rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%.64s-%d-%s", clean, os.Getpid(), hex.EncodeToString(chance[:]))
}

// epochBits is how many bits of an epoch, the last of its microseconds, are random. Epochs rise from second to
// second, nobody knows the next, and copies of a process that start together do not share one. Lives of a
// journal always rise (journal.Apart).
const epochBits = 20

// NewEpoch is an epoch that begins now.
func NewEpoch(now time.Time) int64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return now.UnixMicro()>>epochBits<<epochBits | int64(binary.BigEndian.Uint32(b[:])>>(32-epochBits))
}
