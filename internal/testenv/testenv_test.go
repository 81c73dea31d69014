package testenv_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m), testenv.Redialing()) }

// make test runs this first, for what it prints: which engines the tests have.
func TestWhichEngines(t *testing.T) {
	testenv.Redis(t)
	testenv.Postgres(t)
}

func TestRedisIsSharedAndClustered(t *testing.T) {
	a, b := testenv.Redis(t), testenv.Redis(t)
	if a.Prefix == b.Prefix {
		t.Fatalf("two calls got the same prefix %q", a.Prefix)
	}
	if len(a.Addrs()) == 0 || a.Addrs()[0] != b.Addrs()[0] {
		t.Fatalf("got addresses %v and %v, want the same", a.Addrs(), b.Addrs())
	}
	c := a.Client()
	for _, key := range []string{"x", "y", "z", "{a}1", "{b}2"} {
		if err := c.Set(t.Context(), a.Prefix+key, key, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Client().Get(t.Context(), a.Prefix+key).Result(); err != nil || got != key {
			t.Fatalf("Get(%q) = %q, %v", key, got, err)
		}
	}
}

// A killed master is survived within three seconds of its end, by a client that
// only retries; restarted, it comes back into step. Redis takes 2.0 to 2.9 s of them
// (detection 1.1, gossip up to 0.5, a replica's own wait 0.5 to 1.0), so that a busy
// machine may miss some, and is asked again.
func TestRedisSurvivesAKilledMaster(t *testing.T) {
	r := testenv.PrivateRedis(t)
	if got := len(r.Masters()); got != 3 {
		t.Fatalf("got %d masters, want 3", got)
	}
	c := r.Client()
	key := r.Prefix + "k"
	if err := c.Set(t.Context(), key, 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	outage := func() time.Duration {
		victim := r.MasterOf(key)
		r.Kill(victim)
		since := time.Now()
		for c.Set(t.Context(), key, 2, 0).Err() != nil {
			if time.Since(since) > time.Minute {
				t.Fatal("no write succeeded within a minute of the master's end")
			}
		}
		took := time.Since(since)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// A node that the write did not ask may hear of the new owner later: all have to, within a minute.
		if err := r.WaitHealthy(ctx); err != nil {
			t.Fatalf("with %s killed: %v", victim, err)
		}
		r.Restart(victim)
		if err := r.WaitHealthy(ctx); err != nil {
			t.Fatal(err)
		}
		if got := r.MasterOf(key); got == victim {
			t.Errorf("the killed node %s owns %q again", got, key)
		}
		if got := len(r.Masters()); got != 3 {
			t.Errorf("got %d masters after the restart, want 3", got)
		}
		return took
	}
	var took time.Duration
	for range 5 {
		took = outage()
		t.Logf("survived in %v", took)
		if took <= 3*time.Second {
			return
		}
	}
	t.Errorf("survived in %v, want at most 3 s", took)
}

func TestRedisPausedMasterIsFailedOver(t *testing.T) {
	r := testenv.PrivateRedis(t)
	victim := r.Masters()[0]
	r.Pause(victim)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.WaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
	r.Resume(victim)
	if err := r.WaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestPostgresGivesEachTestADatabase(t *testing.T) {
	a, b := testenv.Postgres(t), testenv.Postgres(t)
	if _, err := connect(t, a.OwnerURL()).Exec(t.Context(), "CREATE TABLE seen (n int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, b.OwnerURL()).Exec(t.Context(), "SELECT n FROM seen"); err == nil {
		t.Fatal("a table of one test is there in another's database")
	}
	// The application's role logs in, and owns nothing.
	app := connect(t, a.AppURL())
	if _, err := app.Exec(t.Context(), "SELECT n FROM seen"); err == nil {
		t.Fatal("the application reads what it was not granted")
	}
	if n := a.TerminateBackends(); n != 2 {
		t.Errorf("terminated %d backends, want 2", n)
	}
	if _, err := app.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a terminated connection still answers")
	}
}

func TestPostgresRestartsOnItsData(t *testing.T) {
	p := testenv.PrivatePostgres(t, true)
	if _, err := connect(t, p.OwnerURL()).Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if conn, err := pgx.Connect(t.Context(), p.OwnerURL()); err == nil {
		conn.Close(t.Context())
		t.Fatal("a stopped server takes connections")
	}
	p.Start()
	var n int
	if err := connect(t, p.OwnerURL()).QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 42 {
		t.Fatalf("after the restart: got %d, %v, want 42", n, err)
	}
}
