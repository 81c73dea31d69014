package client

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// epochBits of an epoch, the last of its microseconds, are random: epochs rise from second to second, nobody knows
// the next, and copies of a process that start together do not share one. Lives of a journal rise always (journal.Apart).
const epochBits = 20

// newEpoch is an epoch that begins now.
func newEpoch(now time.Time) int64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return now.UnixMicro()>>epochBits<<epochBits | int64(binary.BigEndian.Uint32(b[:])>>(32-epochBits))
}
