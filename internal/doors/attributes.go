package doors

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// maxAttributes bounds the attributes that a door can be configured with. A limit tells buckets apart by at most
// limit.MaxBy; more than a few limits' worth is a mistake in the configuration.
const maxAttributes = 32

// ErrAttribute is wrapped by every fault in an attribute's configuration.
var ErrAttribute = errors.New("doors: invalid attribute")

// DefaultAttributes is what an HTTP door reads when nothing else is configured.
func DefaultAttributes() []string {
	return []string{"tenant=header:X-Tenant", "endpoint=method+path", "method=method", "ip=ip"}
}

// Attributes says where each attribute of an HTTP check comes from. It is immutable
// and safe for concurrent use; the zero value reads nothing.
type Attributes struct {
	list []attribute
}

type attribute struct {
	name    string
	sources []source // the first that has a value wins
}

type source func(*http.Request) string

// ParseAttributes reads `NAME=SOURCE[,SOURCE…]` for each attribute. A source is one of:
//
//	header:NAME    a request header, the first of that name.
//	method         the original request's method.
//	path           the original request's path, without its query.
//	method+path    both, as in "POST /orders".
//	host           the original request's host, without a port.
//	ip             the original client's address.
//	value:TEXT     TEXT itself.
//
// The original request is what the gateway tells of it, else the check's own. Gateways tell it as X-Original-Method and
// X-Original-URI (nginx), or as X-Forwarded-Method and X-Forwarded-Uri (Traefik, Caddy). Every fault is reported,
// joined; each wraps ErrAttribute.
func ParseAttributes(specs []string) (Attributes, error) {
	var a Attributes
	var faults []error
	if len(specs) > maxAttributes {
		return a, fmt.Errorf("%w: at most %d, got %d", ErrAttribute, maxAttributes, len(specs))
	}
	seen := make(map[string]bool, len(specs))
	for _, spec := range specs {
		name, from, ok := strings.Cut(spec, "=")
		name = strings.TrimSpace(name)
		if !ok || !limit.ValidName(name) {
			faults = append(faults, fmt.Errorf("%w: %s: write NAME=SOURCE, such as tenant=header:X-Tenant", ErrAttribute, limit.Quote(spec)))
			continue
		}
		if seen[name] {
			faults = append(faults, fmt.Errorf("%w: %s is given twice; separate its sources with a comma", ErrAttribute, name))
			continue
		}
		seen[name] = true
		attr := attribute{name: name}
		for _, word := range strings.Split(from, ",") {
			s, err := parseSource(strings.TrimSpace(word))
			if err != nil {
				faults = append(faults, fmt.Errorf("%w: %s: %w", ErrAttribute, limit.Quote(spec), err))
				continue
			}
			attr.sources = append(attr.sources, s)
		}
		a.list = append(a.list, attr)
	}
	if err := errors.Join(faults...); err != nil {
		return Attributes{}, err
	}
	return a, nil
}

func parseSource(word string) (source, error) {
	kind, arg, _ := strings.Cut(word, ":")
	switch {
	case kind == "header" && httpguts.ValidHeaderFieldName(arg):
		name := textproto.CanonicalMIMEHeaderKey(arg)
		return func(r *http.Request) string { return r.Header.Get(name) }, nil
	case kind == "header":
		return nil, fmt.Errorf("%s is not a header's name", limit.Quote(arg))
	case kind == "value" && arg != "":
		return func(*http.Request) string { return arg }, nil
	}
	switch word {
	case "method":
		return originalMethod, nil
	case "path":
		return originalPath, nil
	case "method+path":
		return func(r *http.Request) string { return originalMethod(r) + " " + originalPath(r) }, nil
	case "host":
		return originalHost, nil
	case "ip":
		return originalIP, nil
	}
	return nil, fmt.Errorf("no such source: %s; write header:NAME, method, path, method+path, host, ip or value:TEXT", limit.Quote(word))
}

// Of calls add for each attribute that the request has, in the configured order. An attribute without a value is left
// out: to a limit it is absent.
func (a Attributes) Of(r *http.Request, add func(name, value string)) {
	for i := range a.list {
		for _, from := range a.list[i].sources {
			if v := from(r); v != "" {
				add(a.list[i].name, v)
				break
			}
		}
	}
}

func first(r *http.Request, names ...string) string {
	for _, name := range names {
		if v := r.Header.Get(name); v != "" {
			return v
		}
	}
	return ""
}

func originalMethod(r *http.Request) string {
	if m := first(r, "X-Original-Method", "X-Forwarded-Method"); m != "" {
		return m
	}
	return r.Method
}

// originalPath is clean, as plainPath makes it. A check that names no original request
// is about its own path below /check: /check/orders is /orders.
func originalPath(r *http.Request) string {
	uri := first(r, "X-Original-Uri", "X-Forwarded-Uri")
	if uri == "" {
		uri = strings.TrimPrefix(r.URL.EscapedPath(), "/check")
	}
	return plainPath(uri)
}

// plainPath is a request URI's path without its query and fragment, decoded once and clean. Gateways hand on what the
// client wrote, and a limit on /orders must hold for //orders, /x/..%2forders and /orders#x too. No client should send
// a fragment; nginx and others cut it off and serve the rest.
func plainPath(uri string) string {
	p := uri
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		p = uri[:i]
	}
	if u, err := url.ParseRequestURI(p); err == nil && u.Opaque == "" {
		p = u.Path // also the path of an absolute URI
	}
	return limit.CleanPath(p)
}

func originalHost(r *http.Request) string {
	host := first(r, "X-Original-Host", "X-Forwarded-Host")
	if host == "" {
		host = r.Host
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// originalIP is X-Real-IP, else the last of X-Forwarded-For, which is the address that the gateway in front of the door
// has seen. All addresses before it came from the client, and a client that chooses its address escapes every limit by
// address. If the header holds no address, the client is unknown. It is never the gateway's own address, which lists
// may let pass. Without either header the peer is the client.
func originalIP(r *http.Request) string {
	if said := r.Header.Get("X-Real-Ip"); said != "" {
		return address(strings.TrimSpace(said))
	}
	if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 0 {
		last := lines[len(lines)-1]
		last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
		if h, _, err := net.SplitHostPort(last); err == nil {
			last = h // some gateways add the port
		}
		return address(strings.Trim(last, "[]"))
	}
	if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return a.Addr().Unmap().WithZone("").String()
	}
	return "" // a Unix socket has no address
}

// address is s as an address; empty where it is none.
func address(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return ""
	}
	return a.Unmap().WithZone("").String()
}
