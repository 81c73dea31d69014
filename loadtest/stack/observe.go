package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Parts are the addresses of the parts that can be observed; an empty one cannot be asked.
type Parts struct {
	Servers  []string // HOST:PORT of each server's metrics
	Redis    []string // HOST:PORT of each node; replicas are passed over
	Postgres string   // URL
}

// Observer reads what the parts of a system have done. Each method is for one goroutine at a time.
type Observer struct {
	servers  []string
	redis    []*redis.Client
	postgres *pgx.Conn
	http     *http.Client
}

// Observe returns an observer; Close ends it.
func Observe(ctx context.Context, p Parts) (*Observer, error) {
	o := &Observer{servers: p.Servers, http: &http.Client{Transport: &http.Transport{}}}
	for _, addr := range p.Redis {
		o.redis = append(o.redis, redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: 1, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	if p.Postgres != "" {
		var err error
		if o.postgres, err = pgx.Connect(ctx, p.Postgres); err != nil {
			return nil, errors.Join(fmt.Errorf("stack: observe: %w", err), o.Close())
		}
	}
	return o, nil
}

// Parts are the parts of the stack.
func (s *Stack) Parts() Parts {
	return Parts{Servers: []string{s.HTTP}, Redis: s.Redis, Postgres: s.postgres}
}

// Close ends the observer's connections.
func (o *Observer) Close() error {
	o.http.CloseIdleConnections()
	var errs []error
	for _, c := range o.redis {
		errs = append(errs, c.Close())
	}
	if o.postgres != nil {
		errs = append(errs, o.postgres.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// RedisDone is what the masters of a Redis Cluster have done.
type RedisDone struct {
	Commands, Scripts int64 // commands with those of scripts
	ScriptTime        int64 // that scripts took, microseconds
	CPU               float64
}

// Redis returns what the masters have done; nil if there is no Redis to ask.
func (o *Observer) Redis(ctx context.Context) (*RedisDone, error) {
	if len(o.redis) == 0 {
		return nil, nil
	}
	done := new(RedisDone)
	for _, c := range o.redis {
		info, err := c.Info(ctx, "replication", "stats", "cpu", "commandstats").Result()
		if err != nil {
			return nil, fmt.Errorf("stack: observe: %w", err)
		}
		for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			seconds, err := strconv.ParseFloat(field(info, name), 64)
			if err != nil {
				return nil, fmt.Errorf("stack: observe: %w", err)
			}
			done.CPU += seconds
		}
		if field(info, "role:") != "master" {
			continue // a replica executes what its master did once more
		}
		n, err := strconv.ParseInt(field(info, "total_commands_processed:"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("stack: observe: %w", err)
		}
		done.Commands += n
		for _, name := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls=", "cmdstat_fcall:calls="} {
			var calls, usec int64
			if n, _ := fmt.Sscanf(field(info, name), "%d,usec=%d,", &calls, &usec); n == 2 { // none was called otherwise
				done.Scripts, done.ScriptTime = done.Scripts+calls, done.ScriptTime+usec
			}
		}
	}
	return done, nil
}

// field is the rest of the line that begins with the name; empty if there is none.
func field(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, name); ok {
			return v
		}
	}
	return ""
}

// Rows returns how many rows of reports the ledger has taken; nil where there is no Postgres to ask.
func (o *Observer) Rows(ctx context.Context) (*int64, error) {
	if o.postgres == nil {
		return nil, nil
	}
	rows := new(int64)
	if err := o.postgres.QueryRow(ctx, "SELECT coalesce(sum(row_count), 0) FROM reports").Scan(rows); err != nil {
		return nil, fmt.Errorf("stack: observe: %w", err)
	}
	return rows, nil
}

// ServersDone is what servers have done.
type ServersDone struct {
	Renewed int64 // buckets whose renewals they answered
	CPU     float64
}

// Servers returns what the servers have done; nil where there is none to ask.
func (o *Observer) Servers(ctx context.Context) (*ServersDone, error) {
	if len(o.servers) == 0 {
		return nil, nil
	}
	done := new(ServersDone)
	for _, address := range o.servers {
		one, err := ServerDone(ctx, o.http, address)
		if err != nil {
			return nil, err
		}
		done.Renewed += one.Renewed
		done.CPU += one.CPU
	}
	return done, nil
}

// ServerDone returns what the server with metrics at an address has done.
func ServerDone(ctx context.Context, c *http.Client, address string) (done ServersDone, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return done, fmt.Errorf("stack: observe: %w", err)
	}
	answer, err := c.Do(request)
	if err != nil {
		return done, fmt.Errorf("stack: observe: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return done, fmt.Errorf("stack: observe: metrics of %s: %s", address, answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		renewals, cpu := strings.HasPrefix(name, "quota_server_renewals_total{"), name == "process_cpu_seconds_total"
		if !ok || !renewals && !cpu {
			continue
		}
		v, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
		if err != nil {
			return done, fmt.Errorf("stack: observe: %w", err)
		}
		if cpu {
			done.CPU = v
		} else {
			done.Renewed += int64(v)
		}
	}
	return done, lines.Err()
}

// tick is the unit of a process's times in /proc, everywhere Linux runs.
const tick = 0.01

// CPU returns the processor seconds of this process and everything below it, by program; nothing where there is no
// /proc.
func CPU() (map[string]float64, error) {
	type process struct {
		name    string
		parent  int
		seconds float64
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("stack: processes: %w", err)
	}
	all := make(map[int]process)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
		if err != nil || open < 0 || end < open {
			return nil, fmt.Errorf("stack: processes: %s: %w", file, fs.ErrInvalid)
		}
		f := strings.Fields(string(b[end+1:]))
		if len(f) < 15 {
			return nil, fmt.Errorf("stack: processes: %s: %w", file, fs.ErrInvalid)
		}
		p := process{name: string(b[open+1 : end])}
		p.parent, _ = strconv.Atoi(f[1])
		for _, at := range []int{11, 12, 13, 14} { // user and system, its own and of children that have ended
			n, _ := strconv.ParseFloat(f[at], 64)
			p.seconds += n * tick
		}
		all[pid] = p
	}
	own, cpu := os.Getpid(), make(map[string]float64)
	for pid, p := range all {
		up := pid
		for up != own && up > 1 {
			up = all[up].parent
		}
		if up == own {
			cpu[p.name] += p.seconds
		}
	}
	return cpu, nil
}
