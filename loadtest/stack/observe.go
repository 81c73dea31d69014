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

// Observer reads what the parts of a stack have done. It is for one goroutine at a time.
type Observer struct {
	s        *Stack
	redis    []*redis.Client
	postgres *pgx.Conn
	http     *http.Client
}

// Observe returns an observer; Close ends it.
func (s *Stack) Observe(ctx context.Context) (*Observer, error) {
	o := &Observer{s: s, http: &http.Client{Transport: &http.Transport{}}}
	for _, addr := range s.Redis {
		o.redis = append(o.redis, redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: 1, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	if s.postgres != "" {
		var err error
		if o.postgres, err = pgx.Connect(ctx, s.postgres); err != nil {
			return nil, errors.Join(fmt.Errorf("stack: observe: %w", err), o.Close())
		}
	}
	return o, nil
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

// Redis returns how many commands the masters have executed, those of scripts included, how many scripts, and the
// microseconds that these took.
func (o *Observer) Redis(ctx context.Context) (commands, scripts, took int64, err error) {
	for _, c := range o.redis {
		info, err := c.Info(ctx, "replication", "stats", "commandstats").Result()
		if err != nil {
			return 0, 0, 0, fmt.Errorf("stack: observe: %w", err)
		}
		if field(info, "role:") != "master" {
			continue // a replica executes what its master did once more
		}
		n, err := strconv.ParseInt(field(info, "total_commands_processed:"), 10, 64)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("stack: observe: %w", err)
		}
		commands += n
		for _, name := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls=", "cmdstat_fcall:calls="} {
			var calls, usec int64
			if n, _ := fmt.Sscanf(field(info, name), "%d,usec=%d,", &calls, &usec); n == 2 { // none was called otherwise
				scripts, took = scripts+calls, took+usec
			}
		}
	}
	return commands, scripts, took, nil
}

// field is what follows the name on the line that begins with it; empty where there is none.
func field(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, name); ok {
			return v
		}
	}
	return ""
}

// Rows returns how many rows of reports the ledger has taken; 0 where it is not a Postgres.
func (o *Observer) Rows(ctx context.Context) (rows int64, err error) {
	if o.postgres == nil {
		return 0, nil
	}
	if err := o.postgres.QueryRow(ctx, "SELECT coalesce(sum(row_count), 0) FROM reports").Scan(&rows); err != nil {
		return 0, fmt.Errorf("stack: observe: %w", err)
	}
	return rows, nil
}

// Renewed returns how many renewals of buckets the server has answered.
func (o *Observer) Renewed(ctx context.Context) (int64, error) {
	return Renewed(ctx, o.http, o.s.HTTP)
}

// Renewed returns how many renewals of buckets the server at an address has answered.
func Renewed(ctx context.Context, c *http.Client, address string) (n int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("stack: observe: %w", err)
	}
	answer, err := c.Do(request)
	if err != nil {
		return 0, fmt.Errorf("stack: observe: %w", err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "quota_server_renewals_total{") {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("stack: observe: %w", err)
		}
		n += int64(v)
	}
	return n, lines.Err()
}

// tick is the unit of a process's times in /proc, everywhere Linux runs.
const tick = 0.01

// CPU returns the processor's seconds that this process and everything below it have used, by program;
// nothing where there is no /proc.
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
