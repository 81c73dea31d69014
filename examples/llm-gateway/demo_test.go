package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/examples/llm-gateway/gateway"
	"github.com/f4ee788f/quota/examples/llm-gateway/upstream"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: the demo takes ten seconds")
	}
	var out bytes.Buffer
	if err := demo(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"ada", "team", "ended early", "ledger tokens"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The demo must not pass when the ledger differs by a token, or a tenant had too much.
func TestDemoNoticesWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(map[string]*tally, map[string]map[string]int64){
		"a token too few":     func(_ map[string]*tally, b map[string]map[string]int64) { b["tokens_out"]["bell"]-- },
		"a token too many":    func(_ map[string]*tally, b map[string]map[string]int64) { b["tokens_reasoning"]["ada"]++ },
		"a failed request":    func(n map[string]*tally, _ map[string]map[string]int64) { n["ada"].failed++ },
		"too much money":      func(_ map[string]*tally, b map[string]map[string]int64) { b["microdollars"]["bell"] = 53_000 },
		"hardly any money":    func(_ map[string]*tally, b map[string]map[string]int64) { b["microdollars"]["bell"] = 40_000 },
		"more than its limit": func(n map[string]*tally, _ map[string]map[string]int64) { n["ada"].used.Prompt += 10_000 },
	} {
		t.Run(name, func(t *testing.T) {
			tallies := map[string]*tally{"ada": {answered: 1}, "bell": {answered: 1}}
			books := map[string]map[string]int64{"microdollars": {"bell": 50_000}}
			for i, meter := range meters {
				books[meter] = map[string]int64{"ada": tallies["ada"].told()[i], "bell": tallies["bell"].told()[i]}
			}
			if err := table(io.Discard, tallies, books, time.Second); err != nil {
				t.Fatalf("nothing is wrong: got %v", err)
			}
			spoil(tallies, books)
			if err := table(io.Discard, tallies, books, time.Second); err == nil {
				t.Error("got no error")
			}
		})
	}
}

// small is a policy with 3000 tokens a day.
const small = `
costs: [tokens_in, tokens_cached, {name: tokens_out, reserve: {quantile: 95%, by: model}}, tokens_reasoning]
plans:
  p:
    limits:
      - name: tokens
        algorithm: fixed_window
        rate: 3000/day
        meter: tokens
        cost: {by: model, weights: {small: {tokens_in: 1, tokens_cached: 1, tokens_out: 1, tokens_reasoning: 1}}}
tenants: [{id: ada, plan: p}]
`

