package alert_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/migrations"
)

var secret = bytes.Repeat([]byte("s"), 32)

// endpoint is a webhook: how it answers, and what it got.
type endpoint struct {
	mu     sync.Mutex
	got    []got
	under  int // way at once
	most   int
	status int
	delay  time.Duration
	lose   bool // the answer
}

type got struct{ id, body string }

func (e *endpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	// As a receiver checks it, by the specification.
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("webhook-signature") != want {
		return nil, errors.New("the signature is wrong")
	}
	e.mu.Lock()
	e.got = append(e.got, got{req.Header.Get("webhook-id"), string(body)})
	e.under++
	e.most = max(e.most, e.under)
	status, delay, lose := e.status, e.delay, e.lose
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.under--
	}()
	if delay > 0 { // else Go 1.26 may crash: a timer that has run out, in a bubble and raced
		select {
		case <-time.After(delay):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if lose {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader("thanks"))}, nil
}

func (e *endpoint) set(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

func (e *endpoint) attempts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got)
}

// network reaches endpoints by their hosts.
type network map[string]*endpoint

func (n network) RoundTrip(req *http.Request) (*http.Response, error) {
	return n[req.URL.Hostname()].RoundTrip(req)
}

type bed struct {
	t     *testing.T
	store *sqlstore.Store
	sent  map[string]int
	mu    sync.Mutex
	names []string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(OFF)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "quota.db")+"?"+q.Encode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if err := migrations.SQLite(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return &bed{t: t, store: sqlstore.New(db, sqlstore.SQLite, nil), sent: map[string]int{}, names: []string{"a", "b"}}
}

func (b *bed) deliverer(n http.RoundTripper) *alert.Deliverer {
	return &alert.Deliverer{
		Store: b.store, Transport: n, Outside: n, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Webhooks: func() (all []policy.Webhook, known bool) {
			for _, name := range b.names {
				all = append(all, policy.Webhook{Name: name, URL: "https://" + name + "/"})
			}
			return all, true
		},
		Secrets: func(policy.Webhook) ([][]byte, error) { return [][]byte{secret}, nil },
		Sent: func(result string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.sent[result]++
		},
	}
}

