package doors

import (
	"maps"
	"slices"
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

const headerPrefix = "header:"

// mapping is a policy's gateways as Envoy's door needs them: domain, then
// descriptor key, to attribute. It is immutable.
type mapping struct {
	domains map[string]*words
	any     *words // of the gateways without a domain; nil when there is none
}

// words maps the words of one domain.
type words struct {
	keys    map[string]string // descriptor key to attribute
	after   map[string]bool   // descriptor keys of reports after the fact
	hits    map[string]string // descriptor key, "" for any, to the cost that hits are units of
	headers []headerWord      // in the order of their names, so that the first of two is always the same
}

type headerWord struct{ name, attribute string }

// newMapping merges the gateways of each domain. Where two of them map the same word, the later one in the policy's
// order wins.
func newMapping(gateways []client.Gateway) *mapping {
	m := &mapping{domains: make(map[string]*words)}
	for _, g := range gateways {
		if len(g.Descriptors) == 0 {
			continue
		}
		w := m.any
		if g.Domain != "" {
			w = m.domains[g.Domain]
		}
		if w == nil {
			w = &words{keys: make(map[string]string), after: make(map[string]bool), hits: make(map[string]string)}
			if g.Domain == "" {
				m.any = w
			} else {
				m.domains[g.Domain] = w
			}
		}
		w.add(g.Descriptors)
		for _, key := range g.After {
			w.after[key] = true
		}
		maps.Copy(w.hits, g.Hits)
	}
	return m
}

func (w *words) add(descriptors map[string]string) {
	for key, attribute := range descriptors {
		name, ok := strings.CutPrefix(strings.ToLower(key), headerPrefix)
		if !ok {
			w.keys[key] = attribute
			continue
		}
		at := len(w.headers)
		for i, h := range w.headers {
			if h.name >= name {
				at = i
				break
			}
		}
		if at < len(w.headers) && w.headers[at].name == name {
			w.headers[at].attribute = attribute
			continue
		}
		w.headers = append(w.headers[:at], append([]headerWord{{name, attribute}}, w.headers[at:]...)...)
	}
}

// of returns the words of a domain, or nil: then nothing is limited there.
func (m *mapping) of(domain string) *words {
	if w := m.domains[domain]; w != nil {
		return w
	}
	return m.any
}

// request returns what a descriptor asks for: its hits are units of requests, or of the cost of its first entry that has
// one.
func (w *words) request(d *rlcommon.RateLimitDescriptor, hits int64, md metadata.MD) client.Request {
	q := client.Request{Attributes: w.attributes(d, md)}
	cost := w.hits[""]
	for _, e := range d.GetEntries() {
		if c, ok := w.hits[e.GetKey()]; ok && e.GetKey() != "" {
			cost = c
			break
		}
	}
	if cost == "" || cost == limit.Requests {
		q.Units = hits
	} else {
		q.Costs = []client.Cost{{Name: cost, Units: hits}}
	}
	return q
}

// hitsIn is where a request of a descriptor has its hits.
func hitsIn(q *client.Request) *int64 {
	if len(q.Costs) > 0 {
		return &q.Costs[0].Units
	}
	return &q.Units
}

// ofHits is the same request with other hits.
func ofHits(q client.Request, hits int64) client.Request {
	q.Costs = slices.Clone(q.Costs)
	*hitsIn(&q) = hits
	return q
}

// attributes returns what a descriptor says of its request; nil if nothing in it is mapped. A word `header:x-tenant` is
// looked up in the descriptor as header:x-tenant or x-tenant, in any case. Otherwise it is looked up in the call's own
// metadata, where Envoy puts headers with initial_metadata. The first entry of an attribute wins.
//
// The attribute endpoint has the form of the other doors. Where the attribute method is known, a bare path becomes
// "METHOD /path", clean and without its query.
func (w *words) attributes(d *rlcommon.RateLimitDescriptor, md metadata.MD) []client.Attribute {
	var list []client.Attribute
	has := func(name string) bool {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
		return false
	}
	add := func(name, value string) {
		if name != "" && value != "" && len(list) < maxAttributes && !has(name) {
			list = append(list, client.Attribute{Name: name, Value: value})
		}
	}
	for _, e := range d.GetEntries() {
		attribute, ok := w.keys[e.GetKey()]
		if !ok {
			attribute = w.header(strings.TrimPrefix(strings.ToLower(e.GetKey()), headerPrefix))
		}
		add(attribute, e.GetValue())
	}
	if len(list) == 0 && !w.onlyHeaders() {
		return nil
	}
	for _, h := range w.headers {
		if v := md.Get(h.name); len(v) > 0 {
			add(h.attribute, v[0])
		}
	}
	joinEndpoint(list)
	return list
}

// reports reports whether a descriptor tells of usage that happened already, and asks for nothing.
func (w *words) reports(d *rlcommon.RateLimitDescriptor) bool {
	for _, e := range d.GetEntries() {
		if w.after[e.GetKey()] {
			return true
		}
	}
	return false
}

// header returns the attribute of a header, its name in lower case; empty for none.
func (w *words) header(name string) string {
	for _, h := range w.headers {
		if h.name == name {
			return h.attribute
		}
	}
	return ""
}

// onlyHeaders reports whether all words are read from metadata. Then a descriptor with nothing mapped still stands for
// a request.
func (w *words) onlyHeaders() bool { return len(w.keys) == 0 }

func joinEndpoint(list []client.Attribute) {
	method := ""
	for _, a := range list {
		if a.Name == "method" {
			method = a.Value
		}
	}
	for i := range list {
		a := &list[i]
		if (a.Name != "endpoint" && a.Name != "path") || !strings.HasPrefix(a.Value, "/") {
			continue
		}
		a.Value = plainPath(a.Value)
		if a.Name == "endpoint" && method != "" {
			a.Value = method + " " + a.Value
		}
	}
}
