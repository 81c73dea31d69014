package load

import (
	"strconv"
	"unsafe"

	"github.com/f4ee788f/quota/pkg/client"
)

// ahead is how many requests are written before the first of them is decided. They are enough that the first has
// reached the processor's nearest cache by then, and few enough to stay in it.
const ahead = 16

// requests are what a gateway has read off the wire. They are in memory that was just written, and is used again.
// Requests kept ready for every tenant would fill the processors' caches as much as the decisions do; a gateway's do
// not.
type requests struct {
	limits     int
	begin      int                // where a tenant's number begins in its name
	attributes []client.Attribute // of one request after the other
	names      [ahead][]byte      // of the tenants
	parts      [ahead][][]byte    // of the values beyond a request's first, the last four digits of the tenant
}

// newRequests returns room for a load's requests.
func newRequests(c *Config) *requests {
	name := c.Tenant(0)
	q := &requests{limits: max(c.Limits, 1), begin: len(name) - len("00000")}
	for i := range q.names {
		q.names[i] = append(make([]byte, 0, len(name)+8), name...)
		a := attributesOf(text(q.names[i]), q.limits)
		for k := range a[1:] {
			value := []byte(a[1+k].Value)
			a[1+k].Value = text(value)
			q.parts[i] = append(q.parts[i], value[len(value)-4:])
		}
		q.attributes = append(q.attributes, a...)
	}
	return q
}

// text is b, valid until b is written again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// of returns request i as it was written last.
func (q *requests) of(i int) []client.Attribute { return q.attributes[i*q.limits:][:q.limits:q.limits] }

// read writes the next n requests of a track.
func (q *requests) read(track []uint32, from, n int) {
	for i := range n {
		q.write(i, track[(from+i)&(len(track)-1)])
	}
}

// write makes request i a request of a tenant.
func (q *requests) write(i int, tenant uint32) {
	name, begin := q.names[i], q.begin
	if tenant < 100_000 {
		_ = name[begin+4]
		name = name[:begin+5]
		high, low := tenant/1000, tenant%1000
		name[begin], name[begin+1] = byte('0'+high/10), byte('0'+high%10)
		name[begin+2], name[begin+3], name[begin+4] = byte('0'+low/100), byte('0'+low/10%10), byte('0'+low%10)
	} else {
		name = strconv.AppendUint(name[:begin], uint64(tenant), 10)
	}
	q.attributes[i*q.limits].Value = text(name)
	for _, part := range q.parts[i] {
		copy(part, name[len(name)-4:])
	}
}