// raise keeps n events of tenants for webhooks.
func (b *bed) raise(n int, tenant string, webhooks ...string) {
	b.t.Helper()
	for range n {
		id := fmt.Sprintf("alr_%s_%d", tenant, time.Now().UnixNano())
		time.Sleep(time.Millisecond)
		if _, err := b.store.Raise(b.t.Context(), []alert.Found{{Tenant: tenant, Events: []alert.Event{{ID: id, Kind: alert.KindQuota, Alert: "x", Tenant: tenant, Period: id, Webhooks: webhooks}}}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// deliver runs rounds for a time, a second apart.
func (b *bed) deliver(d *alert.Deliverer, for_ time.Duration) {
	b.t.Helper()
	for until := time.Now().Add(for_); time.Now().Before(until); time.Sleep(time.Second) {
		if err := d.Round(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	d.Wait()
}

func (b *bed) states(webhook string) (text string) {
	b.t.Helper()
	all, err := b.store.Events(b.t.Context(), alert.Query{Forward: true, N: 100})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range all {
		e, err := b.store.Event(b.t.Context(), e.Number)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, d := range e.Deliveries {
			if d.Webhook == webhook {
				text += fmt.Sprintf("%s/%d ", d.State, d.Status)
			}
		}
	}
	return strings.TrimSpace(text)
}

// One endpoint that is slow holds up no other; its own are bounded, and a tenant's are in order.
func TestASlowWebhookHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a, slow := &endpoint{status: 200}, &endpoint{status: 200, delay: time.Minute}
		d := b.deliverer(network{"a": a, "b": slow})
		b.raise(5, "acme", "a", "b")
		for i := range 20 {
			b.raise(1, fmt.Sprint("t", i), "a", "b")
		}
		if err := d.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := a.attempts(); got != 25 {
			t.Errorf("beside a slow one: %d of 25 delivered", got)
		}
		var order []string
		for _, g := range a.got {
			if strings.HasPrefix(g.id, "alr_acme_") {
				order = append(order, g.id)
			}
		}
		if len(order) != 5 || !slices.IsSorted(order) {
			t.Errorf("a tenant's: %q, want them in order", order)
		}
		b.deliver(d, time.Minute)
		if slow.most > 4 || slow.most < 2 || strings.Contains(b.states("b"), "delivered") {
			t.Errorf("the slow one: %d at once, %s", slow.most, b.states("b"))
		}
		slow.set(func() { slow.delay = 9 * time.Second })
		b.deliver(d, 10*time.Minute)
		if got := b.states("b"); strings.Count(got, "delivered/200") != 25 {
			t.Errorf("the slow one, in the end: %s", got)
		}
	})
}

// A webhook that fails is tried by one delivery at a time, with waits that double as far as five minutes. The others
// wait for it, however long that is, and come in their order when it works again. An event's id
// and its bytes are the same every time.
func TestAFailingWebhookUsesUpNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a := &endpoint{status: 503}
		d := b.deliverer(network{"a": a})
		b.raise(20, "acme", "a")
		b.deliver(d, 10*time.Second)
		if n := a.attempts(); n < 2 || n > 4 {
			t.Errorf("%d attempts in ten seconds", n)
		}
		for until := time.Now().Add(3 * 24 * time.Hour); time.Now().Before(until); time.Sleep(time.Minute) {
			if err := d.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.Wait()
		}
		if n := a.attempts(); n < 3*24*12*9/10 || n > 3*24*12*11/10 {
			t.Errorf("%d attempts in three days, want one every five minutes", n)
		}
		bodies := map[string]string{}
		for _, g := range a.got {
			if was, ok := bodies[g.id]; ok && was != g.body {
				t.Errorf("another time: %s, first: %s", g.body, was)
			}
			bodies[g.id] = g.body
		}
		if len(bodies) != 20 {
			t.Errorf("%d of 20 were tried: one that is refused alone would keep all back", len(bodies))
		}
		pending, dead, err := b.store.Count(t.Context())
		if err != nil || pending != 20 || dead != 0 {
			t.Errorf("after three days: %d wait, %d dead, %v", pending, dead, err)
		}
		outages, err := b.store.Outages(t.Context())
		if err != nil || len(outages) != 1 || outages[0].Webhook != "a" || !strings.Contains(outages[0].Error, "503") {
			t.Errorf("outages: %+v, %v", outages, err)
		}
		if e, err := b.store.Event(t.Context(), 7); err != nil || !strings.Contains(e.Deliveries[0].Error, "webhook a has failed") || e.Deliveries[0].Next != outages[0].Next {
			t.Errorf("one that waits: %+v, %v", e.Deliveries, err)
		}
		a.set(func() { a.status, a.got = 204, nil })
		b.deliver(d, 6*time.Minute)
		if got := b.states("a"); strings.Count(got, "delivered/204") != 20 || a.attempts() != 20 {
			t.Errorf("when it works again: %s, %d attempts", got, a.attempts())
		}
		var order []string
		for _, g := range a.got[1:] { // after the one that found it working
			order = append(order, g.id)
		}
		if !slices.IsSorted(order) {
			t.Errorf("came as %q, want them in order", order)
		}
		if outages, err = b.store.Outages(t.Context()); err != nil || len(outages) != 0 {
			t.Errorf("outages after it: %+v, %v", outages, err)
		}
		// What waited has its whole time: a failure now is the first of its day.
		a.set(func() { a.status = 503 })
		b.raise(1, "acme", "a")
		b.deliver(d, 3*time.Second)
		if got := b.states("a"); !strings.HasSuffix(got, "pending/503") {
			t.Errorf("a failure after it: %s", got)
		}
		// An operator need not wait for the next attempt.
		b.deliver(d, time.Hour)
		a.set(func() { a.status = 204 })
		if _, err := b.store.Retry(t.Context(), "ann", 21, ""); err != nil {
			t.Fatal(err)
		}
		b.deliver(d, 2*time.Second)
		if got := b.states("a"); strings.Count(got, "delivered/204") != 21 {
			t.Errorf("begun anew: %s", got)
		}
	})
}

