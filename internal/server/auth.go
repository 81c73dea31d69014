package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// role is what a key may do. The three for people include each other in their
// order; agent and backfill stand apart.
type role uint8

const (
	roleNone role = iota
	roleViewer
	roleOperator
	roleAdmin
	roleAgent
	roleBackfill
)

var roleNames = [...]string{roleNone: "", roleViewer: "viewer", roleOperator: "operator", roleAdmin: "admin", roleAgent: "agent", roleBackfill: "backfill"}

func (r role) String() string { return roleNames[r] }

func parseRole(s string) (role, bool) {
	for r := roleViewer; r <= roleBackfill; r++ {
		if roleNames[r] == s {
			return r, true
		}
	}
	return roleNone, false
}

// allows reports whether a key of role r may do what needs role need.
func (r role) allows(need role) bool {
	if need >= roleAgent || r >= roleAgent {
		return r == need
	}
	return r >= need && need != roleNone
}

// healthPrefix begins the methods that need no key: grpc.health.v1.
const healthPrefix = "/grpc.health.v1.Health/"

// principal is who calls.
type principal struct {
	name   string // for the audit log
	role   role
	agents limit.Names // whom an agent's key speaks for
	scope  *scope      // what the key is for; nil for everything
	open   bool        // nobody was asked for a key

	certified bool     // certificate matters
	names     []string // of the caller's certificate
}

// speaksFor reports whether the caller may act as that agent: by its key, and by its certificate where that matters.
func (p *principal) speaksFor(agent string) bool {
	return (p.open || p.agents.Has(agent)) && (!p.certified || slices.Contains(p.names, agent))
}

// key is the id of the key that the caller gave; empty where nobody is asked for one.
func (p *principal) key() string {
	if p.open {
		return ""
	}
	return p.name
}

// certificateNames are the names of the caller's client certificate: its DNS names and its common name.
func certificateNames(ctx context.Context) []string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	c := info.State.PeerCertificates[0]
	return append(slices.Clone(c.DNSNames), c.Subject.CommonName)
}

type principalKey struct{}

func principalOf(ctx context.Context) principal {
	p, _ := ctx.Value(principalKey{}).(principal)
	return p
}

// authorize lets a call of method pass, or says why not.
func (k *keyring) authorize(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, healthPrefix) {
		return ctx, nil
	}
	a, ok := needs[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "no such method: %s", method)
	}
	secret, err := bearer(ctx)
	if err != nil {
		return nil, err
	}
	p, err := k.authenticate(secret, peerOf(ctx))
	if err != nil {
		return nil, err
	}
	if !p.open && !p.role.allows(a.need) {
		return nil, fmt.Errorf("%w: key %s has the role %s; this needs %s", fault.ErrDenied, p.name, p.role, a.need)
	}
	if a.tenants == "" && p.scope.narrowsTenants() {
		return nil, fmt.Errorf("%w: key %s is for some tenants only, and %s is not about one tenant", fault.ErrDenied, p.name, method[strings.LastIndexByte(method, '/')+1:])
	}
	if k.certificateAgents && a.need == roleAgent {
		p.certified, p.names = true, certificateNames(ctx)
	}
	return context.WithValue(ctx, principalKey{}, p), nil
}

// bearer returns the secret of the authorization header, empty without one.
func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "bearer") || secret == "" {
		return "", fmt.Errorf("%w: the authorization header must be one of the form: Bearer KEY", fault.ErrUnauthenticated)
	}
	return secret, nil
}
