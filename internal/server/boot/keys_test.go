package boot_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// An open server's first key closes it: one that could not make another would lock everybody out.
func TestTheFirstKeyIsAnAdmins(t *testing.T) {
	n := start(t, embedded(t, policyText))
	for role, agent := range map[string]string{"viewer": "", "operator": "", "backfill": "", "agent": "gw-1"} {
		_, err := n.admin().CreateKey(t.Context(), &quotav1.CreateKeyRequest{Role: role, Agent: agent})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the first key must be an admin's") {
			t.Errorf("a first key of the role %s: got %v, want a refusal that says so", role, err)
		}
	}
	n.key = n.newKey("admin", "").Secret
	n.newKey("viewer", "")
}

// A revoked key, one that ends by itself and one that was rotated without an overlap end what they opened.
func TestStreamsEndWithTheirKeys(t *testing.T) {
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	n := start(t, c)
	key := func(expires time.Duration) *quotav1.CreateKeyResponse {
		req := &quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-1"}
		if expires > 0 {
			req.ExpiresMs = time.Now().Add(expires).UnixMilli()
		}
		resp, err := n.admin().CreateKey(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	watch := func(secret string) *watcher {
		as := *n
		as.key = secret
		w := as.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
		w.next("the policy", version(1))
		return w
	}
	ended := func(what string, w *watcher) {
		t.Helper()
		select {
		case err := <-w.end:
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: the stream ended with %v, want Unauthenticated", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: the stream goes on", what)
		}
	}
	revoked, rotated, overlaps, expires := key(0), key(0), key(0), key(3*time.Second)
	ofRevoked, ofRotated, ofOverlaps, ofExpires := watch(revoked.Secret), watch(rotated.Secret), watch(overlaps.Secret), watch(expires.Secret)
	viewer := n.newKey("viewer", "")
	alerts, err := quotav1.NewAlertServiceClient(n.dial(viewer.Secret)).WatchAlerts(t.Context(), &quotav1.WatchAlertsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{revoked.Key.Id, viewer.Key.Id} {
		if _, err := n.admin().RevokeKey(t.Context(), &quotav1.RevokeKeyRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	ended("a revoked key", ofRevoked)
	if _, err := alerts.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked viewer's alerts end with %v, want Unauthenticated", err)
	}
	if _, err := n.admin().RotateKey(t.Context(), &quotav1.RotateKeyRequest{Id: rotated.Key.Id}); err != nil {
		t.Fatal(err)
	}
	ended("a key that was rotated", ofRotated)
	next, err := n.admin().RotateKey(t.Context(), &quotav1.RotateKeyRequest{Id: overlaps.Key.Id, OverlapMs: 3600_000})
	if err != nil {
		t.Fatal(err)
	}
	watch(next.Secret)
	ended("a key that ended", ofExpires)
	select {
	case err := <-ofOverlaps.end:
		t.Errorf("a key beside its successor: the stream ended with %v", err)
	default:
	}
}

// buffer is a log that is read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Wrong keys are told of once, without the secret, and who gives many cannot go on guessing the bootstrap key. Stored
// keys cannot be guessed: they go on from the same address.
func TestWrongKeysAreLoggedAndSlowed(t *testing.T) {
	var log buffer
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	n := start(t, c)
	stored := n.newKey("viewer", "").Secret
	gone := n.newKey("viewer", "")
	if _, err := n.admin().RevokeKey(t.Context(), &quotav1.RevokeKeyRequest{Id: gone.Key.Id}); err != nil {
		t.Fatal(err)
	}
	call := func(key string) codes.Code {
		_, err := quotav1.NewAdminServiceClient(n.dial(key)).GetVersion(t.Context(), &quotav1.GetVersionRequest{})
		return status.Code(err)
	}
	if got := call(gone.Secret); got != codes.Unauthenticated {
		t.Errorf("a revoked key: got %s", got)
	}
	guesser := n.dial("a-guess")
	for range 40 {
		_, _ = quotav1.NewAdminServiceClient(guesser).GetVersion(t.Context(), &quotav1.GetVersionRequest{})
	}
	if code, _ := n.call("GET", "/v1/version", "another-guess", ""); code != 401 {
		t.Errorf("a guess over REST: got %d", code)
	}
	if got := call(adminKey); got != codes.Unauthenticated {
		t.Errorf("the bootstrap key after 40 wrong ones: got %s, want Unauthenticated", got)
	}
	if got := call(stored); got != codes.OK {
		t.Errorf("a stored key from the same address: got %s, want OK", got)
	}
	text := log.String()
	if strings.Count(text, "wrong keys") != 1 || !strings.Contains(text, "key="+gone.Key.Id) || !strings.Contains(text, "from=127.0.0.1") || strings.Contains(text, "a-guess") || strings.Contains(text, gone.Secret) {
		t.Errorf("the log is\n%s\nwant one line of wrong keys, with the key's id, and no secret", text)
	}
	if n.metric("quota_server_wrong_keys_total") < 40 {
		t.Errorf("the metric counts %g, want 40 and more", n.metric("quota_server_wrong_keys_total"))
	}
}

// Authorities of client certificates are read again when their file changes, by both doors.
func TestClientAuthoritiesAreRenewed(t *testing.T) {
	of, old, next := newAuthority(t), newAuthority(t), newAuthority(t)
	_, _, certFile, keyFile := of.sign("server")
	c := embedded(t, policyText)
	c.TLSCert, c.TLSKey, c.TLSClientCA = certFile, keyFile, filepath.Join(t.TempDir(), "clients.crt")
	write := func(a *authority, at time.Time) {
		t.Helper()
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
		if err := os.WriteFile(c.TLSClientCA, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(c.TLSClientCA, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(old, time.Now().Add(-time.Hour))
	n := start(t, c)
	pool := x509.NewCertPool()
	pool.AddCert(of.cert)
	call := func(a *authority) codes.Code {
		_, _, certFile, keyFile := a.sign("client")
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = quotav1.NewAdminServiceClient(conn).GetVersion(t.Context(), &quotav1.GetVersionRequest{})
		return status.Code(err)
	}
	if was, is := call(old), call(next); was != codes.OK || is != codes.Unavailable {
		t.Errorf("at first: %s and %s, want OK and Unavailable", was, is)
	}
	write(next, time.Now())
	eventually(t, "the new authority's clients are let in", func() bool { return call(next) == codes.OK })
	if got := call(old); got != codes.Unavailable {
		t.Errorf("the old authority's: got %s, want Unavailable", got)
	}
}

// Where certificates name agents, a key alone does not make one.
func TestCertificatesNameAgents(t *testing.T) {
	ca := newAuthority(t)
	_, _, certFile, keyFile := ca.sign("server")
	_, _, clientCert, clientKey := ca.sign("gw-1")
	c := embedded(t, policyText)
	c.TLSCert, c.TLSKey, c.TLSClientCA, c.CertificateAgents = certFile, keyFile, filepath.Join(ca.dir, "ca.crt"), true
	n := start(t, c)
	pair, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for agent, want := range map[string]codes.Code{"gw-1": codes.OK, "gw-2": codes.PermissionDenied} {
		if _, err := quotav1.NewLeaseServiceClient(conn).Renew(t.Context(), &quotav1.RenewRequest{Agent: agent, Epoch: 1}); status.Code(err) != want {
			t.Errorf("agent %s with the certificate of gw-1: got %v, want %s", agent, err, want)
		}
	}
}