// refusing is an endpoint that takes all but one event.
type refusing struct {
	*endpoint
	id string
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.endpoint.RoundTrip(req)
	if err == nil && req.Header.Get("webhook-id") == r.id {
		resp.StatusCode, resp.Status = 400, "400"
	}
	return resp, err
}

// An event that a webhook refuses while it takes others is tried for a day, and then listed as dead
// until somebody begins it anew. It keeps no other back for longer than an attempt at it takes its turn.
func TestAnEventThatIsRefusedIsTriedForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a := &refusing{endpoint: &endpoint{status: 200}}
		d := b.deliverer(a)
		b.names = []string{"a"}
		b.raise(1, "acme", "a")
		first, err := b.store.Event(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		a.id = first.ID
		for i, until := 0, time.Now().Add(30*time.Hour); time.Now().Before(until); i++ {
			if i%10 == 0 {
				b.raise(1, fmt.Sprint("other", i), "a")
			}
			if err := d.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.Wait()
			time.Sleep(time.Minute)
		}
		b.deliver(d, 6*time.Minute)
		if pending, dead, err := b.store.Count(t.Context()); err != nil || pending != 0 || dead != 1 || b.sent[alert.Dead] != 1 {
			t.Errorf("after a day: %d wait, %d dead, %v", pending, dead, err)
		}
		list, err := b.store.Events(t.Context(), alert.Query{State: alert.Dead, N: 10})
		if err != nil || len(list) != 1 || list[0].Number != 1 {
			t.Errorf("listed as dead: %+v, %v", list, err)
		}
		a.id = ""
		if _, err := b.store.Retry(t.Context(), "ann", 1, ""); err != nil {
			t.Fatal(err)
		}
		b.deliver(d, 2*time.Second)
		if _, dead, err := b.store.Count(t.Context()); err != nil || dead != 0 {
			t.Errorf("begun anew: %d dead, %v", dead, err)
		}
		if _, err := b.store.Retry(t.Context(), "ann", 1, "a"); !errors.Is(err, policystore.ErrInvalid) {
			t.Errorf("what is delivered, again: %v", err)
		}
	})
}

// Redirects are not followed, 410 ends it at once, and a webhook that the policy drops
// takes nothing more.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a, gone := &endpoint{status: 302}, &endpoint{status: 410}
		d := b.deliverer(network{"a": a, "b": gone})
		b.raise(1, "acme", "a", "b", "c")
		b.deliver(d, 2*time.Second)
		if b.states("a") != "pending/302" || b.states("b") != "dead/410" || b.states("c") != "pending/0" || a.attempts() != 1 || gone.attempts() != 1 {
			t.Errorf("a %s, b %s, c %s", b.states("a"), b.states("b"), b.states("c"))
		}
		b.names = []string{"b"}
		b.deliver(d, 61*time.Second)
		if a, c := b.states("a"), b.states("c"); a != "dead/302" || c != "dead/0" {
			t.Errorf("not in the policy for a minute: %s, %s", a, c)
		}
		d.Secrets = func(policy.Webhook) ([][]byte, error) { return nil, errors.New("no secret") }
		b.raise(1, "acme", "b")
		b.deliver(d, 2*time.Second)
		if got := b.states("b"); got != "dead/410 pending/0" || gone.attempts() != 1 {
			t.Errorf("without a secret: %s", got)
		}
	})
}

