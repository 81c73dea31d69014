package alert

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// lanes is how many deliveries to one webhook are under way at once. All of a tenant's are in one lane, in their
	// order.
	lanes = 4
	// claimed is how many deliveries of a webhook are claimed at a time.
	claimed = 32
	// sendTimeout bounds one attempt, from the connection to the answer's end.
	sendTimeout = 10 * time.Second
	// claimTerm is how long a claim lasts: a whole lane of attempts that all time out.
	claimTerm = claimed*sendTimeout + time.Minute
	// handOnWait bounds how much later a server ends because it gives back its claims.
	handOnWait = 2 * time.Second
	// retryFirst and retryMost bound the wait between attempts, which doubles.
	retryFirst = 5 * time.Second
	retryMost  = time.Hour
	// giveUp is how long a delivery is tried.
	giveUp = 24 * time.Hour
	// orphanAfter is the least age of a delivery that is ended because its webhook is unknown. Another server may know
	// of a new webhook sooner.
	orphanAfter = time.Minute
	// maxAnswer is how many bytes of an answer are read; none are used.
	maxAnswer = 4 << 10
)

// Deliverer sends deliveries to webhooks. A webhook that is slow or away holds up no other.
type Deliverer struct {
	Store Store
	// Webhooks are those of the policy in force; known says whether it was read. Before that a server cannot tell a
	// webhook that is gone from one that is there.
	Webhooks func() (all []policy.Webhook, known bool)
	Secrets  func(policy.Webhook) ([][]byte, error)
	// Transport reaches loopback for webhooks that are on this machine, and Outside all
	// others; see NewTransport.
	Transport, Outside http.RoundTripper
	Now                func() time.Time
	Log                *slog.Logger
	// Sent is told how each attempt ended: delivered, failed or dead.
	Sent func(result string)

	mu      sync.Mutex
	busy    map[string]bool
	running sync.WaitGroup
}

// Round looks for due deliveries, and starts sending them. It does not wait for answers: Wait does.
func (d *Deliverer) Round(ctx context.Context) error {
	webhooks, known := d.Webhooks()
	if !known {
		return nil
	}
	names := make([]string, len(webhooks))
	for i, w := range webhooks {
		names[i] = w.Name
	}
	n, err := d.Store.Orphan(ctx, names, d.Now().Add(-orphanAfter), "the policy in force has no such webhook")
	if err != nil {
		return err
	}
	for range n {
		d.Sent(Dead)
	}
	for _, w := range webhooks {
		d.mu.Lock()
		busy := d.busy[w.Name]
		if d.busy == nil {
			d.busy = make(map[string]bool)
		}
		d.busy[w.Name] = true
		d.mu.Unlock()
		if busy {
			continue
		}
		d.running.Go(func() {
			defer func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.busy, w.Name)
			}()
			for n, err := claimed, error(nil); n == claimed && err == nil && ctx.Err() == nil; {
				if n, err = d.drain(ctx, w); err != nil && ctx.Err() == nil {
					d.Log.Warn("alerts cannot be delivered for now", "webhook", w.Name, "error", err)
				}
			}
		})
	}
	return nil
}

// Wait returns when nothing is under way any more.
func (d *Deliverer) Wait() { d.running.Wait() }

