package alert

import (
	"fmt"
	"net/netip"
	"slices"
)

// Reach is which addresses webhooks may have.
type Reach uint8

const (
	// Public is addresses of the internet.
	Public Reach = iota
	// Private is public addresses and private ones, for receivers within a network.
	Private
	// Loopback is this machine alone, for a webhook that asks for it.
	Loopback
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

var (
	// private are addresses of a network's own.
	private = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")

	// never are addresses that no receiver has: of this network, of documentation, benchmarks and protocols, multicast,
	// reserved. They include addresses that hand out a cloud's credentials without being link-local.
	never = prefixes(
		"0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/4", "240.0.0.0/4",
		"::/128", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fe80::/10", "ff00::/8",
		"64:ff9b:1::/48",         // NAT64 of a network's own
		"fd00:ec2::/32",          // AWS
		"fd20:ce::254/128",       // Google
		"fd00:c1::a9fe:a9fe/128", // Oracle
		"fd00:42::42/128",        // Scaleway
		"100.100.100.200/32",     // Alibaba
		"168.63.129.16/32",       // Azure
	)

	// embedding are the prefixes of IPv6 addresses that lead to an IPv4 address, and the byte at which that begins.
	// They are NAT64, 6to4, and the old compatible and translated ones. Teredo's are refused above. So is a network's
	// own NAT64, because the network decides at which bytes the address is.
	embedding = []struct {
		prefix netip.Prefix
		at     int
	}{
		{netip.MustParsePrefix("64:ff9b::/96"), 12},
		{netip.MustParsePrefix("2002::/16"), 2},
		{netip.MustParsePrefix("::/96"), 12}, {netip.MustParsePrefix("::ffff:0:0:0/96"), 12},
	}
)

// mayDial says why no webhook may have a resolved address, or nil.
func mayDial(address string, reach Reach) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap().WithZone("") // no prefix holds one with a zone
	refused := fmt.Errorf("%s is no address that a webhook may have", at.Addr())
	if reach == Loopback {
		if !ip.IsLoopback() {
			return refused
		}
		return nil
	}
	for _, e := range embedding {
		if e.prefix.Contains(ip) && ip != netip.IPv6Unspecified() && ip != netip.IPv6Loopback() {
			b := ip.As16()
			ip = netip.AddrFrom4([4]byte(b[e.at : e.at+4]))
			break
		}
	}
	within := func(all []netip.Prefix) bool {
		return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	switch {
	case ip.IsLoopback(), within(never):
		return refused
	case reach == Public && within(private):
		return fmt.Errorf("%s is a private address: webhooks reach those only with --webhooks-to-private-networks", at.Addr())
	}
	return nil
}