// Whoever is killed between an attempt and its record, or loses the answer, has it
// delivered again with the same id; two who lead at once deliver it once.
func TestDeliveriesSurviveTheirLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a := &endpoint{status: 200, delay: 5 * time.Second}
		d := b.deliverer(network{"a": a})
		b.raise(1, "acme", "a")
		ctx, kill := context.WithCancel(t.Context())
		if err := d.Round(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		kill()
		d.Wait()
		if got := b.states("a"); got != "pending/0" || a.attempts() != 1 {
			t.Errorf("killed under way: %s, %d attempts", got, a.attempts())
		}
		one, two := b.deliverer(network{"a": a}), b.deliverer(network{"a": a})
		var both sync.WaitGroup
		for _, d := range []*alert.Deliverer{one, two} {
			both.Go(func() { b.deliver(d, 10*time.Minute) })
		}
		both.Wait()
		if got := b.states("a"); got != "delivered/200" || a.attempts() != 2 || a.got[0] != a.got[1] {
			t.Errorf("by the next: %s, %+v", got, a.got)
		}
		a.set(func() { a.lose = true })
		b.raise(1, "acme", "a")
		b.deliver(one, 8*time.Second)
		a.set(func() { a.lose = false })
		b.deliver(one, time.Minute)
		if got := b.states("a"); got != "delivered/200 delivered/200" || a.got[2].id != a.got[3].id {
			t.Errorf("with an answer lost: %s, %+v", got, a.got)
		}
	})
}

// Over real sockets: an answer without end is not read to it, and loopback is reached only as loopback.
func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 1000 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	b := newBed(t)
	d := b.deliverer(nil)
	d.Transport, d.Outside = alert.NewTransport(alert.Loopback), alert.NewTransport(alert.Public)
	d.Webhooks = func() ([]policy.Webhook, bool) { return []policy.Webhook{{Name: "a", URL: server.URL}}, true }
	b.raise(1, "acme", "a")
	if err := d.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Wait()
	if got := b.states("a"); got != "delivered/200" {
		t.Errorf("over a socket: %s", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := d.Outside.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Error("loopback is reached by a name that is not its own")
	}
}

// A server that stops hands on what it claimed, begun or not: the next one sends it at once,
// and what was not begun has had no attempt.
func TestAServerThatStopsHandsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		slow, fast := &endpoint{status: 200, delay: time.Minute}, &endpoint{status: 200}
		b.raise(8, "acme", "a")
		ctx, stop := context.WithCancel(t.Context())
		d := b.deliverer(network{"a": slow})
		if err := d.Round(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stop()
		d.Wait()
		if got := slow.attempts(); got != 1 {
			t.Errorf("the one that stopped began %d, want 1", got)
		}
		next := b.deliverer(network{"a": fast})
		if err := next.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		next.Wait()
		var attempts, order []int64
		for n := range int64(8) {
			e, err := b.store.Event(t.Context(), n+1)
			if err != nil {
				t.Fatal(err)
			}
			attempts = append(attempts, e.Deliveries[0].Attempts)
			order = append(order, int64(slices.IndexFunc(fast.got, func(g got) bool { return g.id == e.ID })))
		}
		if want := []int64{2, 1, 1, 1, 1, 1, 1, 1}; !slices.Equal(attempts, want) || !slices.Equal(order, []int64{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("attempts %d, want %d; came in order %d", attempts, want, order)
		}
	})
}

// A server leads that has not read the policy yet, or not its newest version: what waits
// is not lost.
func TestDeliveriesOutliveAServerWithoutAPolicy(t *testing.T) {
	b := newBed(t)
	d := b.deliverer(nil)
	b.raise(1, "acme", "a")
	for _, known := range []bool{false, true} {
		d.Webhooks = func() ([]policy.Webhook, bool) { return nil, known }
		if err := d.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.states("a"); got != "pending/0" {
			t.Errorf("known %t: %s", known, got)
		}
	}
}

// Of the webhooks of one host, those that are slow take no connection from another.
func TestASlowWebhookHoldsUpNoOtherOfItsHost(t *testing.T) {
	stop, begun := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			<-stop
		}
	}))
	defer server.Close()
	transport := alert.NewTransport(alert.Loopback)
	transport.ResponseHeaderTimeout = 0 // the slow ones never end
	post := func(ctx context.Context, path string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	var slow sync.WaitGroup
	defer slow.Wait()
	defer close(stop)
	for range 4 { // as many as are under way at once
		slow.Go(func() {
			if err := post(t.Context(), "/slow"); err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := post(ctx, "/fast"); err != nil {
		t.Error(err)
	}
}
