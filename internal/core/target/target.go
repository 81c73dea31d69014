// Package target says whether a text is the address of a server, before anything dials it. gRPC takes nearly
// every text for a name, and then never reaches it. quotactl, quota-agent and the SDK refuse texts that cannot
// be meant, all by this one rule.
package target

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"
)

// Check reports why addr is not HOST:PORT, unix:PATH or dns:HOST:PORT.
func Check(addr string) error {
	bad := func(why string) error {
		return fmt.Errorf("%q is not the address of a server: %s; write HOST:PORT, such as quota.internal:7600, or unix:PATH", addr, why)
	}
	switch scheme, _, _ := strings.Cut(addr, "://"); {
	case strings.TrimSpace(addr) == "":
		return bad("it is empty")
	case strings.ContainsFunc(addr, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return bad("it has a space in it")
	case strings.EqualFold(scheme, "http"), strings.EqualFold(scheme, "https"):
		return bad("it is a URL, and a server is asked over gRPC")
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if strings.TrimLeft(path, "/") == "" {
			return bad("it names no socket")
		}
		return nil
	}
	name := addr
	if rest, ok := strings.CutPrefix(addr, "dns:"); ok {
		name = rest[strings.LastIndex(rest, "/")+1:] // dns://authority/name and dns:///name
	}
	host, port, err := net.SplitHostPort(name)
	n, portErr := strconv.Atoi(port)
	switch {
	case err != nil && !strings.Contains(name, ":"):
		return bad("it has no port")
	case err != nil || strings.ContainsAny(host, "/@?#"):
		return bad("it is not HOST:PORT")
	case host == "":
		return bad("it has no host")
	case portErr != nil || n < 1 || n > 65535:
		return bad("its port is not a number from 1 to 65535")
	}
	return nil
}

// List splits addresses with commas between, which may have spaces around them, and checks each.
func List(addrs string) ([]string, error) {
	all := strings.Split(addrs, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
		if err := Check(all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
