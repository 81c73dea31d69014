package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
	restv1 "github.com/f4ee788f/quota/proto/rest/quota/v1"
)

const (
	// maxBody bounds a REST request: a policy document in JSON, escapes included.
	maxBody = 8 << 20
	// Timeout bounds a REST call.
	Timeout = 30 * time.Second
)

// Config is what is served.
type Config struct {
	Calls    *InProcess                       // answers REST
	Serve    serveFunc                        // the gate, for files
	Export   exportFunc                       // makes them
	Why      func() (reasons any, ready bool) // why the server is not ready, as JSON has it
	Gatherer prometheus.Gatherer              // what /metrics shows
	Keys     Keys
	// Certificates has REST be served only with one.
	Certificates bool
}

// Keys is who may call: see authn.Keyring.
type Keys interface {
	Open() bool           // callers are let in without a key
	InsecurelyOpen() bool // and always will be
}

// NewHandler serves health, metrics and REST. Health and metrics need no key, because they tell nothing of tenants.
// Where client certificates are asked for, REST is served only with one.
func NewHandler(c Config) (http.Handler, error) {
	ctx, download := context.Background(), download(c.Serve, c.Export)
	useQueryParser()
	gateway := runtime.NewServeMux(
		runtime.WithRoutingErrorHandler(routingError),
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false}, // a misspelt field is refused, not ignored
		}),
		runtime.WithIncomingHeaderMatcher(func(header string) (string, bool) {
			return "", false // authorization is always passed on; nothing else is meant for us
		}),
	)
	if err := restv1.RegisterAdminServiceHandlerClient(ctx, gateway, quotav1.NewAdminServiceClient(c.Calls)); err != nil {
		return nil, err
	}
	if err := restv1.RegisterUsageServiceHandlerClient(ctx, gateway, quotav1.NewUsageServiceClient(c.Calls)); err != nil {
		return nil, err
	}
	if err := restv1.RegisterLedgerServiceHandlerClient(ctx, gateway, quotav1.NewLedgerServiceClient(c.Calls)); err != nil {
		return nil, err
	}
	if err := restv1.RegisterStatementServiceHandlerClient(ctx, gateway, quotav1.NewStatementServiceClient(c.Calls)); err != nil {
		return nil, err
	}
	if err := restv1.RegisterAlertServiceHandlerClient(ctx, gateway, quotav1.NewAlertServiceClient(c.Calls)); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons, ready := c.Why()
		code := http.StatusOK
		if !ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, struct {
			Ready   bool `json:"ready"`
			Reasons any  `json:"reasons"`
		}{ready, reasons})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{}))
	// A web page must not reach the services through its reader's browser. It could send a request to this address.
	// While no key is asked for, it could also point a name of its own here.
	sameOrigin := http.NewCrossOriginProtection()
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			r = r.WithContext(peer.NewContext(r.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(at)}))
		}
		if err := sameOrigin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, fmt.Errorf("%w: this is asked by a web page from another origin", fault.ErrDenied))
			return
		}
		if c.Keys.Open() && !c.Keys.InsecurelyOpen() && !loopbackHost(r.Host) {
			refuse(w, http.StatusForbidden, fmt.Errorf(
				"%w: host %q: a server that is open answers only to localhost and loopback addresses, until the first key is made", fault.ErrDenied, r.Host))
			return
		}
		if c.Certificates && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			refuse(w, http.StatusUnauthorized, fmt.Errorf("%w: a client certificate is needed", fault.ErrUnauthenticated))
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == "/v1/usage/export" {
			download.ServeHTTP(w, r) // a stream, which takes as long as it is long
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), Timeout)
		defer cancel()
		ctx, written := authn.WithTurn(ctx)
		defer written()
		r = withQuery(r.WithContext(ctx))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		gateway.ServeHTTP(w, r)
	})
	// The mux would redirect an unclean path to the clean one, of another tenant. No id has an unclean path.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p != "/" && !limit.CleanSegments(strings.TrimPrefix(p, "/")) {
			refuse(w, http.StatusBadRequest, fmt.Errorf("%w: the path %s has an empty, . or .. element; no id has any", fault.ErrInvalid, limit.Quote(p)))
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// loopbackHost reports whether a request was meant for this machine: by an address, or by the name localhost, which
// nobody else can own.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// refuse answers a request that does not reach the services, in the shape of their errors.
func refuse(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
		Details []string   `json:"details"`
	}{status.Code(wire.Error(err)), status.Convert(wire.Error(err)).Message(), []string{}})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the caller has gone away; nobody is left to be told
}
