//go:build linux

package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processEnv has the arguments of the agent that TestAgentProcess is.
const processEnv = "QUOTA_TEST_AGENT_PROCESS"

// TestAgentProcess is a quota-agent as a process of its own, which another test starts.
func TestAgentProcess(t *testing.T) {
	args := os.Getenv(processEnv)
	if args == "" {
		t.Skip("it is started by another test")
	}
	os.Exit(run(strings.Split(args, "\n"), os.Stdout, os.Stderr))
}

// startProcess starts such an agent; kill kills it with SIGKILL.
func startProcess(t *testing.T, socket string, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAgentProcess$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), processEnv+"="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out record
	cmd.Stdout, cmd.Stderr = &out, &out
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out.String())
		}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitReady(t, socket)
	return func() {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the agent ended by itself: %v", err)
		}
		if err := os.Remove(socket); err != nil {
			t.Error(err)
		}
	}
}

// sendEvents posts events to an agent.
func sendEvents(t *testing.T, socket, media, body string) (int, string) {
	t.Helper()
	asker := unixClient(socket)
	defer asker.CloseIdleConnections()
	answer, err := asker.Post("http://agent/v1/events", media, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// eventsDocument has limits of two costs.
const eventsDocument = `
costs: [tokens_in, tokens_out]
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 20/hour, burst: 2000, meter: requests}
      - {name: tokens, by: [tenant], rate: 20/hour, burst: 5000, cost: tokens_out, meter: tokens}
tenants:
  - {id: acme, plan: free}
  - {id: other, plan: free}
`

// An agent is killed with SIGKILL right after it answered 200, twice. What it was sent is in the ledger once, however
// often it is sent again.
func TestEventsSurviveKill9(t *testing.T) {
	// The ledger takes no more of an agent than it was granted and the burst; the rest waits in quarantine.
	server := startServerWith(t, eventsDocument)
	socket := filepath.Join(t.TempDir(), "h")
	args := []string{"--server", server.GRPCAddr(), "--http-addr", "unix:" + socket, "--grpc-addr", "", "--agent-id", "sink", "--journal", filepath.Join(t.TempDir(), "journal"),
		"--event-attribute", "tenant=attributes.tenant,subject", "--event-cost", "requests=n,data.n", "--event-cost", "tokens_out=output_tokens", "--event-cost", "of_no_policy=n"}
	const one = `{"event_id":"1","n":17,"output_tokens":1000,"attributes":{"tenant":"acme"}}`
	const batch = `[{"specversion":"1.0","type":"usage","source":"s","id":"1","subject":"acme","data":{"n":500}},` +
		`{"specversion":"1.0","type":"usage","source":"s","id":"2","subject":"other","data":{"n":3}}]`
	for _, answers := range [][2]string{{`{"booked":1,"known":0}`, `{"booked":2,"known":0}`}, {`{"booked":0,"known":1}`, `{"booked":0,"known":2}`}} {
		kill := startProcess(t, socket, args...)
		if code, body := sendEvents(t, socket, "application/json", one); code != http.StatusOK || strings.TrimSpace(body) != answers[0] {
			t.Errorf("one: got %d %s, want %s", code, body, answers[0])
		}
		if code, body := sendEvents(t, socket, "application/cloudevents-batch+json", batch); code != http.StatusOK || strings.TrimSpace(body) != answers[1] {
			t.Errorf("batch: got %d %s, want %s", code, body, answers[1])
		}
		kill()
	}
	end := startAgent(t, args...)
	waitReady(t, socket)
	if code, body := sendEvents(t, socket, "application/json", one); code != http.StatusOK || strings.TrimSpace(body) != `{"booked":0,"known":1}` {
		t.Errorf("at last: got %d %s", code, body)
	}
	settled := func() bool { got := usage(t, server); return got["acme"] >= 1517 && got["other"] >= 3 }
	if !wait(t, time.Minute, nil, settled) {
		t.Error("what was booked is not settled")
	}
	end()
	if got := usage(t, server); got["acme"] != 1517 || got["other"] != 3 {
		t.Errorf("the ledger has %d and %d units, want 1517 and 3", got["acme"], got["other"])
	}
}

// Without a journal events are refused with a sentence, unless that was asked for.
func TestEventsNeedTheJournal(t *testing.T) {
	server := startServer(t)
	const one = `{"event_id":"1","attributes":{"tenant":"acme"},"output_tokens":7}`
	for flag, want := range map[string]int{"--allow-unknown": http.StatusServiceUnavailable, "--events-without-journal": http.StatusOK} {
		socket := filepath.Join(t.TempDir(), "h")
		end := startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+socket, "--grpc-addr", "", "--agent-id", "sink", flag)
		waitReady(t, socket)
		if code, body := sendEvents(t, socket, "application/json", one); code != want || (code == 503) != strings.Contains(body, "--journal") {
			t.Errorf("%s: got %d %s, want %d", flag, code, body, want)
		}
		end()
	}
	if got := usage(t, server)["acme"]; got != 1 {
		t.Errorf("the ledger has %d units, want 1", got)
	}
}
