package boot

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/lease/redisstore"
)

// defaultPrefix begins the keys in Redis.
const defaultPrefix = "quota:"

// redisPlace is a Redis and the beginning of our keys in it.
type redisPlace struct {
	redis.UniversalOptions
	prefix string
}

// parseRedis reads redis://[user:password@]host:port[,host:port…][/db][?cluster=true&prefix=quota:],
// rediss:// for TLS. More than one address is a cluster's; one is a single Redis
// unless it says cluster=true. net/url refuses several hosts, so it reads the parts.
func parseRedis(s string) (*redisPlace, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "redis" && scheme != "rediss" {
		return nil, errors.New("write memory, or redis://host:port,host:port")
	}
	o := &redisPlace{prefix: defaultPrefix}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		u, err := url.Parse("redis://" + rest[:i] + "@host")
		if err != nil {
			return nil, errors.New("user and password cannot be read; escape them as in a URL") // without the password in it
		}
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
		rest = rest[i+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, db, _ := strings.Cut(rest, "/")
	for _, addr := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(addr)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return nil, fmt.Errorf("%q is not host:port", addr)
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not a database's number", db)
		}
		o.DB = n
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read", query)
	}
	for name, v := range values {
		switch {
		case name == "cluster" && (v[0] == "true" || v[0] == "false"):
			o.IsClusterMode = v[0] == "true"
		case name == "prefix" && len(v[0]) <= 32 && !strings.ContainsAny(v[0], "{}"):
			o.prefix = v[0]
		default:
			return nil, fmt.Errorf("%s=%q is not known; cluster=true and prefix=WORD are, the latter of at most 32 bytes without braces", name, v[0])
		}
	}
	o.IsClusterMode = o.IsClusterMode || len(o.Addrs) > 1
	if o.DB != 0 && o.IsClusterMode {
		return nil, errors.New("a cluster has no databases; leave the number out")
	}
	if scheme == "rediss" {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

// client connects to nothing yet.
func (p *redisPlace) client() redis.UniversalClient {
	return redisstore.Dial(p.UniversalOptions, p.IsClusterMode)
}