// drain sends some of a webhook's due deliveries, and returns how many.
func (d *Deliverer) drain(ctx context.Context, w policy.Webhook) (int, error) {
	now := d.Now()
	until := now.Add(claimTerm)
	due, err := d.Store.Claim(ctx, w.Name, now, until, claimed)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	var byLane [lanes][]Delivery
	for _, one := range due {
		h := fnv.New32a()
		_, _ = h.Write([]byte(one.Tenant)) // it never fails
		i := h.Sum32() % lanes
		byLane[i] = append(byLane[i], one)
	}
	errs := make([]error, lanes)
	var fails atomic.Bool // the webhook: what is claimed waits as the rest does
	var all sync.WaitGroup
	for i := range byLane {
		all.Go(func() {
			for j, one := range byLane[i] {
				if ctx.Err() != nil || fails.Load() {
					errs[i] = errors.Join(errs[i], d.handOn(ctx, byLane[i][j:], until))
					return
				}
				open, err := d.try(ctx, w, one, until)
				if open {
					fails.Store(true)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	all.Wait()
	if fails.Load() {
		return 0, errors.Join(errs...)
	}
	return len(due), errors.Join(errs...)
}

// try makes one attempt, and keeps its outcome. It reports whether the webhook has an outage: then its deliveries wait,
// and none of them ends.
func (d *Deliverer) try(ctx context.Context, w policy.Webhook, one Delivery, claim time.Time) (open bool, err error) {
	status, err := d.send(ctx, w, &one)
	select {
	case <-ctx.Done():
		// The attempt was cut off. It is not known whether it arrived, so the next leader tries it again at once.
		one.Tried, one.Status, one.Error, one.Next, one.State = d.Now(), 0, "the server stopped before the answer", one.Since, Pending
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOnWait)
		defer cancel()
		return false, d.Store.Tried(ctx, claim, one)
	default:
	}
	now := d.Now()
	one.Tried, one.Status, one.Error, one.Next = now, status, "", now
	var outage Outage
	if err != nil && status != http.StatusGone {
		var failed error
		if outage, failed = d.Store.Failing(context.WithoutCancel(ctx), w.Name, now, clip(err.Error())); failed != nil {
			return false, failed
		}
		open = !outage.Open.IsZero()
	}
	result := Delivered
	switch wait := backoff(one.Attempts); {
	case err == nil:
	case open:
		result, one.Error, one.Next = Pending, clip(err.Error()), outage.Next
	case status == http.StatusGone, now.Add(wait).Sub(one.Since)-one.Waited > giveUp:
		result, one.Error = Dead, clip(err.Error())
	default:
		result, one.Error, one.Next = Pending, clip(err.Error()), now.Add(wait)
	}
	one.State = result
	if err := d.Store.Tried(context.WithoutCancel(ctx), claim, one); err != nil {
		return open, err
	}
	if err == nil || status == http.StatusGone { // it answered; after what was tried is kept, for that is due no more
		if err := d.Store.Working(context.WithoutCancel(ctx), w.Name, now); err != nil {
			return false, err
		}
	}
	log := d.Log.With("alert", one.Number, "webhook", w.Name, "attempt", one.Attempts, "status", status)
	switch result {
	case Delivered:
		d.Sent(Delivered)
		log.Debug("alert delivered")
	case Dead:
		d.Sent(Dead)
		log.Error("alert is not delivered, and is not tried any more: `quotactl alert retry` begins anew", "error", one.Error)
	default:
		d.Sent("failed")
		log.Warn("alert is not delivered yet", "error", one.Error, "next", one.Next, "outage", open)
	}
	return open, nil
}

// handOn gives back claims that were not begun. The next leader then need not wait until they run out.
func (d *Deliverer) handOn(ctx context.Context, rest []Delivery, claim time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOnWait)
	defer cancel()
	for _, one := range rest {
		if err := d.Store.Untried(ctx, claim, one); err != nil {
			return err
		}
	}
	return nil
}

// backoff is how long to wait after an attempt. It doubles, less a random part of up to half: deliveries that failed
// together must not come again together.
func backoff(attempts int64) time.Duration {
	wait := retryFirst << min(max(attempts-1, 0), 20)
	wait = min(wait, retryMost)
	return wait - rand.N(wait/2)
}

// send posts the body once. Any answer but 2xx is an error.
func (d *Deliverer) send(ctx context.Context, w policy.Webhook, one *Delivery) (status int, err error) {
	secrets, err := d.Secrets(w)
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, strings.NewReader(one.Body))
	if err != nil {
		return 0, err
	}
	at := d.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "quota-server")
	req.Header.Set("Webhook-Id", one.ID)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature(secrets, one.ID, at, one.Body))
	transport := d.Outside
	if policy.Loopback(u.Hostname()) {
		transport = d.Transport
	}
	resp, err := transport.RoundTrip(req) // a transport follows no redirects
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so that the connection can be used again
	switch {
	case resp.StatusCode/100 == 2:
		return resp.StatusCode, nil
	case resp.StatusCode/100 == 3:
		return resp.StatusCode, fmt.Errorf("it answered %s; redirects are not followed", resp.Status)
	}
	return resp.StatusCode, fmt.Errorf("it answered %s", resp.Status)
}

// clip cuts an error to fit a table.
func clip(s string) string {
	const most = 500
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}

// NewTransport reaches webhooks within a reach. An address is checked when it is dialed, after its name was resolved.
// No proxy is used, because it would dial for us. Many webhooks may share a host. Lanes bound the deliveries of each
// webhook, and no limit on connections lets one take another's.
func NewTransport(reach Reach) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error { return mayDial(address, reach) }}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: sendTimeout,
		MaxConnsPerHost: lanes * policy.MaxWebhooks, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
	}
}