// house is a server with that policy, and a gateway before an upstream. settled closes the client and returns ada's
// tokens in the ledger.
func house(t *testing.T, model http.Handler) (gatewayAt *url.URL, settled func() int64) {
	t.Helper()
	server, err := stack.Embedded(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	quota, err := client.Dial(t.Context(), server.Addr, client.WithAgent("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewServer(model)
	t.Cleanup(up.Close)
	upAt, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(gateway.New(quota, upAt, map[string]string{"key": "ada"}))
	if gatewayAt, err = url.Parse(front.URL); err != nil {
		t.Fatal(err)
	}
	return gatewayAt, func() int64 {
		front.Close() // waits for requests under way
		http.DefaultClient.CloseIdleConnections()
		if err := quota.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		units, err := stack.Usage(t.Context(), conn, "tokens", []string{"ada"})
		if err != nil {
			t.Error(err)
		}
		return units["ada"]
	}
}

func post(ctx context.Context, t *testing.T, at *url.URL, key, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

const asked = `{"model":"small","stream":true,"messages":[{"role":"user","content":"why"}]}`

// talker is a model that says a word for as long as it is listened to, and how many it said.
func talker(said chan<- int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		defer func() { said <- n }()
		for ; r.Context().Err() == nil; n++ {
			fmt.Fprint(w, `data: {"id":"1","choices":[{"index":0,"delta":{"content":"word "}}]}`+"\n\n")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	})
}

// A stream whose budget ends comes to a clean end, with what was used; what follows is denied.
func TestABudgetThatEndsMidStream(t *testing.T) {
	said := make(chan int, 1)
	at, settled := house(t, talker(said))
	answer := post(t.Context(), t, at, "key", asked)
	usage, early, err := read(answer.Body)
	if err != nil || usage == nil || !early {
		t.Fatalf("usage %+v, early %v, %v; want a clean end with what was used", usage, early, err)
	}
	<-said
	if used := usage.Prompt + usage.Completion; used > 3000 || used < 3000-2*gateway.Extension {
		t.Errorf("%d tokens of 3000", used)
	}
	again := post(t.Context(), t, at, "key", asked)
	if again.StatusCode != http.StatusTooManyRequests || again.Header.Get("Retry-After") == "" {
		t.Errorf("afterwards: %s, want 429 with a time to come again", again.Status)
	}
	if got := settled(); got != usage.Prompt+usage.Completion {
		t.Errorf("the ledger has %d tokens, the caller was told of %d", got, usage.Prompt+usage.Completion)
	}
}

// Once the gateway knows how long answers are, many are under way at once within a budget for few of the longest.
func TestAnswersUnderWayReserveWhatIsLikely(t *testing.T) {
	hold := make(chan struct{})
	number := atomic.Int64{}
	at, settled := house(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			fmt.Fprint(w, `data: {"id":"1","choices":[{"index":0,"delta":{"content":"word "}}]}`+"\n\n")
		}
		if number.Add(1) > 20 {
			_ = http.NewResponseController(w).Flush()
			<-hold
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	told := int64(0)
	ask := func() *http.Response {
		answer := post(t.Context(), t, at, "key", asked)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: want 200", answer.Status)
		}
		told += int64(len(`"why"`))/3 + 4 + 10
		return answer
	}
	for range 20 {
		_, _ = io.Copy(io.Discard, ask().Body)
	}
	var answers []io.Reader
	for range 8 { // the longest are 256 and 128, of the 2700 that are left
		answers = append(answers, ask().Body)
	}
	close(hold)
	for _, answer := range answers {
		_, _ = io.Copy(io.Discard, answer)
	}
	if got := settled(); got != told {
		t.Errorf("the ledger has %d tokens, callers were told of %d", got, told)
	}
}

// A caller who goes away pays for what was passed on to it, and for no more than the model said.
func TestACallerWhoGoesAway(t *testing.T) {
	said := make(chan int, 1)
	at, settled := house(t, talker(said))
	ctx, leave := context.WithCancel(t.Context())
	lines, heard := bufio.NewScanner(post(ctx, t, at, "key", asked).Body), int64(0)
	for heard < 20 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			heard++
		}
	}
	leave()
	generated := int64(<-said)
	prompt := int64(len(`"why"`))/3 + 4
	if got := settled() - prompt; got < heard || got > generated {
		t.Errorf("the ledger has %d tokens of an answer of which the caller read %d and the model said %d", got, heard, generated)
	}
}

// What cannot be decided or answered costs nothing.
func TestWhatCostsNothing(t *testing.T) {
	at, settled := house(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	for _, c := range []struct {
		name, key, body string
		status          int
	}{
		{"a key that is not known", "other", asked, http.StatusUnauthorized},
		{"not JSON", "key", "{", http.StatusBadRequest},
		{"no model", "key", "{}", http.StatusBadRequest},
		{"a model without weights", "key", `{"model":"huge"}`, http.StatusBadRequest},
		{"a model that fails", "key", asked, http.StatusInternalServerError},
		{"too long", "key", `{"model":"` + strings.Repeat("x", 1<<20) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		if got := post(t.Context(), t, at, c.key, c.body); got.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", c.name, got.Status, c.status)
		}
	}
	if got := settled(); got != 0 {
		t.Errorf("the ledger has %d tokens, want none", got)
	}
}

// An answer that is not streamed costs what the model says.
func TestAWholeAnswer(t *testing.T) {
	model := upstream.New(3, 0)
	at, settled := house(t, model)
	body := strings.Replace(asked, `"stream":true`, `"max_tokens":100`, 1)
	if got := post(t.Context(), t, at, "key", body); got.StatusCode != http.StatusOK {
		t.Fatal(got.Status)
	}
	if got, want := settled(), model.Generated()+int64(len("why"))/4+3; got != want {
		t.Errorf("the ledger has %d tokens, want %d", got, want)
	}
}
