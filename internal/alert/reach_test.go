package alert

import (
	"net"
	"strings"
	"testing"
)

// Which addresses webhooks are sent to, by what they reach: the address as it is dialed, however it is written.
func TestWhereWebhooksMayGo(t *testing.T) {
	const public, private, loopback = "public", "private", "loopback"
	for address, want := range map[string]string{
		"93.184.216.34": public, "2606:2800:220:1::1": public, "172.32.0.1": public, "100.63.255.255": public, "100.128.0.1": public, "198.20.0.1": public,
		"::ffff:93.184.216.34": public, "64:ff9b::5db8:d822": public, "2002:5db8:d822::1": public,
		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "100.64.0.1": private, "100.127.255.255": private,
		"fc00::1": private, "fd12:3456::1": private, "fec0::1": private,
		"::ffff:10.0.0.1": private, "64:ff9b::a00:1": private, "2002:a00:1::1": private, "::10.0.0.1": private, "::ffff:0:10.0.0.1": private,
		"127.0.0.1": loopback, "127.8.8.8": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"64:ff9b::7f00:1": "", "2002:7f00:1::": "", "::127.0.0.1": "",
		"0.0.0.0": "", "0.1.2.3": "", "::": "", "::ffff:0.0.0.0": "",
		"169.254.169.254": "", "::ffff:169.254.169.254": "", "64:ff9b::a9fe:a9fe": "", "64:ff9b:1::a9fe:a9fe": "", "64:ff9b:1::a00:1": "", "64:ff9b:1:a9fe:a9:fe00::": "", "64:ff9b:1::5db8:d822": "", "64:ff9b:2::1": public,
		"fd20:ce::254": "", "fd00:c1::a9fe:a9fe": "", "fd00:42::42": "", "fd20:ce::255": private, "fd00:42::43": private, "2002:a9fe:a9fe::": "", "::ffff:0:169.254.169.254": "",
		"fe80::1": "", "fe80::1%eth0": "", "fd00:ec2::254": "", "fd00:ec2::254%eth0": "", "100.100.100.200": "", "168.63.129.16": "", "192.0.0.192": "",
		"192.0.2.1": "", "198.51.100.1": "", "203.0.113.1": "", "2001:db8::1": "", "3fff::1": "", "198.18.0.1": "", "198.19.255.255": "", "192.88.99.1": "",
		"2001::1": "", "2001:10::1": "", "5f00::1": "", "100::1": "",
		"224.0.0.1": "", "239.255.255.255": "", "ff02::1": "", "240.0.0.1": "", "255.255.255.255": "",
	} {
		got := map[Reach]bool{}
		for _, reach := range []Reach{Public, Private, Loopback} {
			got[reach] = mayDial(net.JoinHostPort(address, "443"), reach) == nil
		}
		if wanted := map[Reach]bool{Public: want == public, Private: want == public || want == private, Loopback: want == loopback}; got[Public] != wanted[Public] || got[Private] != wanted[Private] || got[Loopback] != wanted[Loopback] {
			t.Errorf("%s: public %t, private %t, loopback %t; want it %q", address, got[Public], got[Private], got[Loopback], want)
		}
	}
	if err := mayDial("10.0.0.1:443", Public); !strings.Contains(err.Error(), "--webhooks-to-private-networks") {
		t.Errorf("a private address is refused by %v, which names no way out", err)
	}
}
