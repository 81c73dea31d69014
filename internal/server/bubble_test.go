package server_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/server"
	"github.com/f4ee788f/quota/internal/server/judge"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// world is a whole embedded server with its gateways in a bubble, where time is virtual: what is decided
// depends on nothing that the machine does besides.
type world struct {
	t       *testing.T
	leases  lease.Store
	ledger  worldLedger
	policy  *sqlstore.Store
	judge   *judge.Judge
	metrics *prometheus.Registry
	// webhooks is how webhooks are reached; nil refuses all.
	webhooks http.RoundTripper

	lis  atomic.Pointer[bufconn.Listener] // gateways dial while a server starts anew
	stop func()                           // the server; its stores stay

	dialing bubbled.Dialing
	conns   []*grpc.ClientConn
}

// worldLedger is a ledger with its books.
type worldLedger interface {
	ledger.Store
	Books() ledger.Books
	Close() error
}

// inWorld runs f at a time, with a policy in force.
func inWorld(t *testing.T, at time.Time, text string, f func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOn(t, nil, at, text, f)
}

// inBothWorlds runs f on each engine. Postgres is outside of the bubble: time stands while it is asked.
func inBothWorlds(t *testing.T, at time.Time, text string, f func(t *testing.T, w *world)) {
	t.Run("SQLite", func(t *testing.T) { inWorldOn(t, nil, at, text, f) })
	t.Run("Postgres", func(t *testing.T) {
		pg := testenv.Postgres(t)
		if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
			t.Fatal(err)
		}
		inWorldOn(t, pg, at, text, f)
	})
}

// inWorldOn is inWorld on a database that has the schema; SQLite without one.
func inWorldOn(t *testing.T, pg *testenv.PG, at time.Time, text string, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		w := &world{t: t, leases: memstore.New(), dialing: bubbled.NewDialing()}
		var judging *judge.Judge
		options := ledger.Options{Accept: func(agent string, r ledger.Row) error { return judging.Accept(agent, r) }}
		if pg == nil {
			l, err := sqliteledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), options)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			w.ledger, w.policy = l, sqlstore.New(l.DB(), sqlstore.SQLite, nil)
		} else {
			options.Now = time.Now // the bubble's, and not the database's
			l, err := pgledger.Open(t.Context(), pg.AppURL(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			db := stdlib.OpenDBFromPool(l.Pool())
			defer db.Close()
			w.ledger, w.policy = l, sqlstore.New(db, sqlstore.Postgres, nil)
		}
		judging = judge.New(w.policy)
		w.judge = judging
		w.apply(text)
		w.start()
		defer func() { w.stop() }()
		defer func() {
			for _, c := range w.conns {
				_ = c.Close()
			}
		}()
		f(t, w)
	})
}

// apply makes a document the next version.
func (w *world) apply(text string) {
	w.t.Helper()
	if _, err := w.policy.Apply(w.t.Context(), "ann", w.parse(text), 0, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) parse(text string) *policy.Document {
	w.t.Helper()
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return doc
}

// start serves the stores.
func (w *world) start() {
	w.t.Helper()
	w.metrics = prometheus.NewRegistry()
	lis := bufconn.Listen(1 << 20)
	w.lis.Store(lis)
	s, err := server.New(server.Config{
		Leases: w.leases, Ledger: w.ledger, Policy: w.policy, Books: w.ledger.Books(), Judge: w.judge, GRPC: lis, HTTP: bufconn.Listen(1 << 20),
		LeaseStoreName: "memory", LedgerName: "sqlite", Registerer: w.metrics,
		Webhooks: &refusing{w},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the server ended with %v", err)
		}
		w.stop = func() {}
	}
}

// another serves the stores as well, to whoever connects from now on; the first server goes on for those that have.
// stop ends it.
func (w *world) another() (stop func()) {
	w.t.Helper()
	first := w.stop
	w.start()
	second := w.stop
	w.stop = first
	return func() {
		second()
		w.stop = first
	}
}

// refusing hands requests to what the test has for webhooks.
type refusing struct{ w *world }

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.w.webhooks == nil {
		return nil, errors.New("no webhook is there")
	}
	return r.w.webhooks.RoundTrip(req)
}

// admin is what operators call; its connection ends with f.
func (w *world) admin() quotav1.AdminServiceClient {
	w.t.Helper()
	return quotav1.NewAdminServiceClient(w.dial())
}

func (w *world) connect(ctx context.Context) (net.Conn, error) {
	return w.dialing.Dial(ctx, w.lis.Load())
}

// dial is a connection of an operator's, which ends with f.
func (w *world) dial() *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:bubble", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.connect(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	w.conns = append(w.conns, conn)
	return conn
}

// gateway is a client, which the test closes.
func (w *world) gateway(id string, options ...client.Option) *client.Client {
	w.t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return w.connect(ctx) }
	c, err := client.Dial(w.t.Context(), "passthrough:bubble", append([]client.Option{client.WithDialer(dial), client.WithAgent(id)}, options...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// cut makes a gateway's network one that loses everything while the switch is on.
func (w *world) cut(on *atomic.Bool) client.Option {
	return client.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		if on.Load() {
			return nil, errors.New("cut")
		}
		c, err := w.connect(ctx)
		return &cutConn{c, on}, err
	})
}

type cutConn struct {
	net.Conn
	on *atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.on.Load() {
		_ = c.Close()
		return 0, errors.New("cut")
	}
	return c.Conn.Write(b)
}

// shut closes gateways, so that all that they admitted is settled.
func (w *world) shut(clients ...*client.Client) {
	w.t.Helper()
	for _, c := range clients {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := c.Close(ctx); err != nil {
			w.t.Errorf("close: %v", err)
		}
		cancel()
	}
}

func acme(more ...client.Attribute) []client.Attribute {
	return append([]client.Attribute{client.Tenant("acme")}, more...)
}

// allow has each gateway in turn ask n times, and returns how many requests were admitted.
func allow(n int, attributes []client.Attribute, clients ...*client.Client) (admitted int64) {
	for range n {
		for _, c := range clients {
			if c.Allow(context.Background(), attributes...).Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// settled is what the ledger has of acme's usage by one limit, by attributes.
func (w *world) settled(q ledger.Query) map[string]ledger.UsageRow {
	w.t.Helper()
	q.Tenant, q.By = "acme", ledger.ByAttribute
	u, err := w.ledger.Usage(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	rows := make(map[string]ledger.UsageRow)
	for _, r := range u.Rows {
		rows[strings.TrimSuffix(r.Limit+" "+r.Attributes, " ")] = r
	}
	return rows
}
