package httptarget

import (
	"fmt"
	"net/netip"
	"syscall"
)

// ForbiddenError says that an address may not be connected to.
type ForbiddenError struct {
	Addr netip.Addr
	Kind string // what the address is, "a loopback address"
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s is %s, which allow_private would have to allow", e.Addr, e.Kind)
}

// special lists what of the address space does not belong to the public
// internet, after IANA's registries of special-purpose addresses. The first
// that matches gives the name.
var special = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/32"), "the unspecified address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared address (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a protocol assignment"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("64:ff9b::/96"), "a NAT64 address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a NAT64 address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001::/23"), "a protocol assignment"},
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a private address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// globalUnicast is all of IPv6 that has been given out for the public internet.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// CheckAddr returns a *ForbiddenError where addr is not an address of the
// public internet. An IPv4 address that is mapped into IPv6 counts as what it
// is; one that is embedded otherwise (NAT64, 6to4, Teredo) is refused, since
// who translates it may reach further than we do.
func CheckAddr(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return &ForbiddenError{addr, s.kind}
		}
	}
	if !addr.Is4() && !globalUnicast.Contains(addr) {
		return &ForbiddenError{addr, "no public address"}
	}
	return nil
}

// refusePrivate is a net.Dialer's Control: it runs on the resolved address,
// after the socket was made and before it connects.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address to connect to is not understood: %w", err)
	}
	return CheckAddr(ap.Addr())
}
