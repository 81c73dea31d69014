package authn

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

// Principal is who calls.
type Principal struct {
	Name   string // for the audit log
	role   role
	agents limit.Names // whom an agent's key speaks for
	Scope  *Scope      // what the key is for; nil for everything
	Open   bool        // nobody was asked for a key

	certified bool     // certificate matters
	names     []string // of the caller's certificate
}

// speaksFor reports whether the caller may act as that agent: by its key, and by its certificate where that matters.
func (p *Principal) speaksFor(agent string) bool {
	return (p.Open || p.agents.Has(agent)) && (!p.certified || slices.Contains(p.names, agent))
}

// Key is the id of the key that the caller gave; empty where nobody is asked for one.
func (p *Principal) Key() string {
	if p.Open {
		return ""
	}
	return p.Name
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

// WithPrincipal returns the context of a call by p.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf is who calls.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// authorize lets a call of method pass, or says why not.
func (k *Keyring) authorize(ctx context.Context, method string) (context.Context, error) {
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
	if !p.Open && !p.role.allows(a.need) {
		return nil, fmt.Errorf("%w: key %s has the role %s; this needs %s", fault.ErrDenied, p.Name, p.role, a.need)
	}
	if a.tenants == "" && p.Scope.NarrowsTenants() {
		return nil, fmt.Errorf("%w: key %s is for some tenants only, and %s is not about one tenant", fault.ErrDenied, p.Name, method[strings.LastIndexByte(method, '/')+1:])
	}
	if k.certificateAgents && a.need == roleAgent {
		p.certified, p.names = true, certificateNames(ctx)
	}
	return WithPrincipal(ctx, p), nil
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

// SpeaksFor refuses a caller whose key is another agent's.
func SpeaksFor(ctx context.Context, agent string) error {
	if p := PrincipalOf(ctx); !p.speaksFor(agent) {
		if p.certified && (p.Open || p.agents.Has(agent)) {
			return fmt.Errorf("%w: agent %s is no name of the client certificate, which has %q", fault.ErrDenied, limit.Quote(agent), p.names)
		}
		return fmt.Errorf("%w: key %s does not speak for agent %s", fault.ErrDenied, p.Name, limit.Quote(agent))
	}
	return nil
}
