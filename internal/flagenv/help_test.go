package flagenv

import (
	"flag"
	"strings"
	"testing"
	"time"
)

// Each flag is shown with its value, its variable, and a default as people write it.
func TestHelp(t *testing.T) {
	f := flag.NewFlagSet("t", flag.ContinueOnError)
	f.String("grpc-addr", "127.0.0.1:1", "an `ADDRESS` of it")
	f.Duration("keep", 72*time.Hour, "a `DURATION`")
	f.Duration("wait", 150*time.Second, "a `DURATION`")
	f.Duration("never", 0, "a `DURATION`; 0 for never")
	f.Bool("open", false, "let in")
	f.Int("keep-n", 0, "how many, a `NUMBER`")
	var b strings.Builder
	Help(&b, f, "T")
	const want = `Flags:
  --grpc-addr ADDRESS   (T_GRPC_ADDR)
        an ADDRESS of it (default 127.0.0.1:1)
  --keep DURATION   (T_KEEP)
        a DURATION (default 72h)
  --keep-n NUMBER   (T_KEEP_N)
        how many, a NUMBER
  --never DURATION   (T_NEVER)
        a DURATION; 0 for never
  --open   (T_OPEN)
        let in
  --wait DURATION   (T_WAIT)
        a DURATION (default 2m30s)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
