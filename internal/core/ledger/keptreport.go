package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// whole keeps the entire report aside, readable by DecodeReport. Its reason says that it is unsealed, for its body does
// not.
func (a *arrival) whole() Quarantined {
	reason := a.fault.Error()
	if a.report.Unsealed {
		reason = UnsealedPrefix + reason
	}
	return Quarantined{ID: a.id, Row: -1, Reason: clip(reason), Body: encodeReport(a.report), Note: &Note{}}
}

// encodeReport writes all fields of a report, good or bad.
func encodeReport(r *Report) []byte {
	b := make([]byte, 0, len(r.Payload)+len(r.Agent)+128)
	b = append(b, codecVersion)
	b = binary.AppendUvarint(b, uint64(len(r.Agent)))
	b = append(b, r.Agent...)
	for _, v := range [...]int64{r.Epoch, r.Seq, r.Before, r.After, r.Through} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	if r.Closed {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, r.Digest[:]...)
	return append(b, r.Payload...)
}

// DecodeReport reads a whole report back out of quarantine; it may break any
// bound. Errors wrap ErrEncoding.
func DecodeReport(body []byte) (Report, error) {
	const fixed = 5*8 + 1 + 32
	d := decoder{rest: string(body)}
	if d.rest == "" || d.rest[0] != codecVersion {
		return Report{}, fmt.Errorf("%w: not a kept report", ErrEncoding)
	}
	d.rest = d.rest[1:]
	n := d.uvarint()
	if d.fault != "" || len(d.rest) < fixed || n > uint64(len(d.rest)-fixed) {
		return Report{}, fmt.Errorf("%w: a kept report is cut short", ErrEncoding)
	}
	r := Report{Agent: d.rest[:n]}
	b := body[len(body)-len(d.rest)+int(n):]
	for _, v := range [...]*int64{&r.Epoch, &r.Seq, &r.Before, &r.After, &r.Through} {
		*v, b = int64(binary.BigEndian.Uint64(b)), b[8:]
	}
	r.Closed, b = b[0] == 1, b[1:]
	r.Digest = [32]byte(b)
	if b = b[32:]; len(b) > 0 {
		r.Payload = slices.Clone(b)
	}
	return r, nil
}

// encodeHeld writes ascending row numbers, each less the one before.
func encodeHeld(rows []int) []byte {
	var b []byte
	last := 0
	for _, n := range rows {
		b = binary.AppendUvarint(b, uint64(n-last))
		last = n
	}
	return b
}

// decodeHeld reads them back; a malformed number ends the list.
func decodeHeld(b []byte) []int {
	var rows []int
	last := 0
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > MaxRows {
			break
		}
		last += int(n)
		rows = append(rows, last)
		b = b[size:]
	}
	return rows
}

// clip makes a reason fit for a text column.
func clip(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "")
	}
	return s
}
