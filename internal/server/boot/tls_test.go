package boot_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key, _, _ = a.sign("ca")
	return a
}

// sign makes a certificate, the authority's own first, and writes its files.
func (a *authority) sign(name string) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	a.t.Helper()
	must := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	a.next++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.ExtKeyUsage = true, true, nil
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	certFile, keyFile := filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), 0o600))
	return cert, key, certFile, keyFile
}

// With a certificate both doors speak TLS; with authorities of clients, REST and
// gRPC ask for a certificate, and probes need none. A renewed certificate is served.
func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	_, _, certFile, keyFile := ca.sign("server")
	_, _, clientCert, clientKey := ca.sign("client")
	c := embedded(t, policyText)
	c.TLSCert, c.TLSKey, c.TLSClientCA = certFile, keyFile, filepath.Join(ca.dir, "ca.crt")
	n := start(t, c)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	pair, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		who          string
		certificates []tls.Certificate
		want         codes.Code
		rest         int
	}{
		{"with a certificate", []tls.Certificate{pair}, codes.OK, http.StatusOK},
		{"without a certificate", nil, codes.Unavailable, http.StatusUnauthorized},
	} {
		config := &tls.Config{RootCAs: pool, Certificates: k.certificates}
		conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = quotav1.NewAdminServiceClient(conn).GetVersion(t.Context(), &quotav1.GetVersionRequest{})
		conn.Close()
		if status.Code(err) != k.want {
			t.Errorf("gRPC %s: got %v, want %s", k.who, err, k.want)
		}
		pages := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/v1/version": k.rest} {
			resp, err := pages.Get("https://" + n.HTTPAddr() + path)
			if err != nil {
				t.Fatalf("%s %s: %v", path, k.who, err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s %s: got %d, want %d", path, k.who, resp.StatusCode, want)
			}
		}
	}
	// An agent that is given several servers holds each certificate to its address.
	agent, err := client.Dial(t.Context(), n.GRPCAddr()+", "+n.GRPCAddr(), client.WithAgent("edge"), client.WithFirstWait(patience),
		client.WithTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := agent.Stats().PolicyVersion; got != 1 {
		t.Errorf("an agent with a list of servers: got policy version %d, want 1", got)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Error(err)
	}
	renewed, _, _, _ := ca.sign("server")
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(certFile, later, later); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renewed certificate is served", func() bool {
		conn, err := tls.Dial("tcp", n.HTTPAddr(), &tls.Config{RootCAs: pool})
		if err != nil {
			return false
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Cmp(renewed.SerialNumber) == 0
	})
}
