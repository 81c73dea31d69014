package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Every method of every service has a role, and nothing else has.
func TestEveryMethodHasARole(t *testing.T) {
	methods := map[string]bool{}
	for _, d := range []grpc.ServiceDesc{quotav1.LeaseService_ServiceDesc, quotav1.AdminService_ServiceDesc, quotav1.UsageService_ServiceDesc, quotav1.LedgerService_ServiceDesc, quotav1.StatementService_ServiceDesc, quotav1.AlertService_ServiceDesc} {
		for _, m := range d.Methods {
			methods["/"+d.ServiceName+"/"+m.MethodName] = true
		}
		for _, s := range d.Streams {
			methods["/"+d.ServiceName+"/"+s.StreamName] = true
		}
	}
	for m := range methods {
		if needs[m].need == roleNone {
			t.Errorf("%s has no role: nobody may call it", m)
		}
	}
	for m := range needs {
		if !methods[m] {
			t.Errorf("%s has a role and is no method", m)
		}
	}
}

func TestRoles(t *testing.T) {
	all := []role{roleViewer, roleOperator, roleAdmin, roleAgent, roleBackfill}
	for have, want := range map[role][]bool{
		roleNone:     {false, false, false, false, false},
		roleViewer:   {true, false, false, false, false},
		roleOperator: {true, true, false, false, false},
		roleAdmin:    {true, true, true, false, false},
		roleAgent:    {false, false, false, true, false},
		roleBackfill: {false, false, false, false, true},
	} {
		for i, need := range all {
			if got := have.allows(need); got != want[i] {
				t.Errorf("%q may do what needs %q: got %t, want %t", have, need, got, want[i])
			}
		}
		if have.allows(roleNone) {
			t.Errorf("%q may do what no role was named for", have)
		}
	}
}

func with(header ...string) context.Context {
	md := metadata.MD{}
	for _, h := range header {
		md.Append("authorization", h)
	}
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestAuthorize(t *testing.T) {
	method := quotav1.AdminService_CreateTenant_FullMethodName
	keys := []credential{
		{id: "good", role: roleOperator, hash: sha256.Sum256([]byte("good-secret"))},
		{id: "gone", role: roleAdmin, hash: sha256.Sum256([]byte("gone-secret")), expires: time.Now().Add(-time.Second)},
		{id: "soon", role: roleAdmin, hash: sha256.Sum256([]byte("soon-secret")), expires: time.Now().Add(time.Hour)},
		{id: "any", role: roleAgent, hash: sha256.Sum256([]byte("any-secret"))},
		{id: "odd", role: roleNone, hash: sha256.Sum256([]byte("odd-secret"))},
	}
	bootstrap := &credential{id: "bootstrap", role: roleAdmin, hash: sha256.Sum256([]byte("boot-secret"))}
	for _, c := range []struct {
		what string
		ring *Keyring
		load []credential // nil: the store was not read
		ctx  context.Context
		want error
	}{
		{"a good key", &Keyring{mayOpen: true}, keys, with("Bearer good-secret"), nil},
		{"a good key, scheme in lower case", &Keyring{}, keys, with("bearer good-secret"), nil},
		{"no key", &Keyring{mayOpen: true}, keys, with(), fault.ErrUnauthenticated},
		{"another key", &Keyring{mayOpen: true}, keys, with("Bearer bad-secret"), fault.ErrUnauthenticated},
		{"two keys", &Keyring{}, keys, with("Bearer good-secret", "Bearer good-secret"), fault.ErrUnauthenticated},
		{"another scheme", &Keyring{}, keys, with("Basic good-secret"), fault.ErrUnauthenticated},
		{"a key that has ended", &Keyring{}, keys, with("Bearer gone-secret"), fault.ErrUnauthenticated},
		{"a key that will end", &Keyring{}, keys, with("Bearer soon-secret"), nil},
		{"an agent's key of no agent", &Keyring{}, keys, with("Bearer any-secret"), fault.ErrUnauthenticated},
		{"a role of the future", &Keyring{}, keys, with("Bearer odd-secret"), fault.ErrDenied},
		{"the bootstrap key", &Keyring{bootstrap: bootstrap}, keys, with("Bearer boot-secret"), nil},
		{"the bootstrap key before the store was read", &Keyring{bootstrap: bootstrap}, nil, with("Bearer boot-secret"), nil},
		{"a good key before the store was read", &Keyring{mayOpen: true}, nil, with("Bearer good-secret"), fault.ErrUnavailable},
		{"no key before the store was read", &Keyring{mayOpen: true}, nil, with(), fault.ErrUnauthenticated},
		{"no key where none was made, on loopback", &Keyring{mayOpen: true}, []credential{}, with(), nil},
		{"no key where none was made, beyond loopback", &Keyring{}, []credential{}, with(), fault.ErrUnauthenticated},
		{"no key where none was made, with a bootstrap key", &Keyring{mayOpen: true, bootstrap: bootstrap}, []credential{}, with(), fault.ErrUnauthenticated},
		{"no key where all have ended", &Keyring{mayOpen: true}, keys[1:2], with(), fault.ErrUnauthenticated},
		{"no key, insecurely open", &Keyring{insecureOpen: true}, keys, with(), nil},
	} {
		if c.load != nil {
			c.ring.replace(c.load, len(c.load) > 0)
		}
		_, err := c.ring.authorize(c.ctx, method)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", c.what, err, c.want)
		}
	}
}

// An agent's key speaks for the agents that it names only.
func TestSpeaksFor(t *testing.T) {
	for _, c := range []struct {
		p     Principal
		agent string
		want  bool
	}{
		{Principal{agents: named(t, "gw-1")}, "gw-1", true},
		{Principal{agents: named(t, "gw-1")}, "gw-2", false},
		{Principal{agents: named(t, "gw-*")}, "gw-2", true},
		{Principal{agents: named(t, "gw-*")}, "edge-2", false},
		{Principal{}, "gw-2", false},
		{Principal{Open: true, agents: named(t, "gw-1")}, "gw-2", true},
	} {
		err := SpeaksFor(WithPrincipal(context.Background(), c.p), c.agent)
		if (err == nil) != c.want {
			t.Errorf("%+v for %s: got %v, want allowed %t", c.p, c.agent, err, c.want)
		}
	}
}

func named(t *testing.T, pattern string) limit.Names {
	n, err := limit.ParseNames([]string{pattern}, limit.ValidAgent)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A panic ends the call, not the server.
func TestPanicIsAnAnswer(t *testing.T) {
	g, err := NewGate(&Keyring{insecureOpen: true}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: quotav1.AdminService_GetVersion_FullMethodName}
	_, err = g.Unary(context.Background(), &quotav1.GetVersionRequest{}, info, func(context.Context, any) (any, error) { panic("boom") })
	if status.Code(err) != codes.Internal {
		t.Errorf("got %v, want an internal error", err)
	}
}
