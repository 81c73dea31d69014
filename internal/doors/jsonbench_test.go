package doors

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/listen"
)

// BenchmarkJSON measures decisions over HTTP on a Unix socket, by how many a call has. A batch of 32 makes more than ten
// times as many a second as calls of one.
func BenchmarkJSON(b *testing.B) {
	quota := dialAt(b, startServer(b, strings.ReplaceAll(document, "rate: 10/hour, burst: 10", "rate: 100000000/second")).GRPCAddr())
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	s := listen.HTTP(NewJSON(quota, nil, JSONConfig{}, newMetrics(b)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		<-served
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}}
	defer transport.CloseIdleConnections()
	for _, size := range []int{1, 32, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := `{"requests":[`
			for i := range size {
				body += fmt.Sprintf(`{"attributes":{"tenant":"acme","endpoint":"POST /chat","user":"u%d"},"units":1},`, i%100)
			}
			body = strings.TrimSuffix(body, ",") + `]}`
			b.ReportAllocs()
			start := time.Now()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://agent/v1/decide", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					answer, err := transport.RoundTrip(r)
					if err != nil {
						b.Error(err)
						return
					}
					text, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					if err != nil || bytes.Count(text, []byte(`"allowed":true`)) != size {
						b.Errorf("%v: %.200s", err, text)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N*size)/time.Since(start).Seconds(), "decisions/s")
		})
	}
}
