package gateway

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ address, kept, masked string }{
		{" +8613800138000 ", "+8613800138000", "+86•••00"},
		{"C024BE91L", "C024BE91L", "•••1L"},
		{"张三", "张三", "•••"},
		{"12345", "12345", "•••"},
	} {
		kept, masked, err := Addresses{}.Check(c.address)
		if err != nil || kept != c.kept || masked != c.masked {
			t.Errorf("NC-07: got %q, %q, %v; want %q, %q", kept, masked, err, c.kept, c.masked)
		}
	}
	for _, address := range []string{"", " ", "+1\r\n2", "\xff", strings.Repeat("1", 257), "1\x002"} {
		if _, _, err := (Addresses{}).Check(address); err == nil || address != "" && strings.Contains(err.Error(), address) && len(address) > 1 {
			t.Errorf("%q: %v", address, err)
		}
	}
}
