package leasing

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// keySep separates the parts of a bucket's key; no name, tenant or value may hold it.
	keySep = "\x1f"
	// maxKeyLen is the longest key that is kept as it is. Stores hold keys of 256 bytes, and need some of it for a
	// prefix of their own.
	maxKeyLen = 200
)

// keyName is the limit's name as bucket keys have it. No limit's name holds a "+". So the overage of a soft limit and
// the limits of the shadow version have buckets of their own.
func keyName(r *quotav1.Renewal) string {
	name := r.Limit
	if r.Shadow {
		name += "+shadow"
	}
	if r.Kind == quotav1.Renewal_KIND_OVERAGE {
		name += "+overage"
	}
	return name
}

// bucketKey names a bucket: the limit, the tenant whose plan holds it (empty at the top level) and the values of its
// `by` attributes. A long key is cut to the limit's name and a hash of the whole. No tenant's id begins with "#", so
// the two forms never collide.
func bucketKey(name, tenant string, values []string) string {
	n := len(name) + len(keySep) + len(tenant)
	for _, v := range values {
		n += len(keySep) + len(v)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(name)
	b.WriteString(keySep)
	b.WriteString(tenant)
	for _, v := range values {
		b.WriteString(keySep)
		b.WriteString(v)
	}
	key := b.String()
	if len(key) <= maxKeyLen {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return name + keySep + "#" + hex.EncodeToString(sum[:])
}

// holderName names a holder of leases: one start of an agent.
func holderName(agent string, epoch int64) string {
	return agent + "/" + strconv.FormatInt(epoch, 10)
}

// spec is the rule as a renewal step needs it at now. Windows are cut here, because that needs the time zone. The
// store's clock decides which of the two the bucket is in.
func spec(r *limit.Rule, now time.Time) lease.Spec {
	l := &r.Limit
	s := lease.Spec{
		Algorithm:  l.Algorithm,
		Units:      l.Rate.Units,
		Period:     l.Rate.Per.Microseconds(),
		Burst:      l.Burst,
		EpsilonPPM: l.EpsilonPPM,
		Borrow:     l.Borrow,
		Lockout:    l.Lockout.Microseconds(),
		Hold:       l.FallbackHold.Microseconds(),
		Prorate:    l.OnChange == limit.ChangeProrate,
	}
	if l.Slots > 0 {
		s.Units = l.Slots
	}
	if l.Enforcement == limit.Strict {
		s.EpsilonPPM = 0
	}
	if l.Algorithm.Windowed() {
		start, end := r.Window(now)
		_, next := r.Window(end)
		s.WindowStart, s.WindowEnd, s.NextWindowEnd = start.UnixMicro(), end.UnixMicro(), next.UnixMicro()
	}
	return s
}
