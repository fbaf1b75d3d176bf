//go:build !crashpoints

package crashpoint

// Enabled says whether this build can be made to crash.
const Enabled = false

// Hit marks a place.
func Hit(string) {}
