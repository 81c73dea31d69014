package doors

import (
	"container/list"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Bounds of the answers that are kept for callers who ask again under the same Idempotency-Key. A tenant has an eighth,
// so that no one tenant pushes out the answers of all others. At a bound the oldest answers are forgotten, the tenant's
// own first: the same call is decided anew then.
const (
	keptFor        = 10 * time.Minute
	maxKept        = 16_384
	maxKeptBytes   = 16 << 20
	maxOfTenant    = maxKept / 8
	maxTenantBytes = maxKeptBytes / 8
	maxKeyLen      = 128
	maxUnderWay    = 4096 // calls with a key
	keptOverhead   = 512  // bytes of an answer beside key, tenant and text
)

// kept are answers by their Idempotency-Key. It is safe for concurrent use.
type kept struct {
	mu      sync.Mutex
	byKey   map[string]*keptAnswer
	oldest  list.List // of *keptAnswer that are given, the first given first
	tenants map[string]*keptTenant
	bytes   int
	under   int // calls under way
}

// keptTenant is one tenant's answers.
type keptTenant struct {
	oldest list.List // likewise
	bytes  int
}

// keptAnswer is one call's. It is under way until at is set.
type keptAnswer struct {
	key, tenant  string
	digest       [sha256.Size]byte // of the route and the body
	text         []byte
	until        time.Time
	at, ofTenant *list.Element
}

func newKept() *kept {
	return &kept{byKey: make(map[string]*keptAnswer), tenants: make(map[string]*keptTenant)}
}

// validKey reports whether a header's value can be an Idempotency-Key.
func validKey(key string) bool {
	if key == "" || len(key) > maxKeyLen {
		return false
	}
	for i := 0; i < len(key); i++ {
		if key[i] < '!' || key[i] > '~' {
			return false
		}
	}
	return true
}

// begin finds the answer of a key. Without one the call is under way until end is called with what begin returned.
func (k *kept) begin(key, route, body string) (text []byte, a *keptAnswer, err *problem) {
	h := sha256.New()
	h.Write([]byte(route))
	h.Write([]byte{0})
	h.Write([]byte(body))
	a = &keptAnswer{key: key}
	h.Sum(a.digest[:0])
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expireLocked(time.Now())
	switch was := k.byKey[key]; {
	case was != nil && was.digest != a.digest:
		return nil, nil, &problem{status: http.StatusUnprocessableEntity, detail: "this Idempotency-Key came with another request within 10 minutes; take a new key"}
	case was != nil && was.at == nil:
		return nil, nil, &problem{status: http.StatusConflict, detail: "the request of this Idempotency-Key is still under way", again: true}
	case was != nil:
		return was.text, nil, nil
	case k.under >= maxUnderWay:
		return nil, nil, &problem{status: http.StatusServiceUnavailable, detail: "too many requests with an Idempotency-Key are under way", again: true}
	}
	k.byKey[key] = a
	k.under++
	return nil, a, nil
}

// end keeps the call's answer, of a tenant; a nil text forgets the call.
func (k *kept) end(a *keptAnswer, tenant string, text []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.under--
	if text == nil {
		delete(k.byKey, a.key)
		return
	}
	a.text, a.until = text, time.Now().Add(keptFor)
	a.tenant = strings.Clone(limit.Value(tenant)) // it is a part of the body, which is not kept
	t := k.tenants[a.tenant]
	if t == nil {
		t = new(keptTenant)
		k.tenants[a.tenant] = t
	}
	a.at, a.ofTenant = k.oldest.PushBack(a), t.oldest.PushBack(a)
	k.bytes += a.size()
	t.bytes += a.size()
	for t.oldest.Len() > maxOfTenant || t.bytes > maxTenantBytes {
		k.forgetLocked(t.oldest.Front().Value.(*keptAnswer))
	}
	for k.oldest.Len() > maxKept || k.bytes > maxKeptBytes {
		k.forgetLocked(k.oldest.Front().Value.(*keptAnswer))
	}
}

// size is what an answer takes.
func (a *keptAnswer) size() int { return keptOverhead + len(a.key) + len(a.tenant) + len(a.text) }

func (k *kept) expireLocked(now time.Time) {
	for e := k.oldest.Front(); e != nil; e = k.oldest.Front() {
		a := e.Value.(*keptAnswer)
		if now.Before(a.until) {
			return
		}
		k.forgetLocked(a)
	}
}

func (k *kept) forgetLocked(a *keptAnswer) {
	t := k.tenants[a.tenant]
	k.oldest.Remove(a.at)
	t.oldest.Remove(a.ofTenant)
	k.bytes -= a.size()
	t.bytes -= a.size()
	if t.oldest.Len() == 0 {
		delete(k.tenants, a.tenant)
	}
	delete(k.byKey, a.key)
}
