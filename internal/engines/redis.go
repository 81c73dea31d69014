package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// RedisOptions says what cluster to start. The zero value is the one of the tests.
type RedisOptions struct {
	Masters     int           // 3 when 0
	Replicas    int           // of each master; 1 when 0, none when negative
	NodeTimeout time.Duration // after which a silent node is failed over; 1 s when 0
	Settings    []string      // more arguments for redis-server: "--maxmemory", "64mb"
	Launch      Launcher      // how a node is started; Start when nil
	Server      string        // redis-server's path; found when empty
}

// RedisCluster is a running Redis Cluster on loopback. Its methods are safe for
// concurrent use.
type RedisCluster struct {
	o   RedisOptions
	dir string

	mu      sync.Mutex
	masters int
	ports   []*ports
	nodes   []*redisNode // never changed, only replaced
}

type redisNode struct {
	addr      string
	port, bus int
	dir       string

	mu     sync.Mutex
	unit   Unit // nil while killed
	paused bool
}

// StartRedisCluster starts a cluster with its files below dir, and returns when
// every node sees it whole. Stop it when done; it ends with this process anyway.
func StartRedisCluster(ctx context.Context, dir string, o RedisOptions) (*RedisCluster, error) {
	if o.Masters == 0 {
		o.Masters = 3
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	o.Replicas = max(o.Replicas, 0)
	if o.NodeTimeout == 0 {
		o.NodeTimeout = time.Second
	}
	if o.Launch == nil {
		o.Launch = Start
	}
	if o.Server == "" {
		var err error
		if o.Server, err = FindRedis(); err != nil {
			return nil, err
		}
	}
	c := &RedisCluster{o: o, dir: dir}
	nodes, err := c.more(o.Masters)
	if err != nil {
		return nil, err
	}
	if err := c.form(ctx, nodes); err != nil {
		return nil, errors.Join(fmt.Errorf("engines: redis cluster: %w", err), c.Stop())
	}
	return c, nil
}

// more adds masters with their replicas, masters first; none runs yet.
func (c *RedisCluster) more(masters int) ([]*redisNode, error) {
	n := masters * (1 + c.o.Replicas)
	p, err := reservePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var nodes []*redisNode
	for i := range n {
		nodes = append(nodes, &redisNode{
			addr: "127.0.0.1:" + strconv.Itoa(p.numbers[i]), port: p.numbers[i], bus: p.numbers[n+i],
			dir: filepath.Join(c.dir, strconv.Itoa(p.numbers[i])),
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes, c.masters, c.ports = slices.Concat(c.nodes, nodes), c.masters+masters, append(c.ports, p)
	return nodes, nil
}

// all are the present nodes, and how many of them are masters.
func (c *RedisCluster) all() (nodes []*redisNode, masters int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes, c.masters
}

// start starts nodes, and returns when they answer.
func (c *RedisCluster) start(ctx context.Context, nodes []*redisNode) error {
	for _, n := range nodes {
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return err
		}
		if err := c.launch(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := c.answers(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// meet has a node join another node's cluster.
func meet(ctx context.Context, r *redis.Client, other *redisNode) error {
	return r.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.port, other.bus).Err()
}

func (c *RedisCluster) form(ctx context.Context, nodes []*redisNode) error {
	if err := c.start(ctx, nodes); err != nil {
		return err
	}
	for i, n := range nodes {
		err := ask(ctx, n.addr, func(r *redis.Client) error {
			// The epochs differ from the start, because nodes that meet with the same one must first agree.
			if err := r.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
				return err
			}
			if i < c.o.Masters {
				from, to := i*slots/c.o.Masters, (i+1)*slots/c.o.Masters-1
				if err := r.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
					return err
				}
			}
			if i == 0 {
				return nil
			}
			return meet(ctx, r, nodes[0])
		})
		if err != nil {
			return fmt.Errorf("node %s: %w", n.addr, err)
		}
	}
	for i, n := range nodes[c.o.Masters:] {
		if err := follow(ctx, n, nodes[i%c.o.Masters]); err != nil {
			return err
		}
	}
	return c.WaitHealthy(ctx)
}

// AddShard adds a master that owns no slots yet, with replicas as the others have, and returns its address when all
// nodes know it.
func (c *RedisCluster) AddShard(ctx context.Context) (addr string, err error) {
	running := c.running()
	if len(running) == 0 {
		return "", errors.New("engines: no node runs")
	}
	nodes, err := c.more(1)
	if err != nil {
		return "", err
	}
	if err := c.start(ctx, nodes); err != nil {
		return "", err
	}
	for _, n := range nodes {
		if err := ask(ctx, n.addr, func(r *redis.Client) error { return meet(ctx, r, running[0]) }); err != nil {
			return "", err
		}
	}
	for _, n := range nodes[1:] {
		if err := follow(ctx, n, nodes[0]); err != nil {
			return "", err
		}
	}
	return nodes[0].addr, c.WaitHealthy(ctx)
}

// follow has a node become the replica of a master.
func follow(ctx context.Context, n, master *redisNode) error {
	err := ask(ctx, master.addr, func(r *redis.Client) error {
		id, err := r.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		return replicate(ctx, n, id)
	})
	if err != nil {
		return fmt.Errorf("replica %s: %w", n.addr, err)
	}
	return nil
}

// replicate repeats the order until the replica has heard of its master.
func replicate(ctx context.Context, n *redisNode, master string) error {
	return ask(ctx, n.addr, func(r *redis.Client) error {
		var last error
		err := waitFor(ctx, func() bool {
			last = r.ClusterReplicate(ctx, master).Err()
			return last == nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
		return nil
	})
}

func (c *RedisCluster) launch(ctx context.Context, n *redisNode) error {
	args := []string{
		"--bind", "127.0.0.1", "--protected-mode", "no",
		"--port", strconv.Itoa(n.port), "--cluster-port", strconv.Itoa(n.bus),
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(c.o.NodeTimeout.Milliseconds(), 10),
		// Healthy shards go on while one fails over.
		"--cluster-require-full-coverage", "no",
		// The layout changes by failover only, and a replica may always take over.
		"--cluster-allow-replica-migration", "no", "--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		"--save", "", "--appendonly", "no", "--shutdown-timeout", "0",
	}
	unit, err := c.o.Launch(ctx, Command{
		Name: "redis-" + strconv.Itoa(n.port), Path: c.o.Server, Dir: n.dir,
		Args: append(args, c.o.Settings...), Quit: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unit, n.paused = unit, false
	return nil
}

// answers waits until the node we started answers, and not another server at its port.
func (c *RedisCluster) answers(ctx context.Context, n *redisNode) error {
	return ask(ctx, n.addr, func(r *redis.Client) error {
		var last error
		died := false
		err := waitFor(ctx, func() bool {
			if n.unit.Exited() {
				died = true
				return true
			}
			// We dial first ourselves, because go-redis logs each dial that fails.
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.addr)
			if err != nil {
				last = err
				return false
			}
			last = errors.Join(conn.Close(), r.Ping(ctx).Err())
			return last == nil
		})
		if died {
			return fmt.Errorf("node %s ended: %s", n.addr, n.unit.Log())
		}
		if err != nil {
			return fmt.Errorf("node %s: %w: %s", n.addr, errors.Join(err, last), n.unit.Log())
		}
		return nil
	})
}

// ask runs one conversation with one node.
func ask(ctx context.Context, addr string, talk func(*redis.Client) error) (err error) {
	r := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { err = errors.Join(err, r.Close()) }()
	return talk(r)
}

// Addrs are the addresses of all nodes, masters first as they were at the start.
func (c *RedisCluster) Addrs() []string {
	nodes, _ := c.all()
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.addr
	}
	return addrs
}

func (n *redisNode) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unit != nil && !n.paused && !n.unit.Exited()
}

func (c *RedisCluster) running() []*redisNode {
	nodes, _ := c.all()
	return slices.DeleteFunc(slices.Clone(nodes), func(n *redisNode) bool { return !n.running() })
}

func (c *RedisCluster) runningAddrs() []string {
	var addrs []string
	for _, n := range c.running() {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// shard is what one node says of a master.
type shard struct {
	addr     string
	from, to int
}

// view is the layout as the node at addr sees it.
func view(ctx context.Context, addr string) (shards []shard, err error) {
	err = ask(ctx, addr, func(r *redis.Client) error {
		text, err := r.ClusterNodes(ctx).Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 9 {
				continue
			}
			flags := strings.Split(f[2], ",")
			if !slices.Contains(flags, "master") || slices.Contains(flags, "fail") || slices.Contains(flags, "fail?") {
				continue
			}
			node, _, _ := strings.Cut(f[1], "@")
			for _, span := range f[8:] {
				a, b, ok := strings.Cut(span, "-")
				if !ok {
					b = a
				}
				from, err1 := strconv.Atoi(a)
				to, err2 := strconv.Atoi(b)
				if err1 == nil && err2 == nil { // else a slot on its way, in brackets
					shards = append(shards, shard{node, from, to})
				}
			}
		}
		return nil
	})
	return shards, err
}

// Masters are the addresses of the running masters that own slots, in slot order.
func (c *RedisCluster) Masters(ctx context.Context) ([]string, error) {
	shards, err := c.shards(ctx)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, s := range shards {
		if !slices.Contains(addrs, s.addr) {
			addrs = append(addrs, s.addr)
		}
	}
	return addrs, nil
}

// MasterOf is the address of the running master that owns key's slot.
func (c *RedisCluster) MasterOf(ctx context.Context, key string) (string, error) {
	shards, err := c.shards(ctx)
	if err != nil {
		return "", err
	}
	var slot int64
	if err := ask(ctx, c.runningAddrs()[0], func(r *redis.Client) (err error) {
		slot, err = r.ClusterKeySlot(ctx, key).Result()
		return err
	}); err != nil {
		return "", fmt.Errorf("engines: slot of %q: %w", key, err)
	}
	for _, s := range shards {
		if s.from <= int(slot) && int(slot) <= s.to {
			return s.addr, nil
		}
	}
	return "", fmt.Errorf("engines: no running master owns slot %d", slot)
}

// shards asks the running nodes in turn, and leaves out masters that do not run.
func (c *RedisCluster) shards(ctx context.Context) ([]shard, error) {
	running := c.runningAddrs()
	var errs []error
	for _, addr := range running {
		shards, err := view(ctx, addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		shards = slices.DeleteFunc(shards, func(s shard) bool { return !slices.Contains(running, s.addr) })
		slices.SortFunc(shards, func(a, b shard) int { return a.from - b.from })
		return shards, nil
	}
	return nil, fmt.Errorf("engines: no node answers: %w", errors.Join(errs...))
}

// WaitHealthy returns when every running node sees every slot owned by a running
// master, and every running replica is in step with its master.
func (c *RedisCluster) WaitHealthy(ctx context.Context) error {
	var last error
	err := waitFor(ctx, func() bool {
		last = c.healthy(ctx)
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("engines: redis cluster is not healthy: %w: %w", err, last)
	}
	return nil
}

func (c *RedisCluster) healthy(ctx context.Context) error {
	nodes, masters := c.all()
	running := c.runningAddrs()
	if len(running) == 0 {
		return errors.New("no node runs")
	}
	for _, addr := range running {
		shards, err := view(ctx, addr)
		if err != nil {
			return err
		}
		owned := 0
		for _, s := range shards {
			if slices.Contains(running, s.addr) {
				owned += s.to - s.from + 1
			}
		}
		if owned != slots {
			return fmt.Errorf("node %s sees running masters for %d of %d slots", addr, owned, slots)
		}
		err = ask(ctx, addr, func(r *redis.Client) error {
			info, err := r.Info(ctx, "replication").Result()
			if err != nil {
				return err
			}
			if strings.Contains(info, "master_link_status:down") {
				return fmt.Errorf("replica %s is not linked", addr)
			}
			state, err := r.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("node %s: cluster state is not ok", addr)
			}
			if want := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(nodes)); !strings.Contains(state, want) {
				return fmt.Errorf("node %s does not know all nodes", addr)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	replicas := len(running) - masters
	linked, err := c.linkedReplicas(ctx, running)
	if err != nil {
		return err
	}
	if linked < replicas {
		return fmt.Errorf("%d of %d running replicas follow a master", linked, replicas)
	}
	return nil
}

func (c *RedisCluster) linkedReplicas(ctx context.Context, running []string) (n int, err error) {
	for _, addr := range running {
		if err := ask(ctx, addr, func(r *redis.Client) error {
			info, err := r.Info(ctx, "replication").Result()
			if strings.Contains(info, "master_link_status:up") {
				n++
			}
			return err
		}); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (c *RedisCluster) node(addr string) (*redisNode, error) {
	nodes, _ := c.all()
	for _, n := range nodes {
		if n.addr == addr {
			return n, nil
		}
	}
	return nil, fmt.Errorf("engines: no node at %s", addr)
}

// Kill ends a node as a crash would. Writes that its replica did not have yet are lost.
func (c *RedisCluster) Kill(addr string) error {
	return c.do(addr, func(n *redisNode) error {
		unit := n.unit
		n.unit, n.paused = nil, false
		return unit.Kill()
	})
}

// Pause has a node hang: connections stay open and nothing is answered.
func (c *RedisCluster) Pause(addr string) error {
	return c.do(addr, func(n *redisNode) error {
		n.paused = true
		return n.unit.Pause()
	})
}

// Resume takes Pause back. A master that was failed over meanwhile becomes a replica.
func (c *RedisCluster) Resume(addr string) error {
	return c.do(addr, func(n *redisNode) error {
		n.paused = false
		return n.unit.Resume()
	})
}

func (c *RedisCluster) do(addr string, act func(*redisNode) error) error {
	n, err := c.node(addr)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unit == nil {
		return fmt.Errorf("engines: node %s is not running", addr)
	}
	return act(n)
}

// Restart starts a killed node again, empty but with its place in the cluster, and
// returns when it answers; WaitHealthy waits until it is in step. A running node is killed first.
func (c *RedisCluster) Restart(ctx context.Context, addr string) error {
	n, err := c.node(addr)
	if err != nil {
		return err
	}
	n.mu.Lock()
	up := n.unit != nil
	n.mu.Unlock()
	if up {
		if err := c.Kill(addr); err != nil {
			return err
		}
	}
	if err := c.launch(ctx, n); err != nil {
		return err
	}
	return c.answers(ctx, n)
}

// Stop ends all nodes and gives their ports back. The files stay for their owner to remove.
func (c *RedisCluster) Stop() error {
	var errs []error
	nodes, _ := c.all()
	for _, n := range nodes {
		n.mu.Lock()
		if n.unit != nil {
			errs = append(errs, n.unit.Kill())
			n.unit = nil
		}
		n.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.ports {
		errs = append(errs, p.release())
	}
	return errors.Join(errs...)
}
