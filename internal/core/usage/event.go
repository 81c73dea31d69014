package usage

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"
)

// EventKnownFor is how long an event that was booked is known.
const EventKnownFor = 24 * time.Hour

// EventID names an event that others measured, for the journal: a booked event is a reservation of no units that was
// committed at once. Tenant, source and id are hashed to 126 bits of SHA-256, so that each takes as many bytes. Nobody
// finds two that meet by chance, and an epoch is never negative. No tenant's events are taken for another's.
func EventID(tenant, source, id string) ReservationID {
	text := appendText(appendText(appendText(nil, tenant), source), id)
	sum := sha256.Sum256(text)
	return ReservationID{
		Epoch:  int64(binary.LittleEndian.Uint64(sum[:8]) | 1<<63),
		Number: int64(binary.LittleEndian.Uint64(sum[8:16]) & math.MaxInt64),
	}
}

// Event reports whether it names an event.
func (id ReservationID) Event() bool { return id.Epoch < 0 }

// KnownFor is how long it is known once it has ended.
func (id ReservationID) KnownFor() time.Duration {
	if id.Event() {
		return EventKnownFor
	}
	return KnownFor
}
