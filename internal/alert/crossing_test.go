package alert

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCrossed(t *testing.T) {
	at := []int64{500_000, 800_000, 1_000_000}
	for _, c := range []struct {
		used, of int64
		want     int
	}{
		{0, 100, 0}, {-5, 100, 0}, {49, 100, 0}, {50, 100, 1}, {79, 100, 1}, {80, 100, 2}, {100, 100, 3}, {1000, 100, 3},
		{1, 3, 0}, {2, 3, 1}, {5, 0, 0}, {1<<53 - 1, 1<<53 - 1, 3}, {1 << 52, 1<<53 + 2, 0},
	} {
		if got := crossed(c.used, c.of, at); !slices.Equal(got, at[:c.want]) && len(got)+c.want > 0 {
			t.Errorf("%d of %d: %v, want %v", c.used, c.of, got, at[:c.want])
		}
	}
}

func TestRisen(t *testing.T) {
	at := []int64{2_000_000, 5_000_000}
	for _, c := range []struct {
		now, past denials
		want      int
	}{
		{denials{9, 0}, denials{}, 0},            // fewer than are worth it
		{denials{10, 490}, denials{}, 1},         // 2 %, of a floor of 1 %
		{denials{10, 491}, denials{}, 0},         // just below
		{denials{100, 900}, denials{10, 90}, 0},  // as before
		{denials{200, 800}, denials{10, 90}, 1},  // twice
		{denials{500, 500}, denials{10, 90}, 2},  // five times
		{denials{1 << 52, 0}, denials{1, 99}, 2}, // no overflow
		{denials{20, -7}, denials{-5, 9}, 2},     // corrections took away more than there was
	} {
		if got := risen(c.now, c.past, 10, at); len(got) != c.want {
			t.Errorf("%+v after %+v: %v, want %d thresholds", c.now, c.past, got, c.want)
		}
	}
}

// The vector that the specification's libraries test themselves by.
func TestSignature(t *testing.T) {
	const old = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secrets, err := parseSecrets(" " + old + "\n")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1614265330, 0)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := signature(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, `{"test": 2432232314}`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	fresh := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if secrets, err = parseSecrets(fresh + "\n" + old); err != nil {
		t.Fatal(err)
	}
	if got := signature(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, `{"test": 2432232314}`); !strings.HasSuffix(got, " "+want) || strings.Count(got, "v1,") != 2 {
		t.Errorf("while one replaces another: %s", got)
	}
	for _, text := range []string{"", "hunter2", "whsec_", "whsec_%%%%", "whsec_c2hvcnQ=", strings.Repeat(old+" ", 5)} {
		if _, err := parseSecrets(text); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%q: %v, want a refusal that does not repeat it", text, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	total := time.Duration(0)
	for attempt := range int64(40) {
		least, most := time.Hour, time.Duration(0)
		for range 200 {
			wait := backoff(attempt + 1)
			least, most = min(least, wait), max(most, wait)
		}
		want := min(retryFirst<<min(attempt, 20), retryMost)
		if most > want || least < want/2 || most-least < want/4 {
			t.Errorf("attempt %d: %s to %s, want half of %s to it", attempt+1, least, most, want)
		}
		total += want
	}
	if total < giveUp {
		t.Errorf("40 attempts within %s", total)
	}
}
