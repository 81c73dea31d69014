package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
)

// record keeps what is written, and can be read meanwhile.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // has one when something was written
}

func newRecord() *record { return &record{news: make(chan struct{}, 1)} }

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// What cannot be a server's address is refused, whoever dials it.
func TestDialRefusesBadTargets(t *testing.T) {
	for _, target := range []string{"", " ", "http://127.0.0.1:7600", "https://quota.internal", "grpc://a:7600", "a", ":7600", "a:0", "a:b", "a: 7600", "a:1,", "a:1,http://b:2", "a:1,dns:b:2", "unix:", "passthrough:a"} {
		if c, err := Dial(t.Context(), target, WithFirstWait(0)); !errors.Is(err, ErrOption) {
			t.Errorf("Dial %q: %v, want ErrOption", target, err)
			if err == nil {
				_ = c.Close(t.Context())
			}
		}
		if _, err := Recover(t.Context(), target, t.TempDir()); !errors.Is(err, ErrOption) {
			t.Errorf("Recover %q: %v, want ErrOption", target, err)
		}
	}
}

// Who chose no logger hears once that there is nobody, and nothing of what goes well. Stats says why, and since when.
func TestANeverReachedServerIsSaidOnce(t *testing.T) {
	said := newRecord()
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	defer slog.SetDefault(before)
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		s.down = true
		began := time.Now()
		c := dial(t, s)
		if st := c.Stats(); st.Unreachable != "down" || st.UnreachableSince.Sub(began) > time.Second || st.UnreachableSince.Before(began) {
			t.Errorf("unreachable for %q since %v, want for \"down\" since %v", st.Unreachable, st.UnreachableSince, began)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(said.String(), "never connected"); n != 1 || !strings.Contains(said.String(), "because=down") {
			t.Errorf("said %d times that it never connected, want once, and why:\n%s", n, said)
		}
		s.set(func(f *fake) { f.down = false })
		time.Sleep(5 * time.Second)
		if st := c.Stats(); st.Unreachable != "" || !st.UnreachableSince.IsZero() {
			t.Errorf("unreachable for %q since %v although the server answers", st.Unreachable, st.UnreachableSince)
		}
		s.set(func(f *fake) { f.down = true })
		s.stop()
		time.Sleep(10 * time.Second)
		if st := c.Stats(); st.Unreachable == "" || st.UnreachableSince.IsZero() {
			t.Error("a server that went away is not said to be unreachable")
		}
		if strings.Contains(said.String(), "level=INFO") || strings.Count(said.String(), "never connected") != 1 {
			t.Errorf("want warnings alone, and no word of never where it was reached:\n%s", said)
		}
		if err := c.Close(context.Background()); err != nil && !errors.Is(err, ErrUnsettled) {
			t.Error(err)
		}
	})
}

// A client that talks plainly to a server of TLS, or the other way round, says what may be wrong.
func TestTLSOnOneSideOnlyIsSaid(t *testing.T) {
	secure := httptest.NewUnstartedServer(nil)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for what, dial := range map[string]struct {
		addr string
		opts []Option
		want string
	}{
		"plain to TLS": {secure.Listener.Addr().String(), nil, "WithTLS"},
		"TLS to plain": {plain.Listener.Addr().String(), []Option{WithTLS(secure.TLS.Clone())}, "WithTLS"},
	} {
		said := newRecord()
		c, err := Dial(t.Context(), dial.addr, append(dial.opts, WithFirstWait(0), WithLogger(slog.New(slog.NewTextHandler(said, nil))))...)
		if err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(said.String(), "never connected") {
			select {
			case <-said.news:
			case <-time.After(time.Minute):
				t.Fatalf("%s: not a word in a minute", what)
			}
		}
		if !strings.Contains(said.String(), dial.want) || !strings.Contains(c.Stats().Unreachable, dial.want) {
			t.Errorf("%s: said %q, and in Stats %q; want a word of %s", what, said, c.Stats().Unreachable, dial.want)
		}
		_ = c.Close(t.Context())
	}
}

// A client that is there before its server has the policy within a tenth of a second after the server comes, however
// long that took. Of a server that accepts connections and is of no use it wants one in half a second at most.
func TestDialBeforeTheServer(t *testing.T) {
	for _, late := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Minute} {
		bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
			comes := time.Now().Add(late)
			tries := 0
			refused := func(ctx context.Context, addr string) (net.Conn, error) {
				if tries++; time.Now().Before(comes) {
					return nil, errors.New("connection refused")
				}
				return s.dial(ctx, addr)
			}
			c := dial(t, s, WithFirstWait(0), WithDialer(refused), WithLogger(slog.New(slog.DiscardHandler)))
			defer shut(t, c)
			time.Sleep(time.Until(comes))
			select {
			case <-c.session.Known():
			case <-time.After(time.Hour):
			}
			if after := time.Since(comes); after > 100*time.Millisecond {
				t.Errorf("the policy is here %v after the server came", after)
			}
			if most := int(25 * late.Seconds()); tries > most+2 {
				t.Errorf("%d tries within %v, want %d at most", tries, late, most)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l, dialing, shaken := bufconn.Listen(1), bubbled.NewDialing(), 0
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if n, _ := conn.Read(make([]byte, 1)); n > 0 {
					shaken++
				}
				_ = conn.Close()
			}
		}()
		c, err := Dial(t.Context(), "passthrough:none", WithDialer(dialing.To(l)), WithAgent("a"), WithFirstWait(10*time.Second), WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		if shaken < 5 || shaken > 20 {
			t.Errorf("%d connections in ten seconds, want 5 to 20", shaken)
		}
		_ = c.Close(t.Context())
		_ = l.Close()
		synctest.Wait()
	})
}
