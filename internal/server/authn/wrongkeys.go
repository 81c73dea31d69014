package authn

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/peer"

	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// wrongBurst is how many wrong keys may come from one address at once, and one more each wrongEvery.
	wrongBurst = 20
	wrongEvery = time.Second
	// wrongPeers bounds the addresses that are remembered. Beyond it any of them is dropped, and so forgiven.
	wrongPeers = 4096
	// wrongLines is how many lines a minute tell of wrong keys, over all addresses. wrongLine is the least time between
	// two lines of one address.
	wrongLines = 20
	wrongLine  = time.Minute
)

// wrongKeys notes which addresses gave wrong keys. Nil notes nothing.
type wrongKeys struct {
	log     *slog.Logger
	counter prometheus.Counter

	mu     sync.Mutex
	peers  map[string]*wrongPeer
	minute time.Time // of the lines
	lines  int
}

type wrongPeer struct {
	full   time.Time // when nothing is held against it any more: each wrong key is wrongEvery later
	told   time.Time
	untold int // since then
}

func newWrongKeys(log *slog.Logger, counter prometheus.Counter) *wrongKeys {
	return &wrongKeys{log: log, counter: counter, peers: make(map[string]*wrongPeer)}
}

// mayGuess reports whether an address has given few wrong keys lately.
func (w *wrongKeys) mayGuess(from string) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[from]
	return p == nil || time.Until(p.full) < wrongBurst*wrongEvery
}

// note records a wrong key, never its secret. It keeps the key's id, if there is one, and a fingerprint. The
// fingerprint begins the hash, so a stored key can be found by it.
func (w *wrongKeys) note(from, secret string, hash [32]byte) {
	if w == nil {
		return
	}
	w.counter.Inc()
	w.mu.Lock()
	now := time.Now()
	p := w.peers[from]
	if p == nil {
		if len(w.peers) >= wrongPeers {
			for other := range w.peers {
				delete(w.peers, other)
				break
			}
		}
		p = &wrongPeer{full: now}
		w.peers[from] = p
	}
	if p.full.Before(now) {
		p.full = now
	}
	p.full = minTime(p.full.Add(wrongEvery), now.Add((wrongBurst+1)*wrongEvery))
	if now.Sub(w.minute) >= time.Minute {
		w.minute, w.lines = now, 0
	}
	tell := now.Sub(p.told) >= wrongLine && w.lines < wrongLines
	p.untold++
	n := p.untold
	if tell {
		p.told, p.untold = now, 0
		w.lines++
	}
	w.mu.Unlock()
	if tell {
		w.log.Warn("wrong keys", "from", from, "times", n, "fingerprint", hex.EncodeToString(hash[:4]), "key", claimedID(secret))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// claimedID is the id in a secret of our form; empty for any other text, of which nothing is logged.
func claimedID(secret string) string {
	parts := strings.Split(secret, "_")
	if len(parts) != 3 || parts[0] != "quota" || len(parts[1]) != 11 || parts[1][0] != 'k' || !limit.ValidName(parts[1]) {
		return ""
	}
	return parts[1]
}

// peerOf is where a call comes from: an IPv4 address, or an IPv6 network, because one caller has a whole network.
func peerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "?"
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.Network()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
