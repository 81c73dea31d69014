package quotactl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/target"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxAnswer bounds one answer: ten thousand rows of usage with their attributes.
const maxAnswer = 64 << 20

// connection is how to reach the server.
type connection struct {
	server  string
	key     string
	keyFlag *pflag.Flag // says whether a key was given, though as nothing
	timeout time.Duration

	tls        bool
	ca         string
	cert       string
	certKey    string
	serverName string

	// dialer reaches servers; nil for the network's own.
	dialer func(context.Context, string) (net.Conn, error)
}

// These are the variables that quotactl reads. No other program reads them: quota-server reads QUOTA_ and a flag's
// name, quota-agent QUOTA_AGENT_ and a flag's name.
const (
	serverVariable  = "QUOTA_SERVER"
	keyVariable     = "QUOTA_KEY"
	caVariable      = "QUOTA_CLIENT_CA"
	certVariable    = "QUOTA_CLIENT_CERT"
	certKeyVariable = "QUOTA_CLIENT_KEY"
)

// flags makes flags of c. A variable that is set, even to nothing, is the flag's default.
func (c *connection) flags(f *pflag.FlagSet, env func(string) (string, bool)) {
	or := func(name, otherwise string) string {
		if v, ok := env(name); ok {
			return v
		}
		return otherwise
	}
	f.StringVar(&c.server, "server", or(serverVariable, "127.0.0.1:7600"), "the server's gRPC `ADDRESS`, HOST:PORT or unix:PATH; several with commas: switches are set on each, everything else is asked of the first that answers (QUOTA_SERVER)")
	// The key's default is left out of the flag, so that --help never prints a secret.
	f.StringVar(&c.key, "key", "", "the bearer `KEY` (QUOTA_KEY, which keeps it out of the process list)")
	c.keyFlag = f.Lookup("key")
	f.DurationVar(&c.timeout, "timeout", 15*time.Second, "how long to wait for the server, a `DURATION`")
	f.BoolVar(&c.tls, "tls", false, "use TLS, and trust the system's certificate authorities unless --tls-ca is given")
	f.StringVar(&c.ca, "tls-ca", or(caVariable, ""), "`FILE` of certificate authorities to trust (PEM); implies --tls (QUOTA_CLIENT_CA)")
	f.StringVar(&c.cert, "tls-cert", or(certVariable, ""), "`FILE` of your client certificate (PEM), for a server that asks for one; implies --tls (QUOTA_CLIENT_CERT)")
	f.StringVar(&c.certKey, "tls-key", or(certKeyVariable, ""), "`FILE` of the client certificate's private key (PEM) (QUOTA_CLIENT_KEY)")
	f.StringVar(&c.serverName, "tls-server-name", "", "the `NAME` that the server's certificate must have, if it is not the host of --server")
}

// bearer puts the key into every call's metadata.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity allows a key on loopback, and behind a proxy that ends TLS.
func (bearer) RequireTransportSecurity() bool { return false }

// servers returns the addresses that were named.
func (c *connection) servers() ([]string, error) {
	if c.timeout <= 0 {
		return nil, misuse("--timeout is %s; it must be above 0", c.timeout)
	}
	servers, err := target.List(c.server)
	if err != nil {
		return nil, misuse("--server %v", err)
	}
	return servers, nil
}

// probeTimeout bounds the check whether one of several servers is there.
const probeTimeout = time.Second

// first returns the first of several servers that can be reached; if none can be, just the first.
func first(ctx context.Context, servers []string) string {
	if len(servers) == 1 {
		return servers[0]
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	for _, server := range servers {
		network, address := "tcp", strings.TrimLeft(strings.TrimPrefix(server, "dns:"), "/")
		if path, ok := strings.CutPrefix(server, "unix:"); ok {
			network, address = "unix", strings.TrimPrefix(path, "//")
		}
		if conn, err := dialer.DialContext(ctx, network, address); err == nil {
			_ = conn.Close() // it was only to know
			return server
		}
	}
	return servers[0]
}

func (c *connection) dial(server string) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if c.tls || c.ca != "" || c.cert != "" || c.certKey != "" {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
	key := c.key
	if !c.keyFlag.Changed {
		key = os.Getenv(keyVariable)
	}
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(key)))
	}
	if c.dialer != nil {
		options = append(options, grpc.WithContextDialer(c.dialer))
	}
	conn, err := grpc.NewClient(server, options...)
	if err != nil {
		return nil, misuse("--server %q: %v", server, err)
	}
	return conn, nil
}

func (c *connection) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s holds no certificate", c.ca)
		}
	}
	if (c.cert == "") != (c.certKey == "") {
		return nil, misuse("--tls-cert and --tls-key go together")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.certKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (c *cli) dial(ctx context.Context) (*grpc.ClientConn, error) {
	if c.opened != nil {
		return c.opened, nil
	}
	servers, err := c.conn.servers()
	if err != nil {
		return nil, err
	}
	conn, err := c.conn.dial(first(ctx, servers))
	if err != nil {
		return nil, err
	}
	c.opened = conn
	return conn, nil
}

// admin calls f with the admin service and a deadline.
func (c *cli) admin(ctx context.Context, f func(context.Context, quotav1.AdminServiceClient) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conn.timeout)
	defer cancel()
	return f(ctx, quotav1.NewAdminServiceClient(conn))
}
