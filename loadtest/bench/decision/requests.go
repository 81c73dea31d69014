package main

import (
	"math/rand/v2"
	"unsafe"
)

// requests are what a gateway reads off the wire. The strings are in a buffer that was just written, so finding buckets
// is measured, not a walk over a table of strings.
type requests struct {
	order []uint32 // of keys, read in sequence
	users int
	own   bool // each user is a tenant

	workers [2]worker
}

type worker struct {
	at int
	// The request's strings, and a map's keys of its buckets, over buf.
	tenant, user, ip string
	keys             [3]string
	buf              [160]byte
	_                [64]byte
}

// Each tenant has usersPerTenant users; there are as many tenants as the users need.
const usersPerTenant = 100

// Places in a worker's buffer.
const (
	atTenant = 0  // "t-00000000"
	atUser   = 11 // "u-00000000-0000", behind the tenant and a separator
	atIP     = 40 // "10.000.000.000", behind "ip:"
)

const (
	tenantLen = 10
	userLen   = 15
)

func newRequests(users int, zipf, own bool) *requests {
	r := &requests{order: make([]uint32, 1<<20), users: users, own: own}
	rnd := rand.New(rand.NewPCG(uint64(users), 7))
	z := rand.NewZipf(rnd, 1.1, 1, uint64(users-1))
	for i := range r.order {
		if zipf {
			// The popular ones are scattered.
			r.order[i] = uint32(z.Uint64() * 2654435761 % uint64(users))
		} else {
			r.order[i] = uint32(rnd.IntN(users))
		}
	}
	for i := range r.workers {
		w := &r.workers[i]
		w.at = i * len(r.order) / 2
		w.buf[atTenant+tenantLen] = 0x1f
	}
	return r
}

const digits = "0123456789abcdef"

func hex(b []byte, v uint32) {
	_ = b[7]
	b[0], b[1], b[2], b[3] = digits[v>>28], digits[v>>24&15], digits[v>>20&15], digits[v>>16&15]
	b[4], b[5], b[6], b[7] = digits[v>>12&15], digits[v>>8&15], digits[v>>4&15], digits[v&15]
}

// next writes the next request into the worker's buffer.
func (r *requests) next(w *worker) {
	w.at++
	if w.at >= len(r.order) {
		w.at = 0
	}
	r.write(w, r.order[w.at])
}

func (r *requests) write(w *worker, i uint32) {
	b := &w.buf
	t := i / usersPerTenant
	if r.own {
		t = i
	}
	b[atTenant], b[atTenant+1] = 't', '-'
	hex(b[atTenant+2:], t*2654435761)
	b[atUser], b[atUser+1] = 'u', '-'
	hex(b[atUser+2:], i*2246822519)
	b[atUser+10], b[atUser+11], b[atUser+12], b[atUser+13], b[atUser+14] = '-', digits[i&15], digits[i>>4&15], digits[i>>8&15], digits[i>>12&15]
	w.tenant = unsafe.String(&b[atTenant], tenantLen)
	w.user = unsafe.String(&b[atUser], userLen)
	w.keys[0], w.keys[1] = unsafe.String(&b[atTenant], tenantLen+1+userLen), w.tenant
	if r.own {
		w.keys[0] = w.tenant
	}
	// 10.x.y.z with three digits from 100 to 227 each: no leading zeros, and one length.
	copy(b[atIP:], "ip:10.")
	for k, v := range [3]uint32{i & 127, i >> 7 & 127, i >> 14 & 127} {
		v += 100
		o := atIP + 6 + 4*k
		b[o], b[o+1], b[o+2], b[o+3] = byte('0'+v/100), byte('0'+v/10%10), byte('0'+v%10), '.'
	}
	w.ip = unsafe.String(&b[atIP+3], 14)
	w.keys[2] = unsafe.String(&b[atIP], 17)
}

// keys calls f for every key that a map of the buckets holds, with strings of its own.
func (r *requests) each(f func(w *worker)) {
	w := new(worker)
	w.buf[atTenant+tenantLen] = 0x1f
	for i := range r.users {
		r.write(w, uint32(i))
		f(w)
	}
}
