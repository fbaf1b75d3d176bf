package httptarget

import (
	"errors"
	"net/netip"
	"testing"
)

func TestCheckAddr(t *testing.T) {
	for _, c := range []struct {
		addr string
		kind string // empty: allowed
	}{
		{"93.184.216.34", ""},
		{"8.8.8.8", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"100.63.255.255", ""},
		{"223.255.255.255", ""},
		{"2606:4700::1111", ""},
		{"::ffff:8.8.8.8", ""},

		{"0.0.0.0", "the unspecified address"},
		{"0.1.2.3", "an address of this network"},
		{"10.0.0.1", "a private address"},
		{"100.64.0.1", "a shared address (carrier-grade NAT)"},
		{"100.127.255.255", "a shared address (carrier-grade NAT)"},
		{"127.0.0.1", "a loopback address"},
		{"127.255.255.254", "a loopback address"},
		{"169.254.169.254", "a link-local address"},
		{"172.16.0.1", "a private address"},
		{"172.31.255.255", "a private address"},
		{"192.0.0.170", "a protocol assignment"},
		{"192.0.2.1", "an address for documentation"},
		{"192.88.99.1", "a 6to4 relay"},
		{"192.168.1.1", "a private address"},
		{"198.18.0.1", "an address for benchmarks"},
		{"198.51.100.1", "an address for documentation"},
		{"203.0.113.1", "an address for documentation"},
		{"224.0.0.1", "a multicast address"},
		{"240.0.0.1", "a reserved address"},
		{"255.255.255.255", "the broadcast address"},

		{"::", "the unspecified address"},
		{"::1", "a loopback address"},
		{"::127.0.0.1", "no public address"},
		{"::ffff:127.0.0.1", "a loopback address"},
		{"::ffff:10.0.0.1", "a private address"},
		{"::ffff:0:127.0.0.1", "no public address"},
		{"64:ff9b::127.0.0.1", "a NAT64 address"},
		{"64:ff9b::8.8.8.8", "a NAT64 address"},
		{"64:ff9b:1::1", "a NAT64 address"},
		{"100::1", "no public address"},
		{"2001::1", "a Teredo address"},
		{"2001:20::1", "a protocol assignment"},
		{"2001:db8::1", "an address for documentation"},
		{"2002:7f00:1::", "a 6to4 address"},
		{"3fff::1", "an address for documentation"},
		{"4000::1", "no public address"},
		{"fc00::1", "a private address"},
		{"fd12::1", "a private address"},
		{"fe80::1", "a link-local address"},
		{"fe80::1%eth0", "a link-local address"},
		{"fec0::1", "a private address"},
		{"ff02::1", "a multicast address"},
	} {
		t.Run(c.addr, func(t *testing.T) {
			err := CheckAddr(netip.MustParseAddr(c.addr))
			forbidden, refused := errors.AsType[*ForbiddenError](err)
			switch {
			case c.kind == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.kind != "" && !refused:
				t.Errorf("got %v, want a refusal as %s", err, c.kind)
			case c.kind != "" && forbidden.Kind != c.kind:
				t.Errorf("refused as %s, want %s", forbidden.Kind, c.kind)
			}
		})
	}
}
