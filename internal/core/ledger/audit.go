package ledger

import (
	"crypto/sha256"
	"encoding/binary"
)

// AuditRow is a row of the audit log, which changes of the policy and of the ledger share.
type AuditRow struct {
	Number                               int64
	At                                   int64 // Unix milliseconds
	Actor, Action, Object, Before, After string
	Chain                                []byte // empty in rows of a release that had none
}

// Next is the row's chain: the SHA-256 over the chain of the row before it, and all that it says, in a fixed encoding.
func (r *AuditRow) Next(previous []byte) []byte {
	b := append(make([]byte, 0, 256), "quota.audit.1\n"...)
	for _, v := range [...]int64{r.Number, r.At} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	for _, s := range [...]string{string(previous), r.Actor, r.Action, r.Object, r.Before, r.After} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
